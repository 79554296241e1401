package controller

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// OtherIPAM is why nothing is done for a node that another IPAM serves.
const OtherIPAM = "another IPAM gives addresses to its pods: kubectl cilium-pool migrate plan"

// observation is all that is known of one node when a decision is made.
type observation struct {
	name         string
	node         *corev1.Node     // nil: no such Node
	view         *ciliumnode.View // nil: no such CiliumNode
	blocks       []crd.Block
	pods         []expand.Pod
	poolRequests state.PoolRequests
	families     []familyObservation
	settled      bool
	settles      time.Time // when the agent will have settled; zero: not foreseeable
	withheld     bool      // something waits for others, and nothing will say when they are done
	// elsewhere: another IPAM serves the node's pods. adopting: it did, its blocks
	// are ours now, and the agent has yet to report that it runs in crd mode.
	elsewhere, adopting bool
	// awaits is why the node does not get its first block yet; "": it may.
	awaits string
}

// familyObservation is what one family of a node is decided on.
type familyObservation struct {
	family ipalloc.Family
	// ciliumPool is the pool of Cilium's it is about; "": the default one.
	ciliumPool string
	pools      []*crd.Pool // to claim from, best first; the first rules the node
	policy     expand.Policy
	paused     string // why nothing may change; "": it may
	state      expand.State
}

// ruling is the pool whose policy holds, or "".
func (f *familyObservation) ruling() string {
	if len(f.pools) == 0 {
		return ""
	}
	return f.pools[0].Name
}

// key tells what is remembered of it from what is of the node's other pools of
// Cilium's.
func (f *familyObservation) key(node string) string { return shareKey(node, f.ciliumPool) }

// shareKey is the node's name for the default pool. No node has a slash in it.
func shareKey(node, ciliumPool string) string {
	if ciliumPool == "" {
		return node
	}
	return node + "/" + ciliumPool
}

// ofNode reports whether a key is a node's, for whichever pool.
func ofNode(key, node string) bool { return key == node || strings.HasPrefix(key, node+"/") }

// paused reports whether nothing may change on the node. The pause of one family, or
// of what serves one of Cilium's pools, stops that alone.
func (o *observation) paused() bool {
	return len(o.families) > 0 && !slices.ContainsFunc(o.families, func(f familyObservation) bool { return f.paused == "" })
}

// pausedFor reports whether nothing may change of what a CIDR is of: its family, for
// a pool of Cilium's.
func (o *observation) pausedFor(cidr netip.Prefix, ciliumPool string) bool {
	return slices.ContainsFunc(o.families, func(f familyObservation) bool {
		return f.paused != "" && f.family == ipalloc.FamilyOf(cidr.Addr()) && f.ciliumPool == ciliumPool
	})
}

// gone reports whether the node's blocks are only to cool down.
func (o *observation) gone() bool {
	return slices.ContainsFunc(o.families, func(f familyObservation) bool { return f.state.Gone })
}

// observe gathers what the caches know of a node.
func (r *NodeReconciler) observe(ctx context.Context, name string) (*observation, error) {
	o := &observation{name: name, view: r.Ledger.CiliumNode(name), blocks: r.Ledger.NodeBlocks(name), pods: r.Pods.On(name)}
	node := &corev1.Node{}
	switch err := r.Cache.Get(ctx, types.NamespacedName{Name: name}, node); {
	case err == nil:
		o.node = node
	case !apierrors.IsNotFound(err):
		return nil, fmt.Errorf("reading Node %s: %w", name, err)
	}
	if o.view != nil && len(o.view.Used) == 0 && !r.wasPutBack(o.view) {
		o.elsewhere = len(o.view.Unadopted(crd.CIDRs(o.blocks))) > 0
		o.adopting = slices.ContainsFunc(o.blocks, func(b crd.Block) bool {
			return b.AdoptedFrom != "" && b.Phase == ipalloc.InService
		})
	}
	if r.Defaults.CiliumPools {
		o.poolRequests = r.Pods.PoolRequests(name, r.CiliumPools.Picking())
	}
	o.awaits = r.awaitsLabels(o)
	now := r.Clock.Now()
	o.settled, o.settles = r.Agents.Settled(name, now)
	for _, f := range ipalloc.Families() {
		known := false
		for _, ciliumPool := range r.CiliumPoolsOf(o.node, f, o.view, o.blocks) {
			if fo, any := r.observeFamily(o, f, ciliumPool, now); any {
				o.families, known = append(o.families, fo), true
			}
		}
		if !known {
			r.Metrics.forget(name, f)
		}
	}
	return o, nil
}

// observeFamily reports false where the node has nothing to do with the family,
// for one pool of Cilium's.
func (r *NodeReconciler) observeFamily(o *observation, f ipalloc.Family, ciliumPool string, now time.Time) (familyObservation, bool) {
	fo := familyObservation{family: f, ciliumPool: ciliumPool}
	fo.pools, fo.policy, fo.paused = r.Policy(o.node, f, ciliumPool)
	if o.elsewhere && fo.paused == "" {
		fo.paused = OtherIPAM
	}
	if o.awaits != "" && fo.paused == "" {
		fo.paused = o.awaits
	}
	pods := r.PodsFor(o.pods, o.poolRequests, f, ciliumPool, o.view)
	fo.state = r.State(expand.State{Node: o.name, Family: f, Pods: pods, MaxPods: state.MaxPods(o.node), AgentSettled: o.settled}, ciliumPool, o.view, o.blocks)
	r.observeNotRun(o, &fo, now)
	r.replaceFirst(o, &fo)
	r.pace(o, &fo, now)
	return fo, len(fo.pools)+len(fo.state.Blocks) > 0
}
