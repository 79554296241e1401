package main

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"

	ipamoption "github.com/cilium/cilium/pkg/ipam/option"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant/whole"
)

// verdict is the report of the checker.
type verdict struct {
	stats      invariant.Stats
	violations []invariant.Violation
	// handshakes counts addresses that left a pool with their agent's consent, givenBack whole
	// blocks that agents removed from their lists.
	handshakes, givenBack int
	// again counts claims of blocks that had been claimed before, leaders changes of the Lease to
	// another operator.
	again, leaders int
}

// versions returns the number of judged versions.
func (v verdict) versions() int {
	n := 0
	for _, count := range v.stats.Versions {
		n += count
	}
	return n
}

// checker watches every version of every object. It reads from an API server of its own, without
// a watch cache: an API server that has just started has only the present versions in its cache.
type checker struct {
	rules *invariant.Checker
	// whole checks further rules where agents are assigned whole blocks; nil otherwise.
	whole *whole.Rules
	// held returns the addresses that agents hold.
	held func() map[string][]netip.Addr

	mu      sync.Mutex
	verdict verdict
	claimed map[string]bool // blocks
}

// startChecker returns a checker of the objects of an API server, which runs until ctx ends.
func startChecker(ctx context.Context, cfg *rest.Config, m mode, held func() map[string][]netip.Addr) (*checker, error) {
	leases, err := harness.NewClient(cfg)
	if err != nil {
		return nil, err
	}
	c := &checker{held: held, claimed: map[string]bool{}}
	opts := invariant.Options{Cooldown: m.cooldown(), OnChange: c.see, Agents: held}
	if carrier, is := m.carrier(); is {
		c.whole = whole.New(carrier)
		opts.Agents, opts.Judges = nil, whole.Judges
	}
	if c.rules, err = invariant.Watch(ctx, cfg, opts); err != nil {
		return nil, err
	}
	go c.countLeaders(ctx, leases)
	go c.keepAsking(ctx)
	return c, nil
}

// tell reports the verdict so far.
func (c *checker) tell() verdict {
	stats, violations := c.rules.Stats(), c.rules.Violations()
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.verdict
	v.stats, v.violations = stats, violations
	if c.whole != nil {
		v.violations = append(v.violations, c.whole.Violations()...)
		v.stats.AgentChecks, v.givenBack = c.whole.Asked(), c.whole.Taken()
	}
	return v
}

// sync waits until all versions so far were judged, and asks the agents once more.
func (c *checker) sync(ctx context.Context) error {
	if err := c.rules.Sync(ctx); err != nil {
		return fmt.Errorf("the checker cannot follow: %w", err)
	}
	return c.askAgents(ctx)
}

// see records a version after it was judged.
func (c *checker) see(change invariant.Change) {
	if c.whole != nil {
		c.whole.See(change)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch change.Kind {
	case invariant.KindCiliumNode:
		c.verdict.handshakes += handshakes(change)
	case invariant.KindBlock:
		if block, is := change.New.(*v1alpha1.PodIPBlock); is && change.Old == nil {
			if c.claimed[block.Spec.CIDR] {
				c.verdict.again++
			}
			c.claimed[block.Spec.CIDR] = true
		}
	}
}

// handshakes counts the addresses that left a pool with their agent's consent.
func handshakes(change invariant.Change) int {
	before, ok := change.Old.(*ciliumv2.CiliumNode)
	now, still := change.New.(*ciliumv2.CiliumNode)
	if !ok || !still {
		return 0
	}
	n := 0
	for addr, state := range before.Status.IPAM.ReleaseIPs {
		_, was := before.Spec.IPAM.Pool[addr]
		_, is := now.Spec.IPAM.Pool[addr]
		if was && !is && string(state) == ipamoption.IPAMReadyForRelease {
			n++
		}
	}
	return n
}

// countLeaders watches the Lease from its first version.
func (c *checker) countLeaders(ctx context.Context, leases invariant.Reader) {
	version, holder := "1", ""
	for ctx.Err() == nil {
		version, _ = invariant.Follow(ctx, leases, &coordinationv1.LeaseList{}, version, func(_ watch.EventType, o client.Object) error {
			lease := o.(*coordinationv1.Lease)
			now := ptr.Deref(lease.Spec.HolderIdentity, "")
			if lease.Name != leaseName || now == "" || now == holder {
				return nil
			}
			if holder != "" {
				c.mu.Lock()
				c.verdict.leaders++
				c.mu.Unlock()
			}
			holder = now
			return nil
		})
		_ = harness.Sleep(ctx, 100*time.Millisecond) // etcd may be down
	}
}

// keepAsking asks agents that are assigned whole blocks until ctx ends. The invariant checker
// itself asks the others.
func (c *checker) keepAsking(ctx context.Context) {
	for c.whole != nil && harness.Sleep(ctx, 2*time.Second) == nil {
		_ = c.askAgents(ctx) // etcd may be down; the next call tries again
	}
}

// askAgents checks once that agents hold only addresses of their blocks.
func (c *checker) askAgents(ctx context.Context) error {
	if c.whole == nil {
		return c.rules.AskAgents(ctx)
	}
	return c.whole.AskAgents(ctx, c.held, c.rules.Sync)
}

// quiet returns an error if anything but the Lease is written for a while.
func (c *checker) quiet(ctx context.Context, period time.Duration) error {
	if err := c.sync(ctx); err != nil {
		return err
	}
	before := c.listsWritten()
	found, err := c.rules.Quiet(ctx, period)
	if err != nil {
		return err
	}
	for _, v := range found {
		return fmt.Errorf("%w: %s %s", errBroken, v.Subject, v.Text)
	}
	if n := c.listsWritten() - before; n > 0 {
		return fmt.Errorf("%w: assigned blocks written %d times at rest", errBroken, n)
	}
	return c.sync(ctx)
}

func (c *checker) listsWritten() int {
	sum := 0
	if c.whole != nil {
		for _, n := range c.whole.Writes() {
			sum += n
		}
	}
	return sum
}
