// Command schedule lets the real kube-scheduler bind pods by the addresses that Nodes offer
// (docs/scheduling.md), on nearly full pools, while nodes, labels and pools change. It judges
// every version of every object.
//
// Only this suite finds a pod that the real scheduler binds to a node without an address for
// it, or leaves pending although a node has one.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

const (
	// patience limits each step, beside the time for its binds.
	patience = 3 * time.Minute
	// bound limits the time that a pod is pending while a node offers an address for it.
	bound = 30 * time.Second
)

// settings are the settings of a run.
type settings struct {
	binDir, dir string
	size, binds int // nodes at first
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	klog.SetLogger(logr.Discard())
	ctrl.SetLogger(logr.Discard())
	err := command(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "schedule:", err)
		os.Exit(1)
	}
}

func command(ctx context.Context) error {
	var s settings
	flag.IntVar(&s.size, "nodes", 6, "nodes, 4 to 100")
	flag.IntVar(&s.binds, "binds", 500, "pods to bind while nodes and pools change")
	flag.Parse()
	if flag.NArg() > 0 || s.size < 4 || s.size > 100 {
		return fmt.Errorf("-nodes is %d, between 4 and 100; unexpected arguments: %q", s.size, flag.Args())
	}
	var err error
	if s.binDir, err = filepath.Abs(".cache/bin"); err != nil {
		return err
	}
	s.dir = filepath.Join(s.binDir, "../../.run/schedule")
	ctx, fail := context.WithCancelCause(ctx)
	b, err := startBed(ctx, s, fail)
	if err != nil {
		return err
	}
	err = b.story(ctx)
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	err = errors.Join(err, b.judge.verdict(b.checker.Violations()))
	fail(nil)
	b.parts.Wait()
	return errors.Join(err, b.Stop())
}

// story performs the steps of a run, in this order.
func (b *bed) story(ctx context.Context) error {
	for _, s := range []step{
		{"nodes and pools change while pods are bound", b.churn},
		{"as many pods are bound as Nodes offer addresses, and no more", b.full},
		{"no pod is left", b.empty},
	} {
		began := time.Now()
		most := patience + time.Duration(b.binds)*20*time.Millisecond
		limit, cancel := context.WithTimeoutCause(ctx, most, fmt.Errorf("not within %s", most))
		err := s.do(limit)
		cancel()
		if err == nil {
			err = b.ended()
		}
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		fmt.Printf("%5.1f s  %s\n", time.Since(began).Seconds(), s.name)
	}
	return b.checker.Sync(ctx)
}

// step is a part of a run.
type step struct {
	name string
	do   func(context.Context) error
}

// shares returns the numbers of pods that exist in turn, in percent of all addresses. With half
// of them nodes return blocks.
func shares() []int { return []int{96, 103, 50} }

// churn lets nodes and pools change until enough pods were bound and each change was made.
func (b *bed) churn(ctx context.Context) error {
	changing, stop := context.WithCancel(ctx)
	defer stop()
	changed := make(chan error, 1)
	go func() { changed <- b.change(changing) }()
	for turn := 0; ; turn++ {
		b.want.Store(int64(b.capacity() * shares()[turn/20%len(shares())] / 100))
		select {
		case err := <-changed:
			return errors.Join(err, ctx.Err())
		case <-time.After(250 * time.Millisecond):
		}
		if b.judge.bound() >= b.binds && b.changes.Load() >= int64(len(b.moves())) {
			stop()
		}
	}
}

// full creates more pods than there are addresses: as many are bound as Nodes offer, and no
// pool has a block left. With one more CIDR for each pool all are bound.
func (b *bed) full(ctx context.Context) error {
	want := b.capacity() + cidrPods
	b.churning.Store(false)
	b.want.Store(int64(want))
	if err := harness.Until(ctx, time.Second, func(ctx context.Context) error { return b.allUsed(ctx, want) }); err != nil {
		return err
	}
	for _, zone := range zones {
		for range 2 {
			if err := b.addCIDR(ctx, zone); err != nil {
				return err
			}
		}
	}
	return harness.Until(ctx, 100*time.Millisecond, func(ctx context.Context) error {
		return errors.Join(b.ended(), b.podsAre(ctx, want, 0))
	})
}

// allUsed returns nil if no pool has a free block, every Node's offer is used up, and the
// other pods are pending.
func (b *bed) allUsed(ctx context.Context, pods int) error {
	pools, nodes := &v1alpha1.PodIPPoolList{}, &corev1.NodeList{}
	if err := errors.Join(b.client.List(ctx, pools), b.client.List(ctx, nodes)); err != nil {
		return err
	}
	for _, p := range pools.Items {
		if s := p.Status.IPv4; s == nil || s.Blocks.Free+s.Blocks.CoolingDown+s.Blocks.Draining > 0 {
			return fmt.Errorf("pool %s has blocks left: %+v", p.Name, s)
		}
	}
	offered := 0
	for i := range nodes.Items {
		offered += offerOf(&nodes.Items[i])
	}
	return b.podsAre(ctx, offered, pods-offered)
}

// empty deletes all pods.
func (b *bed) empty(ctx context.Context) error {
	b.want.Store(0)
	return b.evict(ctx, func(*corev1.Pod) bool { return true })
}
