package scheduling

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumconfig"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// Only a Node that registered with the shortage taint grows as if it were up.
func TestWithoutStartupTaints(t *testing.T) {
	const short, startup = "example.org/short", "example.org/startup"
	starting := []string{short, startup, corev1.TaintNodeNotReady, "node.cilium.io/agent-not-ready", "gpu"}
	renamed := []string{short, startup, corev1.TaintNodeNotReady, "example.org/agent", "gpu"}
	tests := map[string]struct {
		key    string
		taints []string
		offer  string
		want   []string
	}{
		"starting":                            {short, starting, "", []string{"gpu"}},
		"its agent has yet to report":         {short, starting, "0", []string{"gpu"}},
		"offers addresses":                    {short, starting, "5", starting[1:]},
		"registered without the taint":        {short, starting[1:], "", starting[1:]},
		"no such taint is configured":         {"", starting, "", starting},
		"Cilium taints with a key of its own": {short, renamed, "", []string{"gpu"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			node := fixtures.Node()
			for _, key := range test.taints {
				node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule})
			}
			if test.offer != "" {
				node.Status.Allocatable = corev1.ResourceList{v1alpha1.IPv4Resource: resource.MustParse(test.offer)}
			}
			before := node.DeepCopy()
			c := &Offering{State: state.Cluster{ShortageTaint: test.key, StartupTaints: state.SetOf([]string{startup}), Cilium: &ciliumconfig.Latest{}}}
			if slices.Contains(test.taints, "example.org/agent") {
				c.State.Cilium.Set(&ciliumconfig.Config{Data: map[string]string{"agent-not-ready-taint-key": "example.org/agent"}})
			}
			var got []string
			for _, taint := range c.WithoutStartupTaints(node).Spec.Taints {
				got = append(got, taint.Key)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("taints (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, node); diff != "" {
				t.Errorf("the Node was changed:\n%s", diff)
			}
		})
	}
}
