package invariant_test

import (
	"testing"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"

	"github.com/cilium-pool/cilium-pool-operator/test/invariant"
)

// A marked address of a family that the agent does not run leaves without an answer, even if
// the agent still names it. Here the agent runs IPv6 only, and named 10.9.0.1 before.
func TestFamilyTakenOut(t *testing.T) {
	const router6, stale = "fd00::1", "10.9.0.1"
	name := func(cn *ciliumv2.CiliumNode, ips ...string) {
		for _, ip := range ips {
			cn.Spec.Addresses = append(cn.Spec.Addresses, ciliumv2.NodeAddress{Type: "CiliumInternalIP", IP: ip})
		}
	}
	tests := map[string]struct {
		plant func(*world)
		want  []string
	}{
		"its router's address is left": {plant: func(w *world) {
			w.cilium("a", func(cn *ciliumv2.CiliumNode) { name(cn, router6, stale) })
			w.status("a", func(cn *ciliumv2.CiliumNode) { use(cn, router6, "router") })
		}},
		"its ingress address is left": {plant: func(w *world) {
			w.cilium("a", func(cn *ciliumv2.CiliumNode) { name(cn, router6); cn.Spec.IngressAddressing.IPV4 = stale })
			w.status("a", func(cn *ciliumv2.CiliumNode) { use(cn, router6, "router") })
		}},
		"the report names no router": {want: []string{"2 CiliumNode a", "2 CiliumNode a"}, plant: func(w *world) {
			w.cilium("a", func(cn *ciliumv2.CiliumNode) { name(cn, router6, stale) })
			w.status("a", func(cn *ciliumv2.CiliumNode) { use(cn, router6, "default/x") })
		}},
		"there is no report": {want: []string{"2 CiliumNode a", "2 CiliumNode a"}, plant: func(w *world) {
			w.cilium("a", func(cn *ciliumv2.CiliumNode) { name(cn, router6, stale) })
		}},
		"it reports another address of the family": {want: []string{"2 CiliumNode a", "2 CiliumNode a"}, plant: func(w *world) {
			w.cilium("a", func(cn *ciliumv2.CiliumNode) { name(cn, router6, stale) })
			w.status("a", func(cn *ciliumv2.CiliumNode) { use(cn, router6, "router"); use(cn, "10.9.0.2", "default/x") })
		}},
		"it names a health endpoint of the family": {want: []string{"2 CiliumNode a", "2 CiliumNode a"}, plant: func(w *world) {
			w.cilium("a", func(cn *ciliumv2.CiliumNode) { name(cn, router6, stale); cn.Spec.HealthAddressing.IPv4 = "10.9.0.2" })
			w.status("a", func(cn *ciliumv2.CiliumNode) { use(cn, router6, "router") })
		}},
		"a pod has it": {want: []string{"2 CiliumNode a"}, plant: func(w *world) {
			w.cilium("a", func(cn *ciliumv2.CiliumNode) { name(cn, router6, stale) })
			w.status("a", func(cn *ciliumv2.CiliumNode) { use(cn, router6, "router") })
			w.RunningPod("a", "x", stale)
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			judged(t, invariant.Options{}, test.want, func(w *world) {
				test.plant(w)
				w.release("a", stale, "marked-for-release")
				w.cilium("a", func(cn *ciliumv2.CiliumNode) { unpublish(cn, stale) })
			})
		})
	}
}
