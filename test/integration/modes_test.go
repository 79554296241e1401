package integration

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	iputil "github.com/cilium/cilium/pkg/ip"
	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
)

// told are the CIDRs under the pool default of a CiliumNode.
func told(cn *ciliumv2.CiliumNode) []iputil.Prefix {
	for _, entry := range cn.Spec.IPAM.Pools.Allocated {
		if entry.Pool == "default" {
			return entry.CIDRs
		}
	}
	return nil
}

// agentAsks is the write of an agent in multi-pool mode that asks for so many
// addresses and keeps so many of the CIDRs it was told.
func (e *env) agentAsks(node string, addresses, keeps int) {
	e.TB.Helper()
	e.eventuallyOn("the agent writes", node, func(cn *ciliumv2.CiliumNode) error {
		pools := &cn.Spec.IPAM.Pools
		pools.Requested = []ipamtypes.IPAMPoolRequest{{Pool: "default", Needed: ipamtypes.IPAMPoolDemand{IPv4Addrs: addresses}}}
		pools.Allocated = []ipamtypes.IPAMPoolAllocation{{Pool: "default", CIDRs: slices.Clone(told(cn)[:keeps])}}
		err := e.Client.Update(e.Ctx, cn)
		if err != nil && !apierrors.IsConflict(err) {
			e.TB.Fatal(err)
		}
		return err
	})
}

// isTold waits until a node holds n blocks, and its agent is told just those.
func (e *env) isTold(node string, n int) {
	e.TB.Helper()
	e.eventuallyOn(fmt.Sprintf("the agent of %s is told %d blocks", node, n), node, func(cn *ciliumv2.CiliumNode) error {
		if blocks := e.Blocks(node); len(blocks) != n || len(told(cn)) != n {
			return fmt.Errorf("%d blocks, told %v", len(blocks), told(cn))
		}
		if len(cn.Spec.IPAM.Pool)+len(cn.Spec.IPAM.PodCIDRs)+len(cn.Status.IPAM.ReleaseIPs) > 0 {
			return fmt.Errorf("fields of crd mode: %v %v %v", cn.Spec.IPAM.Pool, cn.Spec.IPAM.PodCIDRs, cn.Status.IPAM.ReleaseIPs)
		}
		return nil
	})
}

// quickMultiPool is quick in multi-pool mode. Bound pods count as demand for a minute,
// however slowly they come.
func quickMultiPool() controller.Settings {
	s := quick()
	s.Mode, s.Defaults.Policy.AckTimeout = ciliumnode.MultiPool, time.Minute
	return s
}

func TestMultiPoolMode(t *testing.T) {
	e := newEnv(t)
	s := quickMultiPool()
	op := e.start(s)
	e.pool("all", nil, "10.1.0.0/24")
	e.bareNode("n1", nil)
	e.isTold("n1", 1)

	e.agentAsks("n1", 16, 1)
	e.Pods("n1", "burst", 80) // the agent has not heard of them
	e.isTold("n1", 3)
	e.agentAsks("n1", 112, 3)
	e.isTold("n1", 4)

	// There is no kubelet on that node to end them.
	e.DropPods()
	op.stop()
	e.agentAsks("n1", 16, 1) // while nobody looks
	e.start(s)
	e.isTold("n1", 1)
}

// newBlueEnv is one in multi-pool mode with a PodIPPool for Cilium's pool blue,
// beside the default one, and node n1, which has asked for what its first block has.
func newBlueEnv(t *testing.T) *env {
	t.Helper()
	e := newEnv(t)
	s := quickMultiPool()
	e.start(s)
	e.pool("all", nil, "10.1.0.0/24")
	e.pool("blues", func(p *v1alpha1.PodIPPool) { p.Spec.CiliumPoolName = "blue" }, "10.2.0.0/24")
	e.bareNode("n1", nil)
	e.isTold("n1", 1)
	e.agentAsks("n1", 16, 1)
	return e
}

