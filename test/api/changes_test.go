package api

import (
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/sim/changes/schema"
)

// answers compares, for one in part changes of an existing object and of a newly created one, the
// API server's response with the assumption of make changes.
func answers(t *testing.T, kind, plural, name string, spec map[string]any, values map[string]schema.Values, part int) {
	t.Helper()
	rules, err := schema.Of(kind)
	if err != nil {
		t.Fatal(err)
	}
	changes, err := rules.Changes(spec, spec, values)
	if err != nil {
		t.Fatal(err)
	}
	client := resource(t, plural)
	stored := create(t, client, of(kind, name, spec))
	for i, c := range changes {
		if i%part != 0 {
			continue
		}
		next := stored.DeepCopy()
		next.Object["spec"] = c.Apply(spec)
		created := of(kind, name, c.Apply(spec))
		if kind == "PodIPPool" {
			created.SetName("created")
		} else {
			created.SetName("192.0.2.0-24") // of no CIDR here
		}
		sameAnswer(t, client, rules, c, next, stored)
		sameAnswer(t, client, rules, c, created, nil)
	}
	t.Logf("%d changes of %d fields, one in %d tried", len(changes), len(rules.Fields()), part)
}

func of(kind, name string, spec map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"spec": runtime.DeepCopyJSON(spec)}}
	o.SetAPIVersion(v1alpha1.GroupVersion.String())
	o.SetKind(kind)
	o.SetName(name)
	return o
}

// sameAnswer tries an object without storing it.
func sameAnswer(t *testing.T, client dynamic.ResourceInterface, rules *schema.Schema, c schema.Change, now, old *unstructured.Unstructured) {
	t.Helper()
	dry := []string{metav1.DryRunAll}
	var err error
	var before map[string]any
	what := "created"
	if old != nil {
		what, before = "updated", old.Object
		_, err = client.Update(t.Context(), now, metav1.UpdateOptions{DryRun: dry})
	} else {
		_, err = client.Create(t.Context(), now, metav1.CreateOptions{DryRun: dry})
	}
	if err != nil && !apierrors.IsInvalid(err) {
		t.Errorf("%s, %s: failed rather than being refused: %v", c, what, err)
		return
	}
	expected := rules.Refusal(t.Context(), runtime.DeepCopyJSON(now.Object), before)
	if (err != nil) != (len(expected) > 0) {
		t.Errorf("%s, %s: the API server says %v, and make changes goes by %v", c, what, err, fmt.Sprint(expected))
	}
}

// The API server's answers to every change of every field are the ones assumed by the simulated
// cluster of make changes.
func TestLongEveryChangeOfAPool(t *testing.T) {
	answers(t, "PodIPPool", "podippools", "changed", schema.PoolExample(), schema.PoolValues(), 1)
}

func TestSomeChangesOfAPool(t *testing.T) {
	answers(t, "PodIPPool", "podippools", "changed", schema.PoolExample(), schema.PoolValues(), 10)
}

func TestEveryChangeOfABlock(t *testing.T) {
	answers(t, "PodIPBlock", "podipblocks", "10.0.1.64-30", schema.BlockExample(), schema.BlockValues(), 1)
}
