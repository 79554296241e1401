package integration

import (
	"fmt"
	"net/netip"
	"testing"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
)

func TestEdgeOfABlockNoLongerAllowed(t *testing.T) {
	e := newEnv(t)
	e.start(quick())
	e.pool("all", func(p *v1alpha1.PodIPPool) { p.Spec.IPv4.AllowFirstIP, p.Spec.IPv4.AllowLastIP = true, true }, "10.1.0.0/27")
	e.node("n1", nil)
	e.Pods("n1", "load", 31) // with the router, all of its addresses, including the first and the last
	e.running("load", 31)
	e.change("all", func(p *v1alpha1.PodIPPool) { p.Spec.IPv4.AllowFirstIP, p.Spec.IPv4.AllowLastIP = false, false })
	e.change("all", func(p *v1alpha1.PodIPPool) {
		p.Spec.IPv4.CIDRs = append(p.Spec.IPv4.CIDRs, v1alpha1.PoolCIDR{CIDR: "10.2.0.0/24"})
	})
	e.usedArePublished("n1")
	e.DeletePods("load", nil)
	router := e.held("n1")
	e.eventuallyOn("the first and last address leave once unused", "n1", func(cn *ciliumv2.CiliumNode) error {
		for _, edge := range []string{"10.1.0.0", "10.1.0.31"} {
			_, published := cn.Spec.IPAM.Pool[edge]
			if _, used := router[netip.MustParseAddr(edge)]; published && !used {
				return fmt.Errorf("%s is still published", edge)
			}
		}
		return nil
	})
}
