package node

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/event"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/pkg/suggest"
)

// probeAddress is marked for release to request a fresh report from the agent. It is of a
// family that the node has and that is not paused, so that the entry is cleared again.
func (o *observation) probeAddress(live *ciliumnode.View) netip.Addr {
	i := slices.IndexFunc(o.Shares, func(share state.Share) bool { return share.Standing.MayChange() })
	if i >= 0 {
		return expand.ProbeAddress(o.Shares[i].Family, live.Published())
	}
	return expand.ProbeAddress(ipalloc.IPv4, live.Published())
}

// ensureCiliumNode creates the CiliumNode of a Node that a pool serves, before its
// agent does, or restores one that was deleted under a running agent, which would not
// recreate it.
func (r *Reconciler) ensureCiliumNode(ctx context.Context, o *observation, result *result) (*observation, error) {
	if o.Standing.Kind == state.OptedOut { // then Cilium no longer runs there
		live, err := r.CiliumNodes.Live(ctx, o.Name)
		if err != nil || live != nil {
			return o, err
		}
		return o.withGone(), nil
	}
	if last := r.Cluster.Ledger.LastCiliumNode(o.Name); last != nil && last.OwnedBy(o.Node) {
		return r.recreate(ctx, o, last, result)
	}
	written, err := r.CiliumNodes.Create(ctx, o.Node)
	if _, err := r.wroteCiliumNode(o, "create", written, err); err != nil || len(o.Blocks) == 0 {
		return nil, err
	}
	// Otherwise the CiliumNode went with the Node, or was never there, as where people made the
	// blocks first: it was not deleted under a running agent.
	if o.AgentSeen && !slices.ContainsFunc(o.Blocks, state.CoolsAsNodeGone) {
		r.Events.Send(o.Node, event.ReasonCiliumNodeRemade, event.Reconcile,
			"the CiliumNode was missing and its last state is not known; recreated it with the node's blocks and addresses. Restart the cilium agent on this node, so that it adds the rest")
	}
	return nil, r.probeAgent(ctx, o)
}

// recreate restores a deleted CiliumNode with the addresses of the blocks that the node
// still holds, and requests a report from its agent.
func (r *Reconciler) recreate(ctx context.Context, o *observation, last *ciliumnode.View, result *result) (*observation, error) {
	if err := checkNode(ctx, r.Live, o.Node); err != nil {
		return nil, err
	}
	// Their claims come before their addresses.
	if restored, err := r.restoreOrphanedBlocks(ctx, o, last, result); err != nil || restored {
		return nil, err
	}
	// Do not restore as foreign content CIDRs that another node holds by now, nor a block of this
	// node that the watch delivered late.
	if err := r.Blocks.readOverlapping(ctx, ipalloc.Uncovered(last.PodRanges(), crd.CIDRs(o.Blocks))); err != nil {
		return nil, err
	}
	excluded := append(crd.CIDRs(o.Blocks), crd.CIDRs(r.Cluster.Ledger.NodeBlocks(o.Name))...)
	excluded = append(excluded, r.Cluster.Ledger.HeldElsewhere(o.Name, last.PodRanges())...)
	written, err := r.CiliumNodes.Recreate(ctx, last, o.Node, excluded)
	if written, err = r.wroteCiliumNode(o, "create", written, err); err != nil {
		return nil, err
	}
	o = o.with(func(s *state.Snapshot) { s.CiliumNode = written })
	if len(last.Used) > 0 {
		r.Cluster.Ledger.MarkRestored(o.Name, written.UID)
	}
	// Reported at once: if the agent writes to the CiliumNode before its addresses are
	// published, the next reconcile treats it like any other.
	r.Events.Send(o.Node, event.ReasonCiliumNodeRestored, event.Reconcile,
		"the CiliumNode was deleted under a living Node; put it back as it was, with the same blocks")
	log.FromContext(ctx).Info("put back the deleted CiliumNode", "blocks", len(o.Blocks))
	change := ciliumnode.Change{}
	for _, b := range o.Blocks {
		ciliumPool := r.Cluster.CiliumPoolOf(b, last)
		view := last.Of(ciliumPool)
		if !view.ListsForDefaultPool(b.CIDR) && len(r.Cluster.Ledger.Overlaps(b.CIDR)) > 0 {
			continue // addresses published earlier stay, and no others of this block are added
		}
		change.Add(b.CIDR, ciliumPool)
		unchanged, err := r.Blocks.verifyUnchanged(ctx, b)
		if err != nil {
			return nil, err
		}
		if unchanged && b.Phase != ipalloc.CoolingDown {
			change.Restore(view, b.CIDR)
		}
	}
	if err := r.apply(ctx, o, written, change, result); err != nil {
		return nil, err
	}
	return nil, r.probeAgent(ctx, o)
}

