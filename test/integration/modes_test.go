package integration

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/config"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/event"
	poolcontroller "github.com/cilium-pool/cilium-pool-operator/pkg/controller/pool"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

// isAssigned waits until a node holds n blocks, and exactly these are assigned to its agent.
func (e *env) isAssigned(node string, n int) {
	e.TB.Helper()
	e.eventuallyOn(fmt.Sprintf("the agent of %s is assigned %d blocks", node, n), node, func(cn *ciliumv2.CiliumNode) error {
		assigned := harness.AssignedCIDRs(cn)
		if blocks := e.Blocks(node); len(blocks) != n || len(assigned) != n {
			return fmt.Errorf("%d blocks, assigned %v", len(blocks), assigned)
		}
		if len(cn.Spec.IPAM.Pool)+len(cn.Spec.IPAM.PodCIDRs)+len(cn.Status.IPAM.ReleaseIPs) > 0 {
			return fmt.Errorf("fields of crd mode: %v %v %v", cn.Spec.IPAM.Pool, cn.Spec.IPAM.PodCIDRs, cn.Status.IPAM.ReleaseIPs)
		}
		return nil
	})
}

// quickMultiPool returns the settings of quick in multi-pool mode. Bound pods count as demand
// for a minute, however slowly they are created.
func quickMultiPool() config.Settings {
	s := quick()
	s.Mode, s.Defaults.Policy.AckTimeout = ciliumnode.MultiPool, time.Minute
	return s
}

// olderThan waits until a CiliumNode is so old: a restarted operator once lists again any block that
// may be older than the CiliumNode.
func olderThan(e *env, node string, age time.Duration) {
	e.TB.Helper()
	e.Eventually("further blocks are younger than the CiliumNode", func() error {
		cn, err := e.ciliumNode(node)
		if err == nil && time.Since(cn.CreationTimestamp.Time) < age {
			err = fmt.Errorf("it was created at %v", cn.CreationTimestamp)
		}
		return err
	})
}

func TestMultiPoolMode(t *testing.T) {
	e := newEnv(t)
	s := quickMultiPool()
	op := e.start(s)
	e.pool("all", nil, "10.1.0.0/24")
	e.bareNode("n1", nil)
	e.isAssigned("n1", 1)

	e.AgentRequests("n1", 16, 1)
	olderThan(e, "n1", time.Second)
	e.Pods("n1", "burst", 80) // the agent has not seen them
	e.isAssigned("n1", 3)
	e.AgentRequests("n1", 112, 3)
	e.isAssigned("n1", 4)

	// That node has no kubelet to terminate them.
	e.DropPods()
	op.stop()
	e.AgentRequests("n1", 16, 1) // while no operator runs
	e.start(s)
	e.isAssigned("n1", 1)
}

// Agents that are assigned whole blocks take large ones. In crd mode their pool says why it serves no
// node, and the next pool does.
func TestLargeBlocks(t *testing.T) {
	e := newEnv(t)
	op := e.start(quick())
	e.pool("large", func(p *v1alpha1.PodIPPool) {
		p.Spec.Priority, p.Spec.IPv4.BlockSize = 10, 18
		p.Spec.IPv6 = &v1alpha1.IPv6Ranges{BlockSize: 64, CIDRs: []v1alpha1.PoolCIDR{{CIDR: "fd00:10::/60"}}}
	}, "10.64.0.0/16")
	e.pool("small", nil, "10.1.0.0/24")
	e.condition("large", v1alpha1.PoolReady, metav1.ConditionFalse, poolcontroller.ReasonInvalid, "in crd mode, where a CiliumNode lists each address")
	e.node("n1", nil)
	e.hasBlocks("n1", 1)
	e.Create(&v1alpha1.PodIPBlock{
		ObjectMeta: metav1.ObjectMeta{Name: "10.64.192.0-18"},
		Spec:       v1alpha1.PodIPBlockSpec{CIDR: "10.64.192.0/18", PoolName: "large", NodeName: "n1"},
	})
	e.event("10.64.192.0-18", event.ReasonBlockTooLarge)
	if n := len(e.readCiliumNode("n1").Spec.IPAM.Pool); n != 30 {
		t.Errorf("%d addresses are published, want those of one /27", n)
	}
	op.stop()

	e.start(quickMultiPool())
	e.bareNode("n2", nil)
	e.isAssigned("n2", 2)
	if got := harness.AssignedCIDRs(e.readCiliumNode("n2")); got[0].Bits() != 18 || got[1].Bits() != 64 {
		t.Errorf("assigned %v", got)
	}
	e.condition("large", v1alpha1.PoolReady, metav1.ConditionTrue, poolcontroller.ReasonServing)
	e.AgentRequests("n2", 1<<14, 2) // two more than a /18 has
	e.isAssigned("n2", 3)
}

