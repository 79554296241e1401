package integration

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/event"
	poolcontroller "github.com/cilium-pool/cilium-pool-operator/pkg/controller/pool"
	"github.com/cilium-pool/cilium-pool-operator/test/agent"
)

// ciliumConfig creates the ConfigMap cilium-config until the test ends.
func (e *env) ciliumConfig(data map[string]string) *corev1.ConfigMap {
	e.TB.Helper()
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "cilium-config"}, Data: data}
	e.Create(config)
	e.TB.Cleanup(func() { e.Must(e.Client.Delete(e.Ctx, config)) })
	return config
}

// Agents of all nodes, then of one, are configured for another mode while the operator runs: it
// says so, and no drain begins there until they are configured back.
func TestCiliumLeavesTheMode(t *testing.T) {
	e := newEnv(t)
	config := e.ciliumConfig(map[string]string{"ipam": "crd"})
	e.start(quick())
	e.pool("all", nil, "10.1.0.0/24")
	e.node("n1", map[string]string{"odd": "true"})
	e.node("n2", nil)
	e.hasBlocks("n1", 1)
	e.hasBlocks("n2", 1)

	config.Data["ipam"] = "cluster-pool"
	e.Update(config)
	e.eventSays("cilium-config", event.ReasonCiliumModeDiffers, "agents of n1, n2 start next in ipam mode cluster-pool, and the operator assigns blocks in mode crd")
	e.change("all", func(p *v1alpha1.PodIPPool) {
		p.Spec.IPv4.CIDRs[0].AllocationPolicy = v1alpha1.AllocationDrain
		p.Spec.IPv4.CIDRs = append(p.Spec.IPv4.CIDRs, v1alpha1.PoolCIDR{CIDR: "10.2.0.0/24"})
	})
	held := func(node string) {
		t.Helper()
		e.Eventually("the drain on "+node+" waits", func() error {
			block := e.Blocks(node)[0]
			c := meta.FindStatusCondition(block.Status.Conditions, v1alpha1.BlockDraining)
			if c == nil || c.Status != metav1.ConditionFalse || c.Reason != v1alpha1.ReasonCIDRDraining || block.Status.WaitsFor == nil || block.Status.WaitsFor.Reason != "CiliumMode" {
				return fmt.Errorf("status is %+v", block.Status)
			}
			return nil
		})
	}
	held("n1")
	held("n2")

	odd := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "cilium.io/v2", "kind": "CiliumNodeConfig", "metadata": map[string]any{"namespace": "kube-system", "name": "odd"},
		"spec": map[string]any{"nodeSelector": map[string]any{"matchLabels": map[string]any{"odd": "true"}}, "defaults": map[string]any{"ipam": "kubernetes"}},
	}}
	e.Create(odd)
	t.Cleanup(func() { e.Must(e.Client.Delete(e.Ctx, odd)) })
	e.eventSays("cilium-config", event.ReasonCiliumModeDiffers, "agents of n1 start next in ipam mode kubernetes")
	config.Data["ipam"] = "crd"
	e.Update(config)
	e.changeNode("n2", func(n *corev1.Node) { n.Labels = map[string]string{"look": "again"} }) // it would in a minute
	e.awaitBlocks("the drain on n2 has begun", "n2", 0, 0, func(b v1alpha1.PodIPBlock) bool {
		return blockIn(b, "10.1.0.0/24") && b.Status.Phase == v1alpha1.PhaseInService
	})
	held("n1")
}

// A range outside Cilium's native-routing CIDR is reported when it is added to a pool, and until
// Cilium leaves it unmasqueraded.
func TestMasqueradedRange(t *testing.T) {
	e := newEnv(t)
	config := e.ciliumConfig(map[string]string{
		"ipam": "crd", "routing-mode": "native", "enable-ipv4-masquerade": "true", "ipv4-native-routing-cidr": "10.1.0.0/16",
	})
	e.start(quick())
	e.pool("all", nil, "10.1.0.0/24")
	e.condition("all", v1alpha1.PoolReady, metav1.ConditionTrue, "")
	e.change("all", func(p *v1alpha1.PodIPPool) {
		p.Spec.IPv4.CIDRs = append(p.Spec.IPv4.CIDRs, v1alpha1.PoolCIDR{CIDR: "10.77.0.0/24"})
	})
	e.condition("all", v1alpha1.PoolMasqueraded, metav1.ConditionTrue, poolcontroller.ReasonOutsideNative,
		"10.77.0.0/24: outside Cilium's ipv4-native-routing-cidr, 10.1.0.0/16: agents masquerade connections to pods of this range")
	e.event("all", event.ReasonPoolMasqueraded)
	e.condition("all", v1alpha1.PoolReady, metav1.ConditionTrue, "")

	config.Data["enable-ip-masq-agent"] = "true"
	e.Update(config)
	list := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "ip-masq-agent"}, Data: map[string]string{"config": `{"nonMasqueradeCIDRs": ["10.77.0.0/20"]}`}}
	e.Create(list)
	t.Cleanup(func() { e.Must(e.Client.Delete(e.Ctx, list)) })
	e.condition("all", v1alpha1.PoolMasqueraded, metav1.ConditionFalse, poolcontroller.ReasonNotMasqueraded)
}

// IPv6 is switched on in Cilium, and no pool has it: the node says so before its agent restarts,
// and is short of addresses afterwards, until a pool has some.
func TestFamilyThatNoPoolHas(t *testing.T) {
	e := newEnv(t)
	config := e.ciliumConfig(map[string]string{"ipam": "crd", "enable-ipv4": "true", "enable-ipv6": "false"})
	e.start(quick())
	e.pool("all", nil, "10.1.0.0/24")
	e.ready(e.node("n1", nil, agent.IPv4))
	e.reported("n1", 1)
	config.Data["enable-ipv6"] = "true"
	e.Update(config)
	e.eventSays("n1", event.ReasonPodAddressShortage, "no PodIPPool gives ipv6 to node n1, and its agent is to run ipv6 from its next start (enable-ipv6)")

	a := e.agent("n1", agent.IPv4, agent.IPv6)
	e.shortage("n1", corev1.ConditionTrue)
	e.pool("six", func(p *v1alpha1.PodIPPool) {
		p.Spec.IPv4, p.Spec.IPv6 = nil, &v1alpha1.IPv6Ranges{BlockSize: 122, CIDRs: []v1alpha1.PoolCIDR{{CIDR: "fd00:10::/112"}}}
	})
	e.ready(a)
	e.shortage("n1", corev1.ConditionFalse)
}
