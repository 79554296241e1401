package world

import (
	"net/netip"
	"slices"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
)

// mayRetire reports whether an address may stay released at rest: it is the agent's own, in a
// block that has to leave.
func (w *World) mayRetire(m *machine, key string) bool {
	addr, err := netip.ParseAddr(key)
	if err != nil {
		return false
	}
	own := slices.Contains(m.routers(), addr)
	for _, name := range w.api.Keys(KindBlock) {
		b := w.api.Get(KindBlock, name).(*v1alpha1.PodIPBlock)
		if cidr, err := netip.ParsePrefix(b.Spec.CIDR); own && err == nil && b.Spec.NodeName == m.name && cidr.Contains(addr) {
			return w.isAsked(b)
		}
	}
	return false
}

// isAsked reports whether users want a block to leave.
func (w *World) isAsked(b *v1alpha1.PodIPBlock) bool {
	return b.DeletionTimestamp != nil || w.asked(b)
}

// restartRetired restarts the agents whose own addresses are retired, and reports whether there
// are any.
func (w *World) restartRetired() bool {
	any := false
	for _, m := range w.machines {
		cn, ok := w.api.Get(KindCiliumNode, m.name).(*ciliumv2.CiliumNode)
		if !ok || m.phase != serving {
			continue
		}
		for _, own := range m.routers() {
			if cn.Status.IPAM.ReleaseIPs[own.String()] == "released" {
				m.crash()
				w.Counts.Ops["agent restarted on retired addresses"]++
				any = true
				break
			}
		}
	}
	return any
}
