package world

import (
	"net/netip"
	"slices"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// look records that a reconcile has read a block live.
func (f *flight) look(o *Operator, name string) {
	live, ok := o.w.api.Get(KindBlock, name).(*v1alpha1.PodIPBlock)
	if !ok {
		return
	}
	cidr, err := netip.ParsePrefix(live.Spec.CIDR)
	if err != nil {
		return
	}
	f.others = deleted(f.others, name) // it may decide anew
	if f.found == name {               // what it claims is what it finds, not what it knew
		f.found = ""
		return
	}
	if known, held := o.parts.Node.Ledger.Block(cidr); held && known.UID != live.UID {
		f.others = append(f.others, name)
	}
	f.changed = slices.DeleteFunc(f.changed, func(p netip.Prefix) bool { return p == cidr })
	if is, err := crd.BlockFrom(live); err == nil && !f.unshown(cidr) && f.knew[cidr].Phase != is.Phase {
		f.changed = append(f.changed, cidr)
	}
}

// unshown reports whether a block was unknown when the write in progress was decided, or not in
// the phase in which it was found.
func (f *flight) unshown(cidr netip.Prefix) bool {
	_, known := f.knew[cidr]
	return !known || slices.Contains(f.changed, cidr)
}

// holdMarks checks that no address is marked that the operator knew to be in use, while it knew
// the agent to have just started, or while it awaited a pod. Anything that no agent has read
// may be marked.
func (w *World) holdMarks(node string, old, now *ciliumv2.CiliumNode) {
	o := w.writer
	for key, state := range now.Status.IPAM.ReleaseIPs {
		addr, err := netip.ParseAddr(key)
		if _, published := old.Spec.IPAM.Pool[key]; err != nil || !published ||
			state != "marked-for-release" || old.Status.IPAM.ReleaseIPs[key] == state {
			continue
		}
		w.Counts.Marks++
		if _, used := old.Status.IPAM.Used[key]; used {
			w.violate(2, "%s of node %s was marked for release though its agent reports it", key, node)
		}
		// A reconcile observes again after a repair, so only what it still knows counts.
		if o.current != nil && o.current.pods[addr] && o.knowsPodWith(node, addr) {
			w.violate(2, "%s of node %s was marked for release though a pod's status names it", key, node)
		}
		if o.current != nil && !isUnread(old) {
			w.holdGuards(o.current, old, addr)
		}
	}
}

// knowsPodWith reports whether the operator knows of a pod on a node whose status names
// an address.
func (o *Operator) knowsPodWith(node string, addr netip.Addr) bool {
	return slices.ContainsFunc(o.parts.Node.Pods.On(node), func(p expand.Pod) bool { return slices.Contains(p.IPs, addr) })
}

// reports reports whether an agent reports an address of a family.
func reports(cn *ciliumv2.CiliumNode, f ipalloc.Family) bool {
	for key := range cn.Status.IPAM.Used {
		if addr, err := netip.ParseAddr(key); err == nil && ipalloc.FamilyOf(addr) == f {
			return true
		}
	}
	return false
}

// holdGuards checks that an address is marked in the window of the agents' protocol only if the
// operator could not know of the window.
func (w *World) holdGuards(f *flight, old *ciliumv2.CiliumNode, addr netip.Addr) {
	node := old.Name
	if m := w.machine(node); !reports(old, ipalloc.FamilyOf(addr)) && m.runs(ipalloc.FamilyOf(addr)) && !m.switched {
		w.violate(2, "%s of node %s was marked for release though its agent reports nothing", addr, node)
	}
	if !f.settled {
		w.violate(2, "%s of node %s was marked for release though its agent had just started", addr, node)
	}
	if pods := f.stillAwaited(w.writer, ipalloc.FamilyOf(addr)); len(pods) > 0 {
		w.violate(2, "%s of node %s was marked for release though nothing says yet which address %v has", addr, node, pods)
	}
}