// Pods that ask for a pool of Cilium's, by their namespace, get blocks of the
// PodIPPools that serve it, under its name; so does an agent that requests them.
func TestCiliumPools(t *testing.T) {
	e := newBlueEnv(t)

	ask := func(pool string) {
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"ipam.cilium.io/ip-pool":`+pool+`}}}`))
		if err := e.Client.Patch(context.Background(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, patch); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(func() { ask("null") })
	ask(`"blue"`)
	of := func(pool string, want int) {
		t.Helper()
		e.eventuallyOn(fmt.Sprintf("the agent is told %d blocks for pool %s", want, pool), "n1", func(cn *ciliumv2.CiliumNode) error {
			for _, entry := range cn.Spec.IPAM.Pools.Allocated {
				if entry.Pool == pool && len(entry.CIDRs) == want {
					return nil
				}
			}
			return fmt.Errorf("told %+v", cn.Spec.IPAM.Pools.Allocated)
		})
	}
	e.Pods("n1", "first", 1)
	of("blue", 1) // by now the operator has seen what the namespace asks for
	e.Pods("n1", "team", 39)
	of("blue", 2)
	of("default", 1)
	e.eventuallyOn("the agent asks for more of blue", "n1", func(cn *ciliumv2.CiliumNode) error {
		pools := &cn.Spec.IPAM.Pools
		pools.Requested = append([]ipamtypes.IPAMPoolRequest{{Pool: "blue", Needed: ipamtypes.IPAMPoolDemand{IPv4Addrs: 80}}}, pools.Requested...)
		return e.Client.Update(e.Ctx, cn)
	})
	of("blue", 3)
	of("default", 1)
	for _, b := range e.Blocks("n1") {
		if blue := b.Spec.PoolName == "blues"; blue != strings.HasPrefix(b.Spec.CIDR, "10.2.") {
			t.Errorf("block %s is of pool %s", b.Spec.CIDR, b.Spec.PoolName)
		}
	}
}

// Pods that a selector of a CiliumPodIPPool picks get blocks of its pool, also if
// it comes to pick them once they are there.
func TestSelectorsOfCiliumPools(t *testing.T) {
	e := newBlueEnv(t)
	e.Pods("n1", "team", 40) // of the default pool
	e.isTold("n1", 2)
	blue := e.ciliumPool("blue", "[192.0.2.0/32] 27")
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"podSelector":{"matchLabels":{"app":"team"}},"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"default"}}}}`))
	e.Must(e.Client.Patch(e.Ctx, blue, patch))
	e.eventuallyOn("the agent is told 2 blocks for pool blue", "n1", func(cn *ciliumv2.CiliumNode) error {
		if pools := cn.Spec.IPAM.Pools.Allocated; len(pools) != 2 || pools[0].Pool != "blue" || len(pools[0].CIDRs) != 2 {
			return fmt.Errorf("told %+v", pools)
		}
		return nil
	})
}

func TestKubernetesMode(t *testing.T) {
	e := newEnv(t)
	s := quick()
	s.Mode = ciliumnode.Kubernetes
	e.start(s)
	e.pool("all", nil, "10.1.0.0/24")
	n := e.bareNode("n1", nil)
	e.Eventually("the Node is told a block", func() error {
		if err := e.Client.Get(e.Ctx, client.ObjectKey{Name: "n1"}, n); err != nil {
			return err
		}
		if got := n.Annotations["network.cilium.io/ipv4-pod-cidr"]; got != "10.1.0.0/27" || len(e.Blocks("n1")) != 1 {
			return fmt.Errorf("told %q of %d blocks", got, len(e.Blocks("n1")))
		}
		return nil
	})
	list := &ciliumv2.CiliumNodeList{}
	if err := e.Client.List(e.Ctx, list); err != nil || len(list.Items) > 0 {
		t.Errorf("CiliumNodes %v, %v: they are for agents to make", list.Items, err)
	}
	e.Delete(&corev1.Node{ObjectMeta: n.ObjectMeta})
	e.Eventually("its block has rested", func() error {
		if got := e.Blocks(""); len(got) > 0 {
			return fmt.Errorf("blocks %v", got)
		}
		return nil
	})
}
