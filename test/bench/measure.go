package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/test/bench/bed"
)

// measure is one of the tables: the same task for several contenders.
type measure struct {
	name       string
	contenders []contender
	// world is the initial state, except for mode and size.
	world bed.World
	run   func(ctx context.Context, r *run) error
	// rounds is the number of rounds unless the command line sets one; 0: usualRounds. Slow
	// measures have fewer, so that the whole run takes at most 90 minutes.
	rounds int
	// synced: etcd waits for the disk.
	synced bool
}

// sample is the result of one contender in one round.
type sample struct {
	Measure   string `json:"measure"`
	Contender string `json:"contender"`
	Nodes     int    `json:"nodes"`
	Round     int    `json:"round"`
	// Commit is the measured commit, if it is not the run's.
	Commit string             `json:"commit,omitempty"`
	Values map[string]float64 `json:"values"`
	// Counts is what the API server counted, as text.
	Counts string `json:"counts,omitempty"`
	// Note is what readers must know about the sample, such as why it has no values.
	Note string `json:"note,omitempty"`
}

// fixedWork is the value that shows how fast the machine was: the CPU time of the same piece of
// work, in µs.
const fixedWork = "fixed work µs"

// run is one contender on a control plane of its own.
type run struct {
	*bed.Stage
	bench   *bench
	c       contender
	world   bed.World
	process *bed.Process
	values  map[string]float64
	counts  bed.Counts
	// calm is how long the contender has to be idle before spent counts; 0: the usual time.
	calm  time.Duration
	speed *bed.Speedometer
	// observers end with the run.
	observers []*bed.Observer
	// fail ends the run.
	fail context.CancelCauseFunc
}

// once runs one contender once.
func (b *bench) once(ctx context.Context, m measure, c contender, nodes, round int) (sample, error) {
	w := m.world
	w.Mode, w.Nodes = c.mode, nodes
	if err := w.Fits(); err != nil {
		return sample{}, err
	}
	if c.podless {
		w.Pods = 0
	}
	w.Settled = w.Settled && w.Mode.Owned()
	begin := time.Now()
	if _, err := b.store.Make(ctx, w); err != nil {
		return sample{}, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, b.patience, errors.New("out of patience"))
	defer cancel()
	with := c.controlPlane
	with.EtcdSyncs = m.synced
	st, err := b.store.OpenWith(ctx, w, with)
	if err != nil {
		return sample{}, err
	}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	argv, err := c.argv(st, w)
	if err != nil {
		return sample{}, errors.Join(err, st.Close())
	}
	speed := bed.StartSpeedometer()
	defer speed.Stop()
	r := &run{Stage: st, bench: b, c: c, world: w, values: map[string]float64{}, speed: speed, fail: fail}
	err = m.run(ctx, r)
	for _, o := range r.observers {
		err = errors.Join(err, o.Close())
	}
	if err != nil && r.process != nil {
		err = fmt.Errorf("%w; the contender's log ends:\n%s", err, r.process.LogTail())
	}
	if err := errors.Join(err, st.Close()); err != nil {
		return sample{}, fmt.Errorf("%s, %s, %d nodes: %w", m.name, c.name, nodes, err)
	}
	if m.world.Pods > 0 {
		r.values[podsPerNode], r.values["blocks per node"] = float64(w.Pods), float64(w.Blocks)
	}
	r.values["took s"] = time.Since(begin).Seconds()
	b.results.set(m.name, c.name, describe(c.settings, argv))
	s := sample{Measure: m.name, Contender: c.name, Nodes: nodes, Round: round, Values: r.values, Counts: r.counts.String()}
	b.say("%-8s %-46s %5d nodes round %d: %s", m.name, c.name, nodes, round, brief(r.values))
	return s, nil
}

// all runs every contender of a measure, interleaved, so that other load on the machine
// affects them equally. Each round begins with another contender.
func (b *bench) all(ctx context.Context, m measure, nodes int) error {
	m = b.adapted(m)
	for round := range cmp.Or(b.rounds, m.rounds, usualRounds) {
		for _, c := range order(m.contenders, round, b.skips) {
			s, err := b.once(ctx, m, c, nodes, round)
			if err != nil {
				return err
			}
			b.results.Samples = append(b.results.Samples, s)
		}
	}
	return b.save()
}

