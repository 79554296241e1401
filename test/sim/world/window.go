package world

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"

	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// An agent that starts does not restore a pod with an address that is marked for release: the
// window of the agents' protocol (docs/reliability.md). Two guards keep it narrow, and each is
// checked here: no address is marked while a pod is awaited, and marks are withdrawn when the agent
// restarts. Pods that are lost nevertheless are counted in Counts.Lost, for which a search has a
// budget.

// awaited returns the pods of a node with an address of a family that an operator cannot know yet:
// they arrived within the AckTimeout, and neither their status nor the agent's report names the
// address.
func (o *Operator) awaited(node string, f ipalloc.Family) []string {
	view := o.parts.Node.Ledger.CiliumNode(node)
	if view == nil {
		return nil
	}
	owned := map[string]bool{}
	for _, owners := range []map[netip.Addr]string{view.Used, view.Pool} {
		for addr, owner := range owners {
			if ipalloc.FamilyOf(addr) == f {
				owned[strings.TrimSuffix(owner, " [restored]")] = true
			}
		}
	}
	var out []string
	for _, pod := range o.parts.Node.Pods.On(node) {
		known := owned[pod.Name] || view.FamilyDisabled(f) && len(pod.IPs) > 0 || slices.ContainsFunc(pod.IPs, func(addr netip.Addr) bool { return ipalloc.FamilyOf(addr) == f })
		if !known && (processClock{o}).Now().Before(pod.Seen.Add(o.settings.Defaults.Policy.AckTimeout)) {
			out = append(out, pod.Name)
		}
	}
	return out
}

// knowWindow records, as a reconcile begins, the operator's knowledge for its guards.
func (f *flight) knowWindow(o *Operator) {
	f.awaited = [2][]string{ipalloc.IPv4: o.awaited(f.name, ipalloc.IPv4), ipalloc.IPv6: o.awaited(f.name, ipalloc.IPv6)}
	view := o.parts.Node.Ledger.CiliumNode(f.name)
	if view == nil || f.settled {
		return
	}
	for addr, state := range view.Release {
		if _, published := view.Pool[addr]; published && state == expand.Marked && o.drains(f.name, addr) {
			f.marked = append(f.marked, addr)
		}
	}
	slices.SortFunc(f.marked, netip.Addr.Compare)
}

// drains reports whether, as an operator knows, an address lies in a draining block of a node.
func (o *Operator) drains(node string, addr netip.Addr) bool {
	for _, b := range o.parts.Node.Ledger.NodeBlocks(node) {
		if b.CIDR.Contains(addr) {
			return b.Phase == ipalloc.Draining
		}
	}
	return false
}

// stillAwaited returns the pods of a family that a reconcile knew to be awaited when it began,
// and that still are.
func (f *flight) stillAwaited(o *Operator, family ipalloc.Family) []string {
	if len(f.awaited[family]) == 0 {
		return nil
	}
	now := o.awaited(f.name, family)
	return slices.DeleteFunc(slices.Clone(f.awaited[family]), func(pod string) bool { return !slices.Contains(now, pod) })
}

// leaveMarks records the marks left by a reconcile that ended without a call although it knew of
// them and of the agent's restart. Paused operators and pools, nodes that another IPAM serves, and
// nodes that no pool may serve keep their marks.
func (o *Operator) leaveMarks(f *flight) {
	if f.err != nil || f.called || o.settings.Shadow || o.w.cfg.Move != nil || o.w.cfg.Labels != nil || o.w.everPaused() {
		return
	}
	for _, addr := range f.marked {
		o.w.rules.left[addr] = f.name
	}
}

// dropLeft forgets marks that are gone.
func (r *writeRules) dropLeft(v Version) {
	now, _ := v.New.(*ciliumv2.CiliumNode)
	maps.DeleteFunc(r.left, func(addr netip.Addr, node string) bool { return node == v.Key && !isMarked(now, addr.String()) })
}

func isMarked(cn *ciliumv2.CiliumNode, key string) bool {
	return cn != nil && expand.ReleaseStatus(cn.Status.IPAM.ReleaseIPs[key]) == expand.Marked
}
