package integration

import (
	"fmt"
	"slices"
	"testing"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/event"
)

const zoneLabel = "topology.kubernetes.io/zone"

// zones creates a pool for all nodes, and another that outranks it in zone beijing.
func zones(e *env) {
	e.TB.Helper()
	e.pool("all", nil, "10.1.0.0/24")
	e.pool("beijing", func(p *v1alpha1.PodIPPool) {
		p.Spec.Priority = 10
		p.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{zoneLabel: "beijing"}}
	}, "10.2.0.0/24")
}

// onlyFrom waits until a node has blocks, and all of them are from one pool.
func onlyFrom(e *env, node, pool string) {
	e.TB.Helper()
	e.awaitBlocks(fmt.Sprintf("node %s has blocks of pool %s", node, pool), node, 1, many, ofPool(pool))
	e.awaitBlocks(fmt.Sprintf("all blocks of node %s are of pool %s", node, pool), node, 0, 0,
		func(b v1alpha1.PodIPBlock) bool { return b.Spec.PoolName != pool })
}

// With an external cloud provider, the zone label of a Node is set when its taint is
// removed, while its agent already waits for addresses.
func TestLateLabels(t *testing.T) {
	e := newEnv(t)
	zones(e)
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Spec: corev1.NodeSpec{Taints: []corev1.Taint{
		{Key: "node.cloudprovider.kubernetes.io/uninitialized", Value: "true", Effect: corev1.TaintEffectNoSchedule},
	}}}
	e.Create(n)
	a := e.agent("n1")
	e.start(quick())
	e.event("n1", event.ReasonWaitsForLabels)
	if got := e.Blocks("n1"); len(got) > 0 {
		t.Fatalf("it holds %s before its labels are final", got[0].Name)
	}
	e.changeNode("n1", func(n *corev1.Node) {
		n.Labels, n.Spec.Taints = map[string]string{zoneLabel: "beijing"}, nil
	})
	e.ready(a)
	onlyFrom(e, "n1", "beijing")
}

// The component that removes the taint may be a pod that needs an address first.
func TestPodThatToleratesTheTaintGetsAnAddress(t *testing.T) {
	e := newEnv(t)
	zones(e)
	taint := corev1.Taint{Key: "node.cloudprovider.kubernetes.io/uninitialized", Value: "true", Effect: corev1.TaintEffectNoSchedule}
	for _, name := range []string{"waits", "cp-1"} {
		e.Create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{Taints: []corev1.Taint{taint}}})
	}
	e.start(quick())
	e.event("cp-1", event.ReasonWaitsForLabels)
	e.Create(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "ccm"}, Spec: corev1.PodSpec{
		NodeName: "cp-1", Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		Containers: []corev1.Container{{Name: "ccm", Image: "registry.invalid/ccm"}},
	}})
	onlyFrom(e, "cp-1", "all")
	if got := e.Blocks("waits"); len(got) > 0 {
		t.Errorf("a node without such a pod holds %s", got[0].Name)
	}
}

// A Node that returns under its name in another zone gets a block of that zone, also if a taint
// says that its labels are not final yet.
func TestNodeReturnsInAnotherZone(t *testing.T) {
	for _, mode := range ciliumnode.Modes() {
		t.Run(mode.String(), func(t *testing.T) { returnsInAnotherZone(newEnv(t), mode) })
	}
}

func returnsInAnotherZone(e *env, mode ciliumnode.Mode) {
	s := quick()
	s.Mode, s.Defaults.NodeGoneCooldown = mode, time.Hour
	e.start(s)
	for name, cidr := range map[string]string{"beijing": "10.2.0.0/24", "shanghai": "10.3.0.0/24"} {
		e.pool(name, func(p *v1alpha1.PodIPPool) {
			p.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{zoneLabel: name}}
		}, cidr)
	}
	awaitBlocks := func(node string, want ...string) {
		e.TB.Helper()
		e.Eventually(fmt.Sprintf("node %s has blocks %q", node, want), func() error {
			var got []string
			for _, b := range e.Blocks(node) {
				got = append(got, b.Spec.PoolName+" "+string(b.Status.Phase))
			}
			if !slices.Equal(got, want) {
				return fmt.Errorf("it has %q", got)
			}
			return nil
		})
	}
	for _, name := range []string{"edge-01", "edge-02"} {
		first := e.bareNode(name, map[string]string{zoneLabel: "beijing"})
		awaitBlocks(name, "beijing InService")
		e.Remove(first)
		awaitBlocks(name, "beijing CoolingDown")
	}
	e.bareNode("edge-01", map[string]string{zoneLabel: "shanghai"})
	awaitBlocks("edge-01", "beijing CoolingDown", "shanghai InService")
	e.Create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "edge-02"}, Spec: corev1.NodeSpec{Taints: []corev1.Taint{
		{Key: "node.cloudprovider.kubernetes.io/uninitialized", Effect: corev1.TaintEffectNoSchedule},
	}}})
	e.event("edge-02", event.ReasonWaitsForLabels)
	awaitBlocks("edge-02", "beijing CoolingDown")
	e.changeNode("edge-02", func(n *corev1.Node) {
		n.Labels, n.Spec.Taints = map[string]string{zoneLabel: "shanghai"}, nil
	})
	awaitBlocks("edge-02", "beijing CoolingDown", "shanghai InService")
}

// Without a taint, the first block comes from the wrong pool because the label is late. It is
// replaced and freed before the agent starts.
func TestLateLabelsWithoutTaint(t *testing.T) {
	e := newEnv(t)
	e.start(quick())
	zones(e)
	e.bareNode("n1", nil)
	e.hasBlocks("n1", 1)
	e.changeNode("n1", func(n *corev1.Node) { n.Labels = map[string]string{zoneLabel: "beijing"} })
	e.onNode("the first block is marked for release, and another there", "n1", func(cn *ciliumv2.CiliumNode) bool {
		return len(cn.Status.IPAM.ReleaseIPs) == 30 && len(cn.Spec.IPAM.Pool) == 60
	})
	n := &corev1.Node{}
	e.Read(n, "", "n1")
	n.Status.NodeInfo.BootID = "5b4a3f0c-0000-4000-8000-000000000001"
	e.UpdateStatus(n)
	a := e.agent("n1")
	e.ready(a)
	onlyFrom(e, "n1", "beijing")
	e.hasBlocks("n1", 1)
	e.usedArePublished("n1")
}
