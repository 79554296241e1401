package controller

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// maxBlockHostBits bounds a block made by hand, as its addresses are listed one
// by one in the CiliumNode.
const maxBlockHostBits = 12

// observation is all that is known of one node when a decision is made.
type observation struct {
	name     string
	node     *corev1.Node     // nil: no such Node
	view     *ciliumnode.View // nil: no such CiliumNode
	blocks   []crd.Block
	pods     []expand.Pod
	families []familyObservation
	settled  bool
	settles  time.Time // when the agent will have settled; zero: not foreseeable
	withheld bool      // addresses were not published, as others name them
}

// familyObservation is what one family of a node is decided on.
type familyObservation struct {
	family ipalloc.Family
	pools  []*crd.Pool // to claim from, best first; the first rules the node
	policy expand.Policy
	paused string // why nothing may change; "": it may
	state  expand.State
}

// ruling is the pool whose policy holds, or "".
func (f *familyObservation) ruling() string {
	if len(f.pools) == 0 {
		return ""
	}
	return f.pools[0].Name
}

// paused reports whether nothing may change on the node.
func (o *observation) paused() bool {
	return slices.ContainsFunc(o.families, func(f familyObservation) bool { return f.paused != "" })
}

// gone reports whether the node's blocks are only to cool down.
func (o *observation) gone() bool {
	return slices.ContainsFunc(o.families, func(f familyObservation) bool { return f.state.Gone })
}

// observe gathers what the caches know of a node.
func (r *NodeReconciler) observe(ctx context.Context, name string) (*observation, error) {
	o := &observation{name: name, blocks: r.Ledger.NodeBlocks(name), pods: r.Pods.On(name)}
	node := &corev1.Node{}
	switch err := r.Cache.Get(ctx, types.NamespacedName{Name: name}, node); {
	case err == nil:
		o.node = node
	case !apierrors.IsNotFound(err):
		return nil, fmt.Errorf("reading Node %s: %w", name, err)
	}
	cn := &ciliumv2.CiliumNode{}
	switch err := r.Cache.Get(ctx, types.NamespacedName{Name: name}, cn); {
	case err == nil:
		o.view = ciliumnode.NewView(cn)
	case !apierrors.IsNotFound(err):
		return nil, fmt.Errorf("reading CiliumNode %s: %w", name, err)
	}
	now := r.Clock.Now()
	o.settled, o.settles = r.Agents.Settled(name, now)
	for _, f := range ipalloc.Families() {
		if fo, any := r.observeFamily(o, f, now); any {
			o.families = append(o.families, fo)
		} else {
			r.Metrics.forget(name, f)
		}
	}
	return o, nil
}

// observeFamily reports false where the node has nothing to do with the family.
func (r *NodeReconciler) observeFamily(o *observation, f ipalloc.Family, now time.Time) (familyObservation, bool) {
	fo := familyObservation{family: f, policy: r.Defaults.Policy}
	if o.node != nil && !r.optedOut(o.node) {
		for _, pool := range r.Pools.Match(labels.Set(o.node.Labels)) {
			if _, serves := pool.Ranges(f); serves {
				fo.pools = append(fo.pools, pool)
			}
		}
	}
	fo.state = expand.State{Node: o.name, Family: f, AgentSettled: o.settled}
	for _, b := range o.blocks {
		if ipalloc.FamilyOf(b.CIDR.Addr()) == f {
			fo.state.Blocks = append(fo.state.Blocks, r.blockState(b, o.view))
		}
	}
	if len(fo.pools) == 0 {
		fo.policy.ReclaimDisabled = true // nobody says what the node needs
		if len(fo.state.Blocks) == 0 {
			return fo, false
		}
	} else {
		fo.policy = fo.pools[0].Policy
		fo.state.ReclaimBudget = r.Pacing.Budget(fo.ruling(), now)
	}
	fo.paused = r.pausedBecause(o.node, fo.pools)
	if o.view != nil {
		fo.state.Pool, fo.state.Used, fo.state.Release = o.view.Pool, o.view.Used, o.view.Release
		fo.state.Own, fo.state.Limits = o.view.InUse(), o.view.Limits
	}
	fo.state.Pods = o.pods
	return fo, true
}

// blockState is a block as expand sees it.
func (r *NodeReconciler) blockState(b crd.Block, view *ciliumnode.View) expand.Block {
	s := expand.Block{CIDR: b.CIDR, Phase: b.Phase, Reason: b.Reason}
	s.Listed = view != nil && view.Lists(b.CIDR)
	pool := r.Pools.Get(b.Pool)
	switch {
	case b.CIDR.Addr().BitLen()-b.CIDR.Bits() > maxBlockHostBits:
		// Too large to list. The block controller tells so.
	case pool != nil && !pool.Frozen():
		s.Usable = pool.Usable(b.CIDR)
	case view != nil:
		s.Usable = publishedIn(view, b.CIDR) // its pool says no more; keep what is there
	}
	switch {
	case b.Deleting:
		s.Request = expand.Deleted
	case pool == nil, pool.Deleting:
		s.Request = expand.PoolDeleted
	case pool.Drains(b.CIDR):
		s.Request = expand.CIDRDraining
	}
	if len(r.Ledger.Overlaps(b.CIDR)) > 0 {
		// What is published stays, and nothing is added beside it.
		s.Conflict, s.Usable = !s.Listed, nil
		if s.Listed {
			s.Usable = publishedIn(view, b.CIDR)
		}
	}
	if b.Phase == ipalloc.CoolingDown {
		s.RestUntil = b.Since.Add(r.cooldown(b, pool))
	}
	return s
}

func (r *NodeReconciler) cooldown(b crd.Block, pool *crd.Pool) time.Duration {
	switch {
	case pool == nil && b.Reason == expand.NodeGone:
		return r.Defaults.NodeGoneCooldown
	case pool == nil:
		return r.Defaults.Cooldown
	case b.Reason == expand.NodeGone:
		return pool.NodeGoneCooldown
	}
	return pool.Cooldown
}

func (r *NodeReconciler) pausedBecause(node *corev1.Node, pools []*crd.Pool) string {
	switch {
	case r.Paused:
		return "the operator is paused (--paused)"
	case node != nil && node.Annotations[v1alpha1.PausedAnnotation] == "true":
		return "the Node is paused (annotation " + v1alpha1.PausedAnnotation + ")"
	case len(pools) > 0 && pools[0].Paused:
		return "pool " + pools[0].Name + " is paused or invalid"
	}
	return ""
}

// optedOut reports whether the Node says that Cilium does not run on it.
func (r *NodeReconciler) optedOut(node *corev1.Node) bool {
	if node.Labels[v1alpha1.OptOutLabel] == "true" {
		return true
	}
	for _, taint := range node.Spec.Taints {
		if r.IgnoreTaints[taint.Key] {
			return true
		}
	}
	return false
}

func publishedIn(view *ciliumnode.View, cidr netip.Prefix) []netip.Addr {
	var out []netip.Addr
	for addr := range view.Pool {
		if cidr.Contains(addr) {
			out = append(out, addr)
		}
	}
	return sortedAddrs(out)
}

func sortedAddrs(addrs []netip.Addr) []netip.Addr {
	slices.SortFunc(addrs, netip.Addr.Compare)
	return addrs
}