// checkNode fails unless a live read shows a Node as observed. While the watch lags, the
// garbage collector deletes the CiliumNode of a deleted Node, and would do so again and
// again.
func checkNode(ctx context.Context, reader client.Reader, node *corev1.Node) error {
	live := &corev1.Node{}
	err := reader.Get(ctx, types.NamespacedName{Name: node.Name}, live)
	if apierrors.IsNotFound(err) || err == nil && live.UID != node.UID {
		return fmt.Errorf("%w: Node %s is gone", errCacheBehind, node.Name)
	}
	if err != nil {
		return fmt.Errorf("reading Node %s: %w", node.Name, err)
	}
	return nil
}

// ensureProbe requests a report from a running agent that has not reported the
// addresses it uses: its CiliumNode was recreated while it ran, by the agent or by a
// process that did not request the report. It asks once per CiliumNode, as an agent
// that does not answer is broken. An agent in another mode would not answer.
func (r *Reconciler) ensureProbe(ctx context.Context, o *observation, result *result) (*observation, error) {
	if err := r.probeAgent(ctx, o); err != nil {
		return o, result.record(err)
	}
	o.memory.probed = o.CiliumNode.UID
	return nil, nil
}

// readRuns reads the CIDRs that the agent runs with if the Node names no podCIDR of a family:
// people may have deleted the Node under the agent, and made it again. A Node without blocks is
// new.
func (r *Reconciler) readRuns(ctx context.Context, o *observation, _ *result) (*observation, error) {
	runs, err := r.CiliumNodes.RunsWith(ctx, o.Name)
	if err != nil {
		return nil, err
	}
	return o.with(func(s *state.Snapshot) {
		for i := range s.Shares {
			if f := &s.Shares[i]; lacksAssigned(*f) {
				assignment := *f.State.BlockAssignment
				assignment.ActiveCIDRs = slices.DeleteFunc(slices.Clone(runs), func(p netip.Prefix) bool { return ipalloc.FamilyOf(p.Addr()) != f.Family })
				f.State.BlockAssignment = &assignment
			}
		}
	}), nil
}

// probeAgent makes the agent report all addresses it uses.
func (r *Reconciler) probeAgent(ctx context.Context, o *observation) error {
	live, err := r.CiliumNodes.Live(ctx, o.Name)
	if err != nil || live == nil || live.BlockAssignment != nil { // that agent reports unasked
		return err
	}
	_, err = r.writeEntries(ctx, o, live, ciliumnode.ReleaseChange{Mark: []netip.Addr{o.probeAddress(live)}})
	return err
}

