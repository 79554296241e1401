package ciliumconfig

import (
	"context"
	"errors"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// Read keeps the last known content of each source that it may not or cannot read, and drops
// missing ones.
func TestReadKeepsWhatItCannotRead(t *testing.T) {
	const namespace = "kube-system"
	configMap := func(name string, data map[string]string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: data}
	}
	override := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "cilium.io/v2", "kind": "CiliumNodeConfig", "metadata": map[string]any{"namespace": namespace, "name": "a"},
		"spec": map[string]any{"defaults": map[string]any{ipam: "crd"}, "nodeSelector": map[string]any{}},
	}}
	forbidden, broken := apierrors.NewForbidden(schema.GroupResource{}, "", nil), errors.New("broken")
	const overrides = "overrides"
	all := []string{Name, MasqAgentName, overrides}
	for name, test := range map[string]struct {
		fails []string
		with  error
		gone  bool
		fresh bool // no earlier read
		kept  []string
	}{
		"a right is lost":              {fails: []string{Name}, with: forbidden, kept: all},
		"all rights are lost":          {fails: all, with: forbidden, kept: all},
		"all reads fail":               {fails: all, with: broken, kept: all},
		"one read fails":               {fails: []string{overrides}, with: broken, kept: all},
		"one is kept, others are gone": {fails: []string{overrides}, with: forbidden, gone: true, kept: []string{overrides}},
		"all are gone":                 {gone: true},
		"denied from the start":        {fails: all, with: forbidden, fresh: true},
		"the rest is read":             {fails: []string{overrides}, with: broken, fresh: true, kept: []string{Name, MasqAgentName}},
	} {
		t.Run(name, func(t *testing.T) {
			fails := map[string]bool{}
			funcs := interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
					if fails[key.Name] {
						return test.with
					}
					return c.Get(ctx, key, obj, opts...)
				},
				List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
					if fails[overrides] {
						return test.with
					}
					return c.List(ctx, list, opts...)
				},
			}
			objects := []client.Object{
				configMap(Name, map[string]string{ipam: "crd", "enable-ip-masq-agent": "true"}),
				configMap(MasqAgentName, map[string]string{"config": "nonMasqueradeCIDRs: [10.0.0.0/8]"}), override,
			}
			c := fake.NewClientBuilder().WithObjects(objects...).WithInterceptorFuncs(funcs).Build()
			full, err := Read(t.Context(), c, namespace, nil)
			if err != nil || full.Data == nil || full.NonMasquerade == nil || full.Overrides == nil {
				t.Fatalf("read %+v, %v", full, err)
			}
			for i := 0; test.gone && i < len(objects); i++ {
				if err := c.Delete(t.Context(), objects[i]); err != nil {
					t.Fatal(err)
				}
			}
			last := full
			if test.fresh {
				last = nil
			}
			for _, source := range test.fails {
				fails[source] = true
			}
			got, err := Read(t.Context(), c, namespace, last)
			if failed := errors.Is(test.with, broken); failed != errors.Is(err, broken) || !failed && err != nil {
				t.Errorf("error %v", err)
			}
			want := &Config{Known: !test.fresh || !fails[Name], Denied: got.Denied}
			for _, source := range test.kept {
				switch source {
				case Name:
					want.Data = full.Data
				case MasqAgentName:
					want.NonMasquerade = full.NonMasquerade
				case overrides:
					want.Overrides = full.Overrides
				}
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("got %+v, want %+v", got, want)
			}
			if (len(got.Denied) > 0) != errors.Is(test.with, forbidden) {
				t.Errorf("denied: %q", got.Denied)
			}
		})
	}
}
