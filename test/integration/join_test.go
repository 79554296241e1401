package integration

import (
	"fmt"
	"testing"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/agent"
)

func TestJoin(t *testing.T) {
	e := newEnv(t)
	e.start(quick())
	e.pool("all", nil, "10.1.0.0/24")
	n := e.bareNode("n1", nil)
	e.hasBlocks("n1", 1)
	cn := e.theCiliumNode("n1")
	if len(cn.OwnerReferences) != 1 || cn.OwnerReferences[0].UID != n.UID {
		t.Errorf("the CiliumNode is not owned by its Node: %v", cn.OwnerReferences)
	}
	if got := e.Blocks("n1")[0]; got.Name != "10.1.0.0-27" || got.Spec.NodeUID != string(n.UID) || got.Spec.PoolName != "all" {
		t.Errorf("first block is %s of %+v, want the lowest", got.Name, got.Spec)
	}
	a := e.agent("n1")
	e.ready(a)
}

func TestIPv6Only(t *testing.T) {
	e := newEnv(t)
	e.start(quick())
	e.Create(&v1alpha1.PodIPPool{
		ObjectMeta: metav1.ObjectMeta{Name: "six"},
		Spec:       v1alpha1.PodIPPoolSpec{IPv6: &v1alpha1.IPv6Ranges{BlockSize: 122, CIDRs: []v1alpha1.PoolCIDR{{CIDR: "fd00:10::/48"}}}},
	})
	e.node("n1", nil, agent.IPv6)
	e.Pods("n1", "load", 100)
	e.running("load", 100)
	e.Eventually("101 addresses at 62 a block need 3 to stay at 80 % in use", func() error {
		if got := len(e.Blocks("n1")); got != 3 {
			return fmt.Errorf("%d blocks", got)
		}
		return nil
	})
	e.DeletePods("load", nil)
	e.eventuallyOn("the node is back to one block", "n1", func(cn *ciliumv2.CiliumNode) error {
		if len(e.Blocks("n1")) != 1 || len(cn.Spec.IPAM.Pool) != 62 || len(cn.Status.IPAM.ReleaseIPs) > 0 {
			return fmt.Errorf("%d blocks, %d addresses, release-ips %v", len(e.Blocks("n1")), len(cn.Spec.IPAM.Pool), cn.Status.IPAM.ReleaseIPs)
		}
		return nil
	})
	e.usedArePublished("n1")
}
