package controller

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// OtherIPAM is why nothing is done for a node that another IPAM serves.
const OtherIPAM = "another IPAM gives addresses to its pods: kubectl cilium-pool migrate plan"

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
	// elsewhere: another IPAM serves the node's pods. adopting: it did, its blocks
	// are ours now, and the agent has yet to report that it runs in crd mode.
	elsewhere, adopting bool
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
	o := &observation{name: name, view: r.Ledger.Node(name), blocks: r.Ledger.NodeBlocks(name), pods: r.Pods.On(name)}
	node := &corev1.Node{}
	switch err := r.Cache.Get(ctx, types.NamespacedName{Name: name}, node); {
	case err == nil:
		o.node = node
	case !apierrors.IsNotFound(err):
		return nil, fmt.Errorf("reading Node %s: %w", name, err)
	}
	if o.view != nil && len(o.view.Used) == 0 {
		o.elsewhere = len(o.view.Unadopted(crd.CIDRs(o.blocks))) > 0
		o.adopting = slices.ContainsFunc(o.blocks, func(b crd.Block) bool {
			return b.AdoptedFrom != "" && b.Phase == ipalloc.InService
		})
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
	fo := familyObservation{family: f}
	fo.pools, fo.policy, fo.paused = r.Policy(o.node, f)
	if o.elsewhere && fo.paused == "" {
		fo.paused = OtherIPAM
	}
	fo.state = r.State(expand.State{Node: o.name, Family: f, Pods: o.pods, AgentSettled: o.settled}, o.view, o.blocks)
	r.pace(o, &fo, now)
	return fo, len(fo.pools)+len(fo.state.Blocks) > 0
}
