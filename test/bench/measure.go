package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/test/bench/bed"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

// measure is the same task for several contenders.
type measure struct {
	name       string
	contenders []contender
	// world is the initial state, except for mode and size.
	world bed.World
	run   func(ctx context.Context, r *run) error
	// checks are the counts that a contender must have with n nodes.
	checks func(c contender, n float64) []check
}

// compared returns the measures of this operator beside the floor and its peers. Peak memory
// is a value of each.
func compared(peers bool) []measure {
	all := []measure{cold(), restart(), storm(), steady()}
	if !peers {
		return all
	}
	for i := range all {
		if all[i].name != "storm" { // nodes have one block for good in cluster-pool mode
			all[i].contenders = append(all[i].contenders, ciliumOperator(bed.ClusterPool))
		}
		all[i].contenders = append(all[i].contenders, ciliumOperator(bed.MultiPool))
	}
	return append(all, failovers()...)
}

// sample is the result of one contender in one round.
type sample struct {
	Measure   string             `json:"measure"`
	Contender string             `json:"contender"`
	Nodes     int                `json:"nodes"`
	Round     int                `json:"round"`
	Values    map[string]float64 `json:"values"`
	// Counts are the counts of the API server, as text.
	Counts string `json:"counts,omitempty"`
}

// run is one contender on a control plane of its own.
type run struct {
	*bed.Stage
	c       contender
	world   bed.World
	process *bed.Process
	values  map[string]float64
	counts  bed.Counts
	// observers end with the run.
	observers []*bed.Observer
	// fail ends the run.
	fail context.CancelCauseFunc
}

// once runs one contender once.
func (b *bench) once(ctx context.Context, m measure, c contender, round int) (sample, error) {
	w := m.world
	w.Mode, w.Nodes = c.mode, b.nodes
	w.Settled = w.Settled && w.Mode.Owned()
	st, err := b.store.Open(ctx, w)
	if err != nil {
		return sample{}, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, time.Duration(1+b.nodes/5000)*10*time.Minute, errors.New("out of patience"))
	defer cancel()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	r := &run{Stage: st, c: c, world: w, values: map[string]float64{}, fail: fail}
	err = m.run(ctx, r)
	for _, o := range r.observers {
		err = errors.Join(err, o.Close())
	}
	if err != nil && r.process != nil {
		err = fmt.Errorf("%w; the contender's log ends:\n%s", err, r.process.LogTail())
	}
	if err := errors.Join(err, st.Close()); err != nil {
		return sample{}, err
	}
	var brief []string
	for _, value := range []string{"seconds", "cpu s", "apiserver cpu s", "peak MiB", "writes", "pool writes", "events", "refused writes", "versions"} {
		if v, ok := r.values[value]; ok {
			brief = append(brief, value+" "+number(v))
		}
	}
	b.say("%-8s %-40s round %d: %s", m.name, c.name, round, strings.Join(brief, ", "))
	return sample{Measure: m.name, Contender: c.name, Nodes: b.nodes, Round: round, Values: r.values, Counts: r.counts.String()}, nil
}

func (r *run) observe(ctx context.Context, path string) (*bed.Observer, error) {
	o, err := r.Observe(ctx, path)
	if err == nil {
		r.observers = append(r.observers, o)
	}
	return o, err
}

// observeJoin observes the CiliumNodes until the node that joins the world, one more than it had, has a block.
func (r *run) observeJoin(ctx context.Context) (*bed.Observer, error) {
	o, err := r.observe(ctx, bed.CiliumNodes)
	if err != nil {
		return nil, err
	}
	joins := bed.NodeName(r.world.Nodes)
	o.Expect(1, func(event []byte) bool { return bed.Name(event) == joins && r.c.published(event, 1) })
	return o, nil
}

// start starts the contender. The run fails if the contender exits on its own.
func (r *run) start() error {
	var err error
	if r.process, err = r.c.start(r.Stage, r.world, "contender"); err != nil {
		return err
	}
	go func() {
		<-r.process.Ended()
		r.fail(errors.New("the contender has ended"))
	}()
	return nil
}

// ready starts the contender and waits until it has read everything and is idle for long.
func (r *run) ready(ctx context.Context, long time.Duration) error {
	if err := r.start(); err != nil {
		return err
	}
	if err := r.Until(ctx, r.process, r.c.says...); err != nil {
		return err
	}
	return r.IdleFor(ctx, r.process, long)
}

// triggered first waits until a contender that waits for work is idle, triggers its work,
// and waits for the objects that o expects. Any other contender starts at that moment instead.
func (r *run) triggered(ctx context.Context, o, versions *bed.Observer, trigger func(ctx context.Context) error) error {
	if r.c.waits {
		if err := r.ready(ctx, bed.Calm); err != nil {
			return err
		}
	}
	before, err := r.Usage(ctx, r.process)
	if err != nil {
		return err
	}
	seen, begin := versions.Seen(), time.Now()
	if r.c.waits {
		err = trigger(ctx)
	} else {
		err = r.start()
	}
	if err != nil {
		return err
	}
	last, err := o.Wait(ctx)
	if err != nil {
		return err
	}
	r.values["seconds"] = last.Sub(begin).Seconds()
	served, err := r.Usage(ctx, r.process)
	if err != nil {
		return err
	}
	r.values["writes until served"] = served.Counts.Sub(before.Counts).Writes("podipblocks", "ciliumnodes")
	if err := r.spent(ctx, before, 0); err != nil {
		return err
	}
	r.values["versions"] = float64(versions.Seen() - seen)
	return nil
}

// settleTime is the wait at rest before counts are read.
const settleTime = 2 * time.Second

// spent waits until the contender is idle for long (0: bed.Calm), and records its usage and the
// API server's since before, and the writes.
func (r *run) spent(ctx context.Context, before bed.Usage, long time.Duration) error {
	long = cmp.Or(long, bed.Calm)
	if err := r.IdleFor(ctx, r.process, long); err != nil {
		return err
	}
	r.values["idle after s"] = (time.Since(before.At) - long).Seconds()
	if err := harness.Sleep(ctx, settleTime); err != nil {
		return err
	}
	after, err := r.Usage(ctx, r.process)
	if err != nil {
		return err
	}
	r.counts = after.Counts.Sub(before.Counts)
	for name, v := range map[string]float64{
		"measured s":      after.At.Sub(before.At).Seconds(),
		"cpu s":           (after.Contender.CPU - before.Contender.CPU).Seconds(),
		"peak MiB":        float64(after.Contender.Peak) / (1 << 20),
		"apiserver cpu s": (after.APIServer.CPU - before.APIServer.CPU).Seconds(),
		"writes":          r.counts.Writes(),
		"block writes":    r.counts.Writes("podipblocks"),
		"node writes":     r.counts.Writes("ciliumnodes"),
		"pool writes":     r.counts.Writes("podippools"),
		"other writes":    r.counts.Writes() - r.counts.Writes("podipblocks", "ciliumnodes", "podippools"),
		"events":          r.counts.Writes("events"),
		"refused writes":  r.counts.Failed(),
	} {
		r.values[name] = v
	}
	return nil
}
