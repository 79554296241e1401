package controller

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
)

// The operator decides by cilium-config whether it may start. It waits only while that cannot be
// read.
func TestCheckMode(t *testing.T) {
	forbidden, broken := apierrors.NewForbidden(schema.GroupResource{}, "", nil), errors.New("broken")
	const ok, wrong, waits = "", "wrong mode", "waits"
	for name, test := range map[string]struct {
		mode      string // "": there is no cilium-config
		config    error
		overrides error
		want      string
	}{
		"right":                                  {mode: "crd"},
		"wrong":                                  {mode: "cluster-pool", want: wrong},
		"no configuration":                       {},
		"forbidden":                              {mode: "crd", config: forbidden, want: waits},
		"broken":                                 {mode: "crd", config: broken, want: waits},
		"no overrides allowed":                   {mode: "crd", overrides: forbidden},
		"no overrides readable":                  {mode: "crd", overrides: broken},
		"no overrides readable, wrong":           {mode: "cluster-pool", overrides: broken, want: wrong},
		"no configuration, no overrides allowed": {overrides: forbidden},
	} {
		t.Run(name, func(t *testing.T) {
			builder := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
					if test.config != nil {
						return test.config
					}
					return c.Get(ctx, key, obj, opts...)
				},
				List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
					if test.overrides != nil {
						return test.overrides
					}
					return c.List(ctx, list, opts...)
				},
			})
			if test.mode != "" {
				builder.WithObjects(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "cilium-config"}, Data: map[string]string{"ipam": test.mode}})
			}
			err := Prerequisites{Live: builder.Build(), Mode: ciliumnode.CRD, CiliumNamespace: "kube-system"}.ReadMode(t.Context())
			got := ok
			switch {
			case errors.Is(err, ErrWrongMode):
				got = wrong
			case err != nil:
				got = waits
			}
			if got != test.want {
				t.Errorf("%q: %v, want %q", got, err, test.want)
			}
		})
	}
}
