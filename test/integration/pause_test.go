package integration

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/event"
	poolcontroller "github.com/cilium-pool/cilium-pool-operator/pkg/controller/pool"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
)

func TestPause(t *testing.T) {
	e := newEnv(t)
	e.start(quick())
	e.pool("all", func(p *v1alpha1.PodIPPool) { p.Spec.Paused = true }, "10.1.0.0/24")
	e.pool("other", priority(-1), "10.2.0.0/24")
	e.pool("probe", func(p *v1alpha1.PodIPPool) { zone("probe")(p); priority(1)(p) }, "10.3.0.0/24")
	e.bareNode("n1", nil)
	e.condition("all", v1alpha1.PoolReady, metav1.ConditionFalse, poolcontroller.ReasonPaused)
	if got := e.Blocks(""); len(got) != 0 {
		t.Errorf("blocks were claimed on a node of a paused pool: %v", got)
	}
	e.changeNode("n1", func(n *corev1.Node) { n.Annotations = map[string]string{v1alpha1.PausedAnnotation: "true"} })
	e.bareNode("probe", map[string]string{"zone": "probe"})
	e.hasBlocks("probe", 1) // by now the operator has seen the pause
	e.change("all", func(p *v1alpha1.PodIPPool) { p.Spec.Paused = false })
	e.bareNode("n2", nil)
	e.hasBlocks("n2", 1)
	if got := e.Blocks("n1"); len(got) != 0 {
		t.Errorf("blocks were claimed on a paused node: %v", got)
	}
	e.changeNode("n1", func(n *corev1.Node) { n.Annotations = nil })
	e.hasBlocks("n1", 1)
}

// A paused node reports that its pods lack addresses, until they have them.
func TestPausedNodeReportsShortage(t *testing.T) {
	e := newEnv(t)
	e.start(quick())
	e.pool("all", nil, "10.1.0.0/24")
	e.node("n1", nil)
	e.hasBlocks("n1", 1)
	e.changeNode("n1", func(n *corev1.Node) { n.Annotations = map[string]string{v1alpha1.PausedAnnotation: "true"} })
	e.Pods("n1", "load", 60)
	e.shortage("n1", corev1.ConditionTrue)
	e.eventSays("n1", event.ReasonPodAddressShortage, "the Node is paused")
	e.changeNode("n1", func(n *corev1.Node) { n.Annotations = nil })
	e.running("load", 60)
	e.shortage("n1", corev1.ConditionFalse)
}
