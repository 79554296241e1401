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

// noteRead records that a reconcile has read a block live.
func (f *flight) noteRead(o *Operator, name string) {
	live, ok := o.w.api.Get(KindBlock, name).(*v1alpha1.PodIPBlock)
	if !ok {
		return
	}
	cidr, err := netip.ParsePrefix(live.Spec.CIDR)
	if err != nil {
		return
	}
	f.others = deleted(f.others, name) // it may decide anew
	if f.found == name {               // it claims the found block, not the known one
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

// unshown reports whether a block was unknown when the write in progress was decided, or in another
// phase than the found one.
func (f *flight) unshown(cidr netip.Prefix) bool {
	_, known := f.knew[cidr]
	return !known || slices.Contains(f.changed, cidr)
}

// knowsPodWith reports whether the operator knows of a pod on a node with an address in its status.
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
