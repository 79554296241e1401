package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

const (
	// roomyShare of all addresses is in use while throughput is compared, fullShare while
	// nodes and pools change, in percent. Without the feature, pods on nodes with fewer blocks
	// than others lack addresses from about 60 % on.
	roomyShare, fullShare = 40, 96
	// startTimeout limits each step that is not a phase.
	startTimeout = 3 * time.Minute
)

// trial is one run.
type trial struct {
	settings
	cluster *cluster
	people  *people
	load    *load
	record  *recorder
	begin   time.Time
	phases  []phase
	bursts  []burst // of runExact
	// steps are those of runKinds; restarted is when agents and containers were restarted.
	steps     []step
	restarted time.Duration
}

// phase is a part of a run in which pods are bound.
type phase struct {
	name        string
	bound       int
	took        time.Duration
	added       int64 // CNI ADDs
	exhausted   int64 // of which found no address
	interrupted int64 // of which hit an agent that was starting
}

// run makes one run. It returns the report of a failed run, too.
func run(ctx context.Context, s settings) (_ *report, err error) {
	t := &trial{settings: s, begin: time.Now()}
	ctx, fail := context.WithCancelCause(ctx)
	var parts sync.WaitGroup
	defer func() {
		fail(nil)
		parts.Wait()
		if t.cluster != nil {
			err = errors.Join(err, t.cluster.Stop())
		}
	}()
	if t.cluster, err = startCluster(ctx, s); err != nil {
		return nil, err
	}
	t.load = newLoad(t.cluster.client, s.seed, s.rate)
	t.people = &people{
		cluster: t.cluster, load: t.load, random: rand.New(rand.NewPCG(s.seed, 2)),
		nodes: map[string]string{}, cidrs: map[string][]netip.Prefix{}, done: map[string]int{},
		boot: func(node string) { t.cluster.fleet.Boot(ctx, node) },
	}
	t.people.scale.Store(100)
	t.record = &recorder{client: t.cluster.client, begin: t.begin, onPod: t.load.saw, known: map[string]map[string]uint64{}}
	background := func(what string, do func(context.Context) error) {
		parts.Go(func() {
			if err := do(ctx); err != nil && ctx.Err() == nil {
				fail(fmt.Errorf("%s: %w", what, err))
			}
		})
	}
	background("agents", func(ctx context.Context) error { t.cluster.fleet.Run(ctx); return nil })
	for _, k := range kinds() {
		background("checker", func(ctx context.Context) error { return t.record.run(ctx, k) })
	}
	if s.run != runKinds {
		background("load", t.load.run)
	}
	err = t.story(ctx)
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	return t.report(), err
}

// part is a part of a run.
type part struct {
	name string
	do   func(context.Context) error
}

// parts returns what happens, in this order.
func (t *trial) parts() []part {
	switch t.run {
	case runExact:
		return []part{{"start", t.startOffering}, {"exact", t.exact}, {"end", t.end}}
	case runKinds:
		return []part{{"start", t.startOffering}, {"kinds", t.kinds}, {"end", t.end}}
	}
	return []part{
		{"start", t.start},
		{"without", func(ctx context.Context) error {
			return t.bind(ctx, "without the feature", t.floorBinds, roomyShare, false, always)
		}},
		{"enable", t.enable},
		{"with", func(ctx context.Context) error {
			return t.bind(ctx, "with it", t.floorBinds, roomyShare, false, always)
		}},
		{"changes", t.changes},
		{"full", t.full},
		{"end", t.end},
	}
}

func (t *trial) story(ctx context.Context) error {
	for _, part := range t.parts() {
		began := time.Now()
		if err := part.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
		t.say("%s: %.1f s", part.name, time.Since(began).Seconds())
	}
	return nil
}

func (t *trial) say(format string, args ...any) {
	fmt.Printf("%6.0f s  %s\n", time.Since(t.begin).Seconds(), fmt.Sprintf(format, args...))
}

func (t *trial) start(ctx context.Context) error {
	ctx, cancel := limited(ctx, startTimeout)
	defer cancel()
	if err := t.cluster.startOperator(ctx); err != nil {
		return err
	}
	return t.people.found(ctx)
}

// startOffering starts the operator with the feature, before any node exists.
func (t *trial) startOffering(ctx context.Context) error {
	ctx, cancel := limited(ctx, startTimeout)
	defer cancel()
	if err := t.cluster.startOperator(ctx); err != nil {
		return err
	}
	return t.cluster.enable(ctx)
}

func limited(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, d, fmt.Errorf("not within %s", d))
}

// bind waits until that many pods are bound, and more until done returns true, while a share
// of all addresses is in use. Time and pods count from when that share is first reached.
func (t *trial) bind(ctx context.Context, name string, goal, share int, overfill bool, done func() bool) error {
	steering, stop := context.WithCancel(ctx)
	var steer sync.WaitGroup
	steer.Go(func() { t.people.steer(steering, share, overfill) })
	defer steer.Wait()
	defer stop()
	fleet := t.cluster.fleet
	added, failed, exhausted := fleet.Added.Load(), fleet.Failed.Load(), fleet.Exhausted.Load()
	target := t.people.capacity() * share / 100 * runningShare / 100
	if err := t.await(ctx, func(running, _ int) bool { return running >= target }); err != nil {
		return fmt.Errorf("%d pods run: %w", target, err)
	}
	_, _, before := t.load.counts()
	began := time.Now()
	err := t.await(ctx, func(_, bound int) bool { return bound >= before+goal && done() })
	took := time.Since(began)
	_, _, after := t.load.counts()
	without := fleet.Exhausted.Load() - exhausted
	t.phases = append(t.phases, phase{
		name: name, bound: after - before, took: took,
		added: fleet.Added.Load() - added, exhausted: without, interrupted: fleet.Failed.Load() - failed - without,
	})
	return err
}

