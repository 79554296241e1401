package chart

import (
	"slices"
	"testing"
)

// Argo CD prunes what a chart no longer renders, and heeds Helm's resource-policy
// only when an Application is deleted. A pruned CRD would take all its objects
// with it, and a pruned pool would drain.
func TestArgoDoesNotPrune(t *testing.T) {
	for _, major := range majors() {
		all := renderBy(t, major, "-f", "../../examples/values-pools.yaml", "--api-versions", "cilium-pool.io/v1alpha1/PodIPPool")
		kept := slices.Concat(ofKind(t, all, "CustomResourceDefinition"), ofKind(t, all, "PodIPPool"))
		if len(kept) != 5 {
			t.Errorf("%s: %d CRDs and pools, want 3 and 2", major, len(kept))
		}
		for _, o := range kept {
			for annotation, want := range map[string]string{
				"helm.sh/resource-policy":         "keep",
				"argocd.argoproj.io/sync-options": "Prune=false",
			} {
				if got := o.GetAnnotations()[annotation]; got != want {
					t.Errorf("%s: %s %s: annotation %s is %q, want %q", major, o.GetKind(), o.GetName(), annotation, got, want)
				}
			}
		}
	}
}
