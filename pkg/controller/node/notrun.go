package node

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// keepPodAddresses keeps the addresses of pods out of the marks, requests and removals of a family
// that the node's agent does not run. An agent that runs it refuses the mark of an address in use,
// however late the watch of pods is. An agent that does not run it refuses no mark; but once
// restarted with the family, it takes up again the addresses that its pods had, and a pod with an
// address marked or gone by then loses its network, in both families (Cilium v1.20.1,
// daemon/cmd/endpoint_restore.go, allocateIPsLocked). So the statuses of pods are read live, and
// the mark of an address that one names is withdrawn. No address is marked while there is a pod
// that the watch has not shown, and that has no address in its status yet.
func (r *Reconciler) keepPodAddresses(ctx context.Context, o *observation, plans []familyPlan, done *outcome) error {
	leaves := func(p familyPlan) bool {
		return p.State.NotRun && (p.plan.Ask || len(p.plan.Mark)+len(p.plan.Remove) > 0)
	}
	if !slices.ContainsFunc(plans, leaves) {
		return nil
	}
	pods, err := r.podsOf(ctx, o.Name)
	if err != nil {
		for i := range plans {
			if p := &plans[i]; leaves(*p) {
				p.plan.Ask, p.plan.Mark, p.plan.Remove = false, nil, nil
			}
		}
		return err
	}
	used, unseen := state.UsedByPods(pods, o.Pods)
	for i := range plans {
		if leaves(plans[i]) && plans[i].keep(used, unseen) {
			r.pollFor(done, "the watch of pods lags")
			log.FromContext(ctx).V(1).Info("waiting for the watch of pods, which lags", "family", plans[i].Family)
		}
	}
	return nil
}

// podsOf reads the pods of a node live.
func (r *Reconciler) podsOf(ctx context.Context, node string) ([]corev1.Pod, error) {
	pods := &corev1.PodList{}
	if err := r.Live.List(ctx, pods, client.MatchingFields{"spec.nodeName": node}); err != nil {
		return nil, fmt.Errorf("reading the pods of node %s: %w", node, err)
	}
	return pods.Items, nil
}

// keep takes addresses in use out of the marks and removals, with unseen all addresses out of the
// marks, and withdraws marks of addresses in use. It reports whether there were any.
func (p *familyPlan) keep(used map[netip.Addr]bool, unseen bool) bool {
	inUse := func(addr netip.Addr) bool { return used[addr] }
	left, cleared := len(p.plan.Mark)+len(p.plan.Remove), len(p.plan.Clear)
	for addr := range p.State.Release {
		if inUse(addr) && !slices.Contains(p.plan.Clear, addr) {
			p.plan.Clear = append(p.plan.Clear, addr)
		}
	}
	p.plan.Mark = slices.DeleteFunc(p.plan.Mark, func(addr netip.Addr) bool { return unseen || inUse(addr) })
	p.plan.Remove = slices.DeleteFunc(p.plan.Remove, inUse)
	return len(p.plan.Mark)+len(p.plan.Remove) < left || len(p.plan.Clear) > cleared
}