func always() bool { return true }

// await waits until enough pods run or were bound, and fails if none is bound for a while.
func (t *trial) await(ctx context.Context, enough func(running, bound int) bool) error {
	const every = 10 * time.Second
	last, since, said := -1, time.Now(), time.Now()
	for {
		there, running, bound := t.load.counts()
		if enough(running, bound) {
			return nil
		}
		if bound != last {
			last, since = bound, time.Now()
		}
		if time.Since(since) > t.patience {
			return fmt.Errorf("no pod was bound for %s: %d pods are there, %d run, %d were bound", t.patience, there, running, bound)
		}
		if time.Since(said) >= every {
			said = time.Now()
			t.say("%d bound; %d pods, %d run, %d addresses", bound, there, running, t.people.capacity())
		}
		if err := t.cluster.ended(); err != nil {
			return err
		}
		if err := harness.Sleep(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// enable turns the feature on when no earlier pod is left.
func (t *trial) enable(ctx context.Context) error {
	ctx, cancel := limited(ctx, startTimeout)
	defer cancel()
	if err := t.load.empty(ctx); err != nil {
		return err
	}
	return t.cluster.enable(ctx)
}

// changes runs the phase on nearly full pools, while nodes and pools change.
func (t *trial) changes(ctx context.Context) error {
	enough, changed := make(chan struct{}), make(chan error, 1)
	go func() { changed <- t.people.change(ctx, enough) }()
	if t.plant {
		raising, stop := context.WithCancel(ctx)
		defer stop()
		go t.raise(raising)
	}
	err := t.bind(ctx, "while all changes", t.binds, fullShare, true, t.people.madeAll)
	close(enough)
	// Let the current change complete, for which pods must still be created and deleted.
	return errors.Join(err, <-changed)
}

// raise repeatedly makes all Nodes offer more than they have, like an operator that counts
// wrongly.
func (t *trial) raise(ctx context.Context) {
	const often, far = 200 * time.Millisecond, 1000
	patch := fmt.Sprintf(`{"status":{"capacity":{%[1]q:"%[2]d"},"allocatable":{%[1]q:"%[2]d"}}}`, v1alpha1.IPv4Resource, far)
	for harness.Sleep(ctx, often) == nil {
		name, _ := t.people.some()
		_ = t.cluster.offer(ctx, name, patch) // the node may just have been deleted
	}
}

// full creates more pods than there are addresses: as many are bound as Nodes offer, and no
// pool has a block left. With one more CIDR for each pool all are bound.
func (t *trial) full(ctx context.Context) error {
	ctx, cancel := limited(ctx, startTimeout)
	defer cancel()
	want := t.people.capacity() + cidrPods
	t.load.keep(want, false)
	if err := harness.Until(ctx, 500*time.Millisecond, t.allUsed); err != nil {
		return err
	}
	_, running, _ := t.load.counts()
	t.say("all addresses are in use, by %d pods; %d are pending", running, want-running)
	for _, zone := range zones {
		for range 2 {
			if err := t.people.addCIDR(ctx, zone); err != nil {
				return err
			}
		}
	}
	return harness.Until(ctx, 500*time.Millisecond, func(context.Context) error {
		if there, running, _ := t.load.counts(); running < want || there != running {
			return fmt.Errorf("%d of %d pods run", running, there)
		}
		return nil
	})
}

// allUsed returns nil if no pool has a free block, every Node's offer is used up, and more
// pods are pending.
func (t *trial) allUsed(ctx context.Context) error {
	pools, nodes := &v1alpha1.PodIPPoolList{}, &corev1.NodeList{}
	if err := errors.Join(t.cluster.client.List(ctx, pools), t.cluster.client.List(ctx, nodes)); err != nil {
		return err
	}
	for _, p := range pools.Items {
		if s := p.Status.IPv4; s == nil || s.Blocks.Free+s.Blocks.CoolingDown+s.Blocks.Draining > 0 {
			return fmt.Errorf("pool %s has blocks left: %+v", p.Name, s)
		}
	}
	offered := 0
	for _, n := range nodes.Items {
		quantity := n.Status.Allocatable[v1alpha1.IPv4Resource]
		offered += int(quantity.Value())
	}
	there, running, _ := t.load.counts()
	if running != offered || there <= running {
		return fmt.Errorf("%d addresses are offered, %d of %d pods run", offered, running, there)
	}
	return nil
}

// end deletes all pods, and waits until the checker has seen everything.
func (t *trial) end(ctx context.Context) error {
	ctx, cancel := limited(ctx, startTimeout)
	defer cancel()
	if err := t.load.empty(ctx); err != nil {
		return err
	}
	return harness.Until(ctx, 300*time.Millisecond, t.record.caughtUp)
}
