package node

import (
	"context"
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// observation is everything known of one node when a decision is made. It is not changed once it is
// made: the effect of a write is observed anew.
type observation struct {
	*state.Snapshot
	// memory is this process's memory of the node. It outlives the observation, and changes.
	memory *nodeMemory
	// replacing are the pools with blocks that would replace the node's first ones.
	replacing [2][]*crd.Pool
}

// with returns a copy of the observation with a change. Its shares are copies too.
func (o *observation) with(change func(*state.Snapshot)) *observation {
	s := *o.Snapshot
	s.Shares = slices.Clone(s.Shares)
	change(&s)
	return &observation{Snapshot: &s, memory: o.memory, replacing: o.replacing}
}

// withGone returns the observation of a node with only blocks left, to cool down.
func (o *observation) withGone() *observation {
	return o.with(func(s *state.Snapshot) {
		s.Standing.Kind = state.Gone
		for i := range s.Shares {
			s.Shares[i].Standing.Kind = state.Gone
			s.Shares[i].State.Gone = true
		}
	})
}

// unchangeable reports whether the node must not change: it is paused, another IPAM serves it, or it waits for labels. A pause of one family, or of the pools that
// serve one Cilium pool, affects only that share.
func (o *observation) unchangeable() bool {
	return len(o.Shares) > 0 && !slices.ContainsFunc(o.Shares, func(share state.Share) bool { return share.Standing.MayChange() })
}

// unchangeableFor reports whether the share a CIDR belongs to must not change: its family, for a Cilium
// pool.
func (o *observation) unchangeableFor(cidr netip.Prefix, ciliumPool string) bool {
	return slices.ContainsFunc(o.Shares, func(share state.Share) bool {
		return !share.Standing.MayChange() && share.Family == ipalloc.FamilyOf(cidr.Addr()) && share.CiliumPool == ciliumPool
	})
}

// block returns a block of the node, as observed.
func (o *observation) block(cidr netip.Prefix) (crd.Block, error) {
	i := slices.IndexFunc(o.Blocks, func(b crd.Block) bool { return b.CIDR == cidr })
	if i < 0 {
		return crd.Block{}, fmt.Errorf("%w: block %s is not known", errStale, cidr)
	}
	return o.Blocks[i], nil
}

// observe collects the caches' objects of a node.
func (r *Reconciler) observe(ctx context.Context, name string) (*observation, error) {
	node := &corev1.Node{}
	if err := r.Cache.Get(ctx, types.NamespacedName{Name: name}, node); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading Node %s: %w", name, err)
	} else if err != nil {
		node = nil
	}
	o := &observation{Snapshot: r.Cluster.Snapshot(name, node, r.Clock.Now()), memory: r.memories.of(name)}
	if o.Standing.Kind == state.AwaitsLabels {
		isOver, err := r.endsWait(ctx, o)
		if err != nil {
			return nil, err
		}
		if isOver {
			o.Snapshot = r.Cluster.SnapshotWithFinalLabels(name, node, r.Clock.Now())
		}
	}
	for i := range o.Shares {
		o.setUnwritable(&o.Shares[i], r.Clock.Now())
		if o.mayMoveFirstBlocks(&o.Shares[i]) {
			o.requestMoveOfFirstBlocks(&r.Cluster, &o.Shares[i])
		}
	}
	return o, nil
}

// endsWait reports whether one of the node's pods ends its wait for its labels. It reads the pods once for
// each change of the taints and of the pods without an address: the watch leaves out pods'
// tolerations.
func (r *Reconciler) endsWait(ctx context.Context, o *observation) (bool, error) {
	question := fnv.New64a()
	waiting := false
	for i := range o.Node.Spec.Taints {
		fmt.Fprintln(question, o.Node.Spec.Taints[i].ToString())
	}
	for _, p := range o.Pods {
		if len(p.IPs) == 0 {
			fmt.Fprintln(question, p.Name, p.Seen.UnixNano())
			waiting = true
		}
	}
	if !waiting {
		return false, nil
	}
	answer := &o.memory.wait
	if answer.question != question.Sum64() {
		pods, err := podsOf(ctx, r.Live, o.Name)
		if err != nil {
			return false, err
		}
		answer.question = question.Sum64()
		answer.isOver = r.Cluster.EndsWait(o.Node, pods)
	}
	return answer.isOver, nil
}

// podsOf reads the pods of a node live.
func podsOf(ctx context.Context, live client.Reader, node string) ([]corev1.Pod, error) {
	pods := &corev1.PodList{}
	if err := live.List(ctx, pods, client.MatchingFields{"spec.nodeName": node}); err != nil {
		return nil, fmt.Errorf("reading the pods of node %s: %w", node, err)
	}
	return pods.Items, nil
}

// mayMoveFirstBlocks reports whether blocks of a family of the node may move to another pool at all.
func (o *observation) mayMoveFirstBlocks(share *state.Share) bool {
	return o.CiliumNode != nil && share.State.BlockAssignment == nil && share.Standing.MayChange() && len(share.Pools) > 0 && o.Node != nil
}

// requestMoveOfFirstBlocks requests the replacement of the first blocks of a node that late labels
// moved to another pool, while none of their addresses is in use: before an agent has
// read them. The node gets a block of the new pool first, and the old ones leave by the
// handshake: their addresses are marked before the agent starts, which then avoids
// them. If the agent was faster, its own address shows that, and the block stays.
func (o *observation) requestMoveOfFirstBlocks(c *state.Cluster, share *state.Share) {
	s := &share.State
	s.Fresh = o.CiliumNode.NeverReadByAgent() && !c.Agents.Runs(o.Name)
	for i := range s.Blocks {
		b := &s.Blocks[i]
		j := slices.IndexFunc(o.Blocks, func(k crd.Block) bool { return k.CIDR == b.CIDR })
		if !isUndecided(b) || o.Blocks[j].Pool == share.Ruling() || s.Uses(b.CIDR) {
			continue
		}
		leaves := b.Phase == ipalloc.Draining && b.Reason == expand.PoolChanged && s.FirstBlockMayLeave(b.CIDR)
		if leaves || b.Phase == ipalloc.InService && s.Fresh && o.memory.first.has(o.CiliumNode, o.Blocks[j].UID) && o.findReplacement(c, share) {
			b.Request = expand.PoolChanged
			b.Delay = expand.Obstacle{}
		}
	}
}

// isUndecided reports whether nothing else keeps a block, or takes it from its node.
func isUndecided(b *expand.Block) bool {
	if b.Conflict || b.IsKept() {
		return false
	}
	return b.Request == expand.None || b.Request == expand.NodeUnselected || state.MayWait(b)
}

// findReplacement reports whether the pool that rules a node has a block for it, or has
// assigned it one. Otherwise it has the node wait for one.
func (o *observation) findReplacement(c *state.Cluster, share *state.Share) bool {
	if slices.ContainsFunc(o.Blocks, func(b crd.Block) bool {
		return b.Pool == share.Ruling() && b.Phase == ipalloc.InService && ipalloc.FamilyOf(b.CIDR.Addr()) == share.Family
	}) {
		return true
	}
	cut, ok := share.Pools[0].Cut(share.Family)
	if ok && c.Ledger.Free(cut) > 0 {
		return true
	}
	o.replacing[share.Family] = append(o.replacing[share.Family], share.Pools[0])
	return false
}