// order returns the contenders that run in a round, beginning with the next one after that
// which began the round before: where several run, rounds in a row begin with different ones.
func order(contenders []contender, round int, skips func(c contender, round int) bool) []contender {
	queue := contenders
	for before := range round {
		first := slices.IndexFunc(queue, func(c contender) bool { return !skips(c, before) })
		queue = slices.Concat(queue[first+1:], queue[:first+1])
	}
	return slices.DeleteFunc(slices.Clone(queue), func(c contender) bool { return skips(c, round) })
}

// skips reports whether a contender does not run in a round.
func (b *bench) skips(c contender, round int) bool {
	return c.rounds > 0 && round >= c.rounds || b.only != "" && !slices.Contains(b.onlyNames(), c.name)
}

func (r *run) observe(ctx context.Context, path string) (*bed.Observer, error) {
	o, err := r.Observe(ctx, path)
	if err == nil {
		r.observers = append(r.observers, o)
	}
	return o, err
}

// start starts the contender. The run fails if the contender exits on its own.
func (r *run) start() error {
	var err error
	if r.process, err = r.c.start(r.Stage, r.world); err != nil {
		return err
	}
	go func() {
		<-r.process.Ended()
		r.fail(errors.New("the contender has ended"))
	}()
	return nil
}

// ready starts the contender and waits until it has read everything and is idle.
func (r *run) ready(ctx context.Context) error {
	if err := r.start(); err != nil {
		return err
	}
	if len(r.c.says) > 0 && r.c.says[0] != "" {
		if err := r.Until(ctx, r.process, r.c.says...); err != nil {
			return err
		}
	}
	_, err := r.Idle(ctx, r.process)
	return err
}

// spent waits until the contender is idle, and records what it, the API server and etcd
// have used since before, and what was written and seen.
func (r *run) spent(ctx context.Context, before bed.Usage, o *bed.Observer, seen bed.Observed) error {
	rest, err := r.IdleFor(ctx, r.process, cmp.Or(r.calm, bed.Calm))
	if err != nil {
		return err
	}
	r.values["rest s"] = rest.Sub(before.At).Seconds()
	work, err := r.speed.Between(before.At, rest)
	if err != nil {
		return fmt.Errorf("measure the machine's speed: %w", err)
	}
	if work > 0 {
		r.values[fixedWork] = float64(work) / float64(time.Microsecond)
	}
	select {
	case <-time.After(r.bench.settle):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	after, err := r.Usage(ctx, r.process)
	if err != nil {
		return err
	}
	const mib = 1 << 20
	r.counts = after.Counts.Sub(before.Counts)
	r.values["measured s"] = after.At.Sub(before.At).Seconds()
	r.values["cpu s"] = (after.Contender.CPU - before.Contender.CPU).Seconds()
	r.values["peak MiB"] = float64(after.Contender.Peak) / mib
	r.values["settled MiB"] = float64(after.Contender.RSS) / mib
	r.values["apiserver cpu s"] = (after.APIServer.CPU - before.APIServer.CPU).Seconds()
	r.values["etcd cpu s"] = (after.Etcd.CPU - before.Etcd.CPU).Seconds()
	// Peaks count since the processes started, as they had read what etcd had on disk
	// before the measurement.
	r.values["apiserver peak MiB"] = float64(after.APIServer.Peak) / mib
	r.values["etcd peak MiB"] = float64(after.Etcd.Peak) / mib
	r.values["writes"] = r.counts.Writes()
	r.values["block writes"] = r.counts.Writes("podipblocks")
	r.values["node writes"] = r.counts.Writes("ciliumnodes")
	r.values["pool writes"] = r.counts.Writes("podippools")
	r.values["other writes"] = r.values["writes"] - r.counts.Writes("podipblocks", "ciliumnodes", "podippools")
	r.values["events"] = r.counts.Writes("events")
	r.values["refused writes"] = r.counts.Failed()
	r.values["answered MiB"] = r.counts.Answered / mib
	r.values["watched MiB"] = r.counts.Watched / mib
	if o != nil {
		now := o.Seen()
		r.values["versions"] = float64(now.Versions - seen.Versions)
		r.values["version MiB"] = float64(now.Bytes-seen.Bytes) / mib
	}
	return nil
}
