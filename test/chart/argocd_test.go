package chart

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Argo CD prunes objects that a chart no longer renders, and obeys Helm's resource-policy only when
// an Application is deleted; a Flux Kustomization with the rendered chart never obeys it. A pruned
// CRD would delete all its objects, and a pruned pool would drain.
func TestGitOpsDoesNotPrune(t *testing.T) {
	for _, major := range majors() {
		all := renderBy(t, major, "-f", "../../examples/values-pools.yaml", "--api-versions", "cilium-pool.io/v1alpha1/PodIPPool")
		kept := slices.Concat(ofKind(t, all, "CustomResourceDefinition"), ofKind(t, all, "PodIPPool"))
		if len(kept) != 4 {
			t.Errorf("%s: %d CRDs and pools, want 2 and 2", major, len(kept))
		}
		for _, o := range kept {
			for annotation, want := range map[string]string{
				"helm.sh/resource-policy":           "keep",
				"argocd.argoproj.io/sync-options":   "Prune=false",
				"kustomize.toolkit.fluxcd.io/prune": "disabled",
			} {
				if got := o.GetAnnotations()[annotation]; got != want {
					t.Errorf("%s: %s %s: annotation %s is %q, want %q", major, o.GetKind(), o.GetName(), annotation, got, want)
				}
			}
		}
	}
}

// Argo CD renders again once the API server serves the CRDs. Then the chart renders the pools of
// its values itself, which must not restart the operator. It has no hooks, as Argo CD would change
// their order.
func TestArgoSecondSync(t *testing.T) {
	args := []string{"-f", "../../examples/values-pools.yaml", "--include-crds"}
	first := render(t, args...)
	second := render(t, append(args, "--api-versions", "cilium-pool.io/v1alpha1", "--api-versions", "cilium-pool.io/v1alpha1/PodIPPool")...)
	template := func(all []*unstructured.Unstructured) corev1.PodTemplateSpec {
		return typed[appsv1.Deployment](t, ofKind(t, all, "Deployment")[0]).Spec.Template
	}
	if diff := cmp.Diff(template(first), template(second)); diff != "" {
		t.Errorf("the second sync replaces the operator's pods (-first +second):\n%s", diff)
	}
	for _, o := range slices.Concat(first, second) {
		if hook := o.GetAnnotations()["helm.sh/hook"]; hook != "" {
			t.Errorf("%s %s is a hook: %s", o.GetKind(), o.GetName(), hook)
		}
	}
}
