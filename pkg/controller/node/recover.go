package node

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/config"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/event"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// recoverAfterRestore gives a node back the blocks that its agent and its pods use, after a restore of etcd, once its agent
// has reported. Pauses of the node do not matter: other nodes must not claim these blocks.
func (r *Reconciler) recoverAfterRestore(ctx context.Context, o *observation, result *result) (*observation, error) {
	if !r.Cluster.Recovery.Active() || r.Cluster.Paused || o.Standing.Kind == state.OtherIPAM || r.Cluster.Recovery.HasRecovered(o.Name) {
		return o, nil
	}
	if o.CiliumNode == nil && o.AgentSeen { // it joined since the snapshot, and its agent makes none while it runs
		return r.ensureCiliumNode(ctx, o, result)
	}
	if o.CiliumNode == nil || !o.Settled {
		return o, nil
	}
	answer, err := r.probeAgain(ctx, o, result)
	if err != nil || answer == answerAsked {
		return nil, err
	}
	if answer == answerAwaited {
		return o, nil
	}
	made, err := r.remakeBlocks(ctx, o)
	if err != nil || made {
		return nil, err
	}
	r.Cluster.Recovery.Recovered(o.Name)
	return o, nil
}

// remakeBlocks creates the blocks of the addresses in use that no block has, and reports whether there were any.
func (r *Reconciler) remakeBlocks(ctx context.Context, o *observation) (bool, error) {
	var made []netip.Prefix
	for _, used := range r.usedOutsideBlocks(o) {
		if slices.ContainsFunc(made, func(p netip.Prefix) bool { return p.Contains(used.addr) }) {
			continue
		}
		cidr, err := r.remake(ctx, o, used)
		if err != nil {
			return false, err
		}
		if cidr.IsValid() {
			made = append(made, cidr)
		}
	}
	return len(made) > 0, nil
}

// remake creates the block of an address in use. It returns the zero Prefix if there is none to create.
func (r *Reconciler) remake(ctx context.Context, o *observation, used usedAddress) (netip.Prefix, error) {
	cidr, pool := r.blockOfUse(o, used)
	if pool == nil {
		return netip.Prefix{}, nil
	}
	b, err := r.Blocks.create(ctx, cidr, pool, o.Node)
	if apierrors.IsAlreadyExists(err) { // another node's, as check reports; or its own, whose create had no answer
		_, _, err := r.Blocks.claimedBefore(ctx, o.Name, cidr, pool)
		return netip.Prefix{}, err
	}
	if err != nil {
		return netip.Prefix{}, err
	}
	logHolder(ctx, config.BlockClaimed, b, event.ReasonBlockRemade)
	r.Events.Send(&v1alpha1.PodIPBlock{ObjectMeta: metav1.ObjectMeta{Name: b.Name, UID: b.UID}}, event.ReasonBlockRemade, event.Reconcile,
		fmt.Sprintf("node %s uses %s of pool %s, which had no PodIPBlock after a restore; created it", o.Name, used.addr, pool.Name))
	return cidr, nil
}

// answer is the state of an agent's report after a restore.
type answer int

const (
	answerAwaited answer = iota
	// answerAsked: the CiliumNode was written.
	answerAsked
	answerGiven
)

// probeAgain makes the agent report all addresses it uses, since this process leads: a node agent takes the mark away with
// its report, Cilium's agent answers it. A Cilium agent that is assigned whole blocks reports by itself: in multi-pool mode it
// lists the CIDRs that it uses again, and in kubernetes mode it keeps one block.
func (r *Reconciler) probeAgain(ctx context.Context, o *observation, result *result) (answer, error) {
	assignment := o.CiliumNode.BlockAssignment
	if assignment != nil && !assignment.NodeAgent {
		rewritten := r.Cluster.Recovery.Rewritten()
		if assignment.SingleBlock || !r.Clock.Now().Before(rewritten) {
			return answerGiven, nil
		}
		result.next.noLaterThan(rewritten, "agents correct their CiliumNodes")
		return answerAwaited, nil
	}
	family := ipalloc.IPv4
	if len(o.Shares) > 0 {
		family = o.Shares[0].Family
	}
	mark := []netip.Addr{expand.ProbeAddress(family, o.CiliumNode.Published())}
	entry, ok := o.CiliumNode.Release[mark[0]]
	wasAsked := r.Cluster.Recovery.Probed(o.Name)
	marked := ok && entry == expand.Marked
	if wasAsked && !marked {
		return answerGiven, nil
	}
	view := o.CiliumNode
	if !wasAsked && assignment == nil && len(view.Published()) == 0 {
		opened, err := r.CiliumNodes.CreatePoolField(ctx, view)
		if view, err = r.wroteCiliumNode(o, "publish", opened, err); err != nil {
			return answerAsked, err
		}
	}
	if marked {
		r.Cluster.Recovery.NoteProbe(o.Name)
		return answerAwaited, nil
	}
	change := ciliumnode.ReleaseChange{Mark: mark}
	if ok { // an answer from before
		change = ciliumnode.ReleaseChange{Clear: mark}
	}
	_, err := r.writeEntries(ctx, o, view, change)
	return answerAsked, err
}

// usedAddress is an address in use, and the Cilium pool that it is of.
type usedAddress struct {
	addr       netip.Addr
	ciliumPool string
	// reported: its agent reports it. It may have been assigned before its pod chose another pool.
	reported bool
}

// usedOutsideBlocks returns the addresses in no block that the agent's report or pods' statuses name, sorted.
func (r *Reconciler) usedOutsideBlocks(o *observation) []usedAddress {
	known := map[netip.Addr]usedAddress{}
	for _, pod := range o.Pods {
		for _, addr := range pod.IPs {
			known[addr] = usedAddress{addr: addr, ciliumPool: o.PoolChoices.Of(pod.Name, ipalloc.FamilyOf(addr)).Pool}
		}
	}
	if assignment := o.CiliumNode.BlockAssignment; assignment == nil || assignment.NodeAgent {
		for addr := range o.CiliumNode.Used {
			known[addr] = usedAddress{addr: addr, reported: true}
		}
	}
	var out []usedAddress
	for _, addr := range slices.SortedFunc(maps.Keys(known), netip.Addr.Compare) {
		if len(r.Cluster.Ledger.HeldIn(netip.PrefixFrom(addr, addr.BitLen()))) == 0 {
			out = append(out, known[addr])
		}
	}
	return out
}

// blockOfUse returns the block with an address in use, and its pool; nil: no pool of the node has it on its grid.
func (r *Reconciler) blockOfUse(o *observation, used usedAddress) (netip.Prefix, *crd.Pool) {
	for _, pool := range r.Cluster.Pools.Match(o.Node.Labels) {
		ranges, ok := pool.Ranges(ipalloc.FamilyOf(used.addr))
		if !ok || r.Cluster.Defaults.CiliumPools && !used.reported && pool.CiliumPool != used.ciliumPool {
			continue
		}
		if cidr := netip.PrefixFrom(used.addr, ranges.Bits).Masked(); pool.OnGrid(cidr) {
			return cidr, pool
		}
	}
	return netip.Prefix{}, nil
}