// A pod asks for a Cilium pool with a wrong name, or by its node's default: an event says so to it,
// and to its Node.
func TestPodAsksForNoPool(t *testing.T) {
	e := newBlueEnv(t)
	pod := harness.BoundPod("n1", "web", nil)
	pod.Annotations = map[string]string{"ipam.cilium.io/ip-pool": "bleu"}
	e.Create(pod)
	const says = "no PodIPPool gives ipv4 of Cilium's pool bleu to node n1, as none has this ciliumPoolName (did you mean blue?); the annotation of pod default/web asks for it"
	e.eventSays("web", event.ReasonCiliumPoolNotServed, says)
	e.eventSays("n1", event.ReasonPodAddressShortage, says)
	e.shortage("n1", corev1.ConditionTrue)
	e.pool("bleus", func(p *v1alpha1.PodIPPool) { p.Spec.CiliumPoolName = "bleu" }, "10.3.0.0/24")
	e.shortage("n1", corev1.ConditionFalse)

	// A CiliumNodeConfig makes another pool the default one of a node.
	mars := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "cilium.io/v2", "kind": "CiliumNodeConfig", "metadata": map[string]any{"namespace": "kube-system", "name": "mars"},
		"spec": map[string]any{"nodeSelector": map[string]any{"matchLabels": map[string]any{"kubernetes.io/hostname": "n2"}}, "defaults": map[string]any{"ipam-default-ip-pool": "mars"}},
	}}
	e.Create(mars)
	t.Cleanup(func() { e.Must(e.Client.Delete(e.Ctx, mars)) })
	e.bareNode("n2", map[string]string{"kubernetes.io/hostname": "n2"})
	e.isAssigned("n2", 1)
	e.AgentPod("n2")
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"ipam":{"pools":{"requested":[{"pool":"mars","needed":{"ipv4-addrs":8}}]}}}}`))
	e.Must(e.Client.Patch(e.Ctx, &ciliumv2.CiliumNode{ObjectMeta: metav1.ObjectMeta{Name: "n2"}}, patch))
	e.Create(harness.BoundPod("n2", "plain", nil))
	e.eventSays("plain", event.ReasonCiliumPoolNotServed, "pod default/plain names no pool, and Cilium's setting ipam-default-ip-pool makes this one the node's default")
	e.eventSays("n2", event.ReasonPodAddressShortage, "no PodIPPool gives ipv4 of Cilium's pool mars to node n2, as none has this ciliumPoolName; Cilium's setting ipam-default-ip-pool")
}

// newBlueEnv returns an env in multi-pool mode with a PodIPPool for Cilium's pool blue, one
// for the default pool, and node n1, which requests as much as its first block has.
func newBlueEnv(t *testing.T) *env {
	t.Helper()
	e := newEnv(t)
	s := quickMultiPool()
	e.start(s)
	e.pool("all", nil, "10.1.0.0/24")
	e.pool("blues", func(p *v1alpha1.PodIPPool) { p.Spec.CiliumPoolName = "blue" }, "10.2.0.0/24")
	e.bareNode("n1", nil)
	e.isAssigned("n1", 1)
	e.AgentRequests("n1", 16, 1)
	return e
}

// Pods in a namespace that requests one of Cilium's pools get blocks of the PodIPPools that serve
// it, listed under its name; so does an agent that requests it.
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
	awaitAssigned := func(pool string, want int) {
		t.Helper()
		e.eventuallyOn(fmt.Sprintf("the agent is assigned %d blocks for pool %s", want, pool), "n1", func(cn *ciliumv2.CiliumNode) error {
			for _, entry := range cn.Spec.IPAM.Pools.Allocated {
				if entry.Pool == pool && len(entry.CIDRs) == want {
					return nil
				}
			}
			return fmt.Errorf("assigned %+v", cn.Spec.IPAM.Pools.Allocated)
		})
	}
	e.Pods("n1", "first", 1)
	awaitAssigned("blue", 1) // by now the operator has seen the namespace's annotation
	e.Pods("n1", "team", 39)
	awaitAssigned("blue", 2)
	awaitAssigned("default", 1)
	e.eventuallyOn("the agent requests more of blue", "n1", func(cn *ciliumv2.CiliumNode) error {
		pools := &cn.Spec.IPAM.Pools
		pools.Requested = append([]ipamtypes.IPAMPoolRequest{{Pool: "blue", Needed: ipamtypes.IPAMPoolDemand{IPv4Addrs: 80}}}, pools.Requested...)
		return e.Client.Update(e.Ctx, cn)
	})
	awaitAssigned("blue", 3)
	awaitAssigned("default", 1)
	for _, b := range e.Blocks("n1") {
		if blue := b.Spec.PoolName == "blues"; blue != strings.HasPrefix(b.Spec.CIDR, "10.2.") {
			t.Errorf("block %s is of pool %s", b.Spec.CIDR, b.Spec.PoolName)
		}
	}
}

// Pods selected by a CiliumPodIPPool get blocks of its pool, even if the selector is set after
// they were created.
func TestSelectorsOfCiliumPools(t *testing.T) {
	e := newBlueEnv(t)
	e.Pods("n1", "team", 40) // of the default pool
	e.isAssigned("n1", 2)
	blue := e.ciliumPool("blue", "[192.0.2.0/32] 27")
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"podSelector":{"matchLabels":{"app":"team"}},"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"default"}}}}`))
	e.Must(e.Client.Patch(e.Ctx, blue, patch))
	e.eventuallyOn("the agent is assigned 2 blocks for pool blue", "n1", func(cn *ciliumv2.CiliumNode) error {
		if pools := cn.Spec.IPAM.Pools.Allocated; len(pools) != 2 || pools[0].Pool != "blue" || len(pools[0].CIDRs) != 2 {
			return fmt.Errorf("assigned %+v", pools)
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
	e.Eventually("the Node is assigned a block", func() error {
		if err := e.Client.Get(e.Ctx, client.ObjectKey{Name: "n1"}, n); err != nil {
			return err
		}
		if got := n.Annotations["network.cilium.io/ipv4-pod-cidr"]; got != "10.1.0.0/27" || len(e.Blocks("n1")) != 1 {
			return fmt.Errorf("assigned %q of %d blocks", got, len(e.Blocks("n1")))
		}
		return nil
	})
	list := &ciliumv2.CiliumNodeList{}
	if err := e.Client.List(e.Ctx, list); err != nil || len(list.Items) > 0 {
		t.Errorf("CiliumNodes %v, %v: only agents create them", list.Items, err)
	}
	e.Delete(&corev1.Node{ObjectMeta: n.ObjectMeta})
	e.awaitBlocks("its block has cooled down", "", 0, 0, nil)
}