// nodeGone handles a Node that a live read shows to be gone: it deletes the CiliumNode
// and cools down the blocks, as the machine may still be running.
func (r *Reconciler) nodeGone(ctx context.Context, o *observation, result *result) (*observation, error) {
	if r.Cluster.Paused || r.Cluster.Recovery.Active() || len(o.Blocks) == 0 {
		if o.CiliumNode == nil && len(o.Blocks) == 0 {
			r.forget(o.Name)
		}
		return o.with(func(s *state.Snapshot) { s.Shares = nil }), nil
	}
	// The CiliumNode first: if a new Node's agent takes it over after this, its version
	// changes and the deletion conflicts.
	live, err := r.CiliumNodes.Live(ctx, o.Name)
	if err != nil {
		return nil, err
	}
	err = r.Live.Get(ctx, types.NamespacedName{Name: o.Name}, &corev1.Node{})
	if err == nil {
		return nil, fmt.Errorf("%w: Node %s is there", errStale, o.Name)
	}
	if !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("reading Node %s: %w", o.Name, err)
	}
	if live != nil && len(live.Keepers) > 0 {
		result.failed = fmt.Errorf("%w: its blocks return once its CiliumNode, which was deleted, is gone: see to its finalizers (%s)", errStale, suggest.Few(live.Keepers))
		return o.with(func(s *state.Snapshot) { s.Shares = nil }), nil
	}
	if live != nil {
		return nil, r.Counters.CountWrite("CiliumNode", o.Name, "delete", r.CiliumNodes.Delete(ctx, live))
	}
	return o.withGone().with(func(s *state.Snapshot) {
		s.CiliumNode = nil
		for i := range s.Shares {
			s.Shares[i].Standing.Pause = ""
		}
	}), nil
}

// keepPodAddresses keeps the addresses of pods out of the marks, requests and removals of a family
// that the node's agent does not run. An agent that runs it refuses the mark of an address in use,
// however late the watch of pods is. An agent that does not run it refuses no mark; but once
// restarted with the family, it takes up again the addresses that its pods had, and a pod with an
// address marked or gone by then loses its network, in both families (Cilium v1.20.1,
// daemon/cmd/endpoint_restore.go, allocateIPsLocked). So the statuses of pods are read live, and
// the mark of an address that one names is withdrawn. No address is marked while there is a pod
// that the watch has not shown, and that has no address in its status yet.
func keepPodAddresses(ctx context.Context, live client.Reader, o *observation, decisions []decision, result *result) ([]decision, error) {
	releases := func(d decision) bool {
		return d.State.FamilyDisabled && (d.plan.Probe || len(d.plan.Mark)+len(d.plan.Remove) > 0)
	}
	if !slices.ContainsFunc(decisions, releases) {
		return decisions, nil
	}
	corrected := slices.Clone(decisions)
	pods, err := podsOf(ctx, live, o.Name)
	if err != nil {
		for i := range corrected {
			if releases(corrected[i]) {
				corrected[i].plan.Probe = false
				corrected[i].plan.Mark = nil
				corrected[i].plan.Remove = nil
			}
		}
		return corrected, err
	}
	used, unseen := state.UsedByPods(pods, o.Pods)
	for i, d := range decisions {
		if !releases(d) {
			continue
		}
		plan, differs := keepUsed(d, used, unseen)
		corrected[i].plan = plan
		if differs {
			result.pollFor = "the watch of pods lags"
			log.FromContext(ctx).V(1).Info("waiting for the watch of pods, which lags", "family", d.Family)
		}
	}
	return corrected, nil
}

// keepUsed returns the plan of a decision with addresses in use out of the marks and removals, with unseen all
// addresses out of the marks, and with marks of addresses in use withdrawn. It reports whether there were any.
func keepUsed(d decision, used map[netip.Addr]bool, unseen bool) (plan expand.Plan, differs bool) {
	inUse := func(addr netip.Addr) bool { return used[addr] }
	plan = d.plan
	plan.Clear = slices.Clone(plan.Clear)
	for addr := range d.State.Release {
		if inUse(addr) && !slices.Contains(plan.Clear, addr) {
			plan.Clear = append(plan.Clear, addr)
		}
	}
	plan.Mark = slices.DeleteFunc(slices.Clone(plan.Mark), func(addr netip.Addr) bool { return unseen || inUse(addr) })
	plan.Remove = slices.DeleteFunc(slices.Clone(plan.Remove), inUse)
	differs = len(plan.Mark)+len(plan.Remove) < len(d.plan.Mark)+len(d.plan.Remove) || len(plan.Clear) > len(d.plan.Clear)
	return plan, differs
}
