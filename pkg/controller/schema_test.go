package controller

import (
	"context"
	"testing"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/crds"
)

// definitions returns a CRD with this annotation, or an error.
type definitions struct {
	client.Reader
	schema  string
	deleted *metav1.Time
	err     error
}

func (d *definitions) Get(_ context.Context, _ client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	obj.(*metav1.PartialObjectMetadata).Annotations = map[string]string{crds.SchemaAnnotation: d.schema}
	obj.SetDeletionTimestamp(d.deleted)
	return d.err
}

// An operator of another version than its CRDs reports that once, and once more when it ends.
func TestSchemaCheck(t *testing.T) {
	const name = "podippools.cilium-pool.io"
	var logged []string
	ctx := log.IntoContext(context.Background(), funcr.New(func(_, args string) { logged = append(logged, args) }, funcr.Options{}))
	registry := prometheus.NewRegistry()
	metrics, err := newOperatorMetrics(registry)
	if err != nil {
		t.Fatal(err)
	}
	served := &definitions{}
	check := &schemaCheck{live: served, built: map[string]string{name: "abc"}, metrics: metrics, seen: map[string]bool{}}
	resource := schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}
	for _, step := range []struct {
		why    string
		schema string
		err    error
		differ float64
		lines  int
	}{
		{"not there yet", "", apierrors.NewNotFound(resource, name), 0, 0},
		{"the same", "abc", nil, 0, 0},
		{"another", "def", nil, 1, 1},
		{"still another", "def", nil, 1, 0},
		{"cannot be read just now", "", apierrors.NewInternalError(context.Canceled), 1, 0},
		{"one without a name", "", nil, 1, 1},
		{"may not be read", "", apierrors.NewForbidden(resource, name, nil), 1, 1},
		{"the same again", "abc", nil, 0, 1},
		{"being deleted", "gone", nil, 1, 1},
		{"deleted", "", apierrors.NewNotFound(resource, name), 1, 0},
		{"made again", "abc", nil, 0, 1},
	} {
		served.schema, served.err, served.deleted, logged = step.schema, step.err, nil, nil
		if step.schema == "gone" {
			served.deleted = &metav1.Time{}
		}
		check.look(ctx)
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() == "cilium_pool_crd_schema_differs" && f.GetMetric()[0].GetGauge().GetValue() != step.differ {
				t.Errorf("%s: the gauge is not %v", step.why, step.differ)
			}
		}
		if len(logged) != step.lines {
			t.Errorf("%s: logged %q, want %d lines", step.why, logged, step.lines)
		}
	}
}
