package node

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// Users who may create pods with spec.nodeName cannot push a node to its block limit: the
// kubelet admits at most allocatable.pods of them.
func TestReconcilePodsBeyondMaxPods(t *testing.T) {
	for name, test := range map[string]struct {
		maxPods      string // "": the Node does not say
		want         int    // blocks of two addresses
		withoutAgent bool
	}{
		"a bound":  {maxPods: "3", want: 3}, // 3 pods, and 2 addresses for the agent
		"no bound": {want: 16},              // maxBlocksPerNode
		// As many as with no pod: no agent there can assign these an address.
		"no agent": {want: 2, withoutAgent: true},
	} {
		t.Run(name, func(t *testing.T) {
			node := fixtures.Node()
			if test.maxPods != "" {
				node.Status.Allocatable = corev1.ResourceList{corev1.ResourcePods: resource.MustParse(test.maxPods)}
			}
			b := newBed(t, node, fixtures.PodIPPool("p", 1, "10.0.0.0/24"))
			if !test.withoutAgent {
				b.startAgent()
			}
			b.pods(500)
			b.settle()
			b.Check("after the flood")
			if got := len(b.Blocks()); got != test.want {
				t.Errorf("%d blocks, want %d", got, test.want)
			}
		})
	}
}
