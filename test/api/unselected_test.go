package api

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestUnselectedNodes(t *testing.T) {
	tests := map[string]struct{ policy, want string }{
		"all of it":      {"{policy: Drain, maxConcurrent: 5}", ""},
		"nothing":        {"{}", ""},
		"retain":         {"{policy: Retain}", ""},
		"another policy": {"{policy: Evict}", "spec.unselectedNodes.policy: Unsupported value"},
		"none at all":    {"{policy: Drain, maxConcurrent: 0}", "spec.unselectedNodes.maxConcurrent"},
		"too many":       {"{policy: Drain, maxConcurrent: 100001}", "spec.unselectedNodes.maxConcurrent"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			o := object(t, "PodIPPool", "pool", ipv4Pool+", unselectedNodes: "+tc.policy+"}")
			_, err := resource(t, "podippools").Create(t.Context(), o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			expect(t, err, tc.want)
		})
	}
}
