package api

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/api/schema"
)

// changed tries one in part changes of every field, on a new object and on an existing one. The
// API server refuses a wrong value with a message that names the field, unless its rules cannot
// express the reason; then the operator reports it. Every field has a change that is accepted.
func changed(t *testing.T, kind, plural string, spec map[string]any, values map[string]schema.Values, part int) {
	t.Helper()
	of, err := schema.Of(kind)
	if err != nil {
		t.Fatal(err)
	}
	changes, err := of.Changes(spec, spec, values)
	if err != nil {
		t.Fatal(err)
	}
	client, dry := resource(t, plural), []string{metav1.DryRunAll}
	var accepted []string
	try := func(done string, answer func(spec map[string]any) (*unstructured.Unstructured, error)) {
		for i := 0; i < len(changes); i += part {
			c := changes[i]
			o, err := answer(c.Apply(spec))
			judge(t, c, done, o, err)
			if err == nil && !c.Wrong {
				accepted = append(accepted, c.Field)
			}
		}
	}
	try("created", func(spec map[string]any) (*unstructured.Unstructured, error) {
		o := build(kind, spec)
		_, err := client.Create(t.Context(), o, metav1.CreateOptions{DryRun: dry})
		return o, err
	})
	stored := create(t, client, build(kind, spec))
	try("updated", func(spec map[string]any) (*unstructured.Unstructured, error) {
		o := stored.DeepCopy()
		o.Object["spec"] = spec
		_, err := client.Update(t.Context(), o, metav1.UpdateOptions{DryRun: dry})
		return o, err
	})
	for _, field := range of.Fields() {
		below := func(f string) bool { return f == field || strings.HasPrefix(f, field+".") }
		if part == 1 && !slices.ContainsFunc(accepted, below) {
			t.Errorf("no change of %s is ever accepted", field)
		}
	}
}

// build returns an object with a spec. A PodIPBlock is named after its CIDR.
func build(kind string, spec map[string]any) *unstructured.Unstructured {
	name := "changed"
	if text, ok := spec["cidr"].(string); ok {
		if cidr, err := netip.ParsePrefix(text); err == nil {
			name = crd.BlockName(cidr)
		}
	}
	o := &unstructured.Unstructured{Object: map[string]any{"spec": runtime.DeepCopyJSON(spec)}}
	o.SetAPIVersion(v1alpha1.GroupVersion.String())
	o.SetKind(kind)
	o.SetName(name)
	return o
}

// judge holds the API server's answer to a change.
func judge(t *testing.T, c schema.Change, done string, o *unstructured.Unstructured, err error) {
	t.Helper()
	var refused apierrors.APIStatus
	switch {
	case !c.Wrong && (err == nil || apierrors.IsInvalid(err)): // other fields may forbid it
	case err == nil:
		if problem := unread(o); problem == nil || !c.Named([]metav1.StatusCause{{Message: problem.Error()}}) {
			t.Errorf("%s, %s: it is wrong and accepted, and the operator reports %v", c, done, problem)
		}
	case !apierrors.IsInvalid(err) || !errors.As(err, &refused):
		t.Errorf("%s, %s: failed rather than being refused: %v", c, done, err)
	case !c.Named(refused.Status().Details.Causes):
		t.Errorf("%s, %s: no message names the field: %v", c, done, err)
	}
}

// unread returns the reason for which the operator cannot use an object as it stands. It
// reports it in the object's conditions.
func unread(o *unstructured.Unstructured) error {
	convert := runtime.DefaultUnstructuredConverter.FromUnstructured
	if o.GetKind() == "PodIPBlock" {
		var block v1alpha1.PodIPBlock
		if err := convert(o.Object, &block); err != nil {
			return err
		}
		_, err := crd.BlockFrom(&block)
		return err
	}
	var pool v1alpha1.PodIPPool
	if err := convert(o.Object, &pool); err != nil {
		return err
	}
	p, err := crd.PoolFrom(&pool, crd.Defaults{})
	return errors.Join(err, p.Problem())
}

func TestLongEveryChangeOfAPool(t *testing.T) {
	changed(t, "PodIPPool", "podippools", schema.PoolExample(), schema.PoolValues(), 1)
}

func TestSomeChangesOfAPool(t *testing.T) {
	changed(t, "PodIPPool", "podippools", schema.PoolExample(), schema.PoolValues(), 10)
}

func TestEveryChangeOfABlock(t *testing.T) {
	changed(t, "PodIPBlock", "podipblocks", schema.BlockExample(), schema.BlockValues(), 1)
}
