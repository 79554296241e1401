package clusterread

import (
	"context"
	"fmt"
	"net/netip"
	"testing"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	ciliumv2alpha1 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2alpha1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
)

// asked has a pod, a namespace, and a CiliumPodIPPool where it knows of such.
type asked struct {
	client.Reader
	known bool
}

func (a asked) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	o := client.ListOptions{}
	o.ApplyOptions(opts)
	labelled := metav1.ObjectMeta{Name: "a", Labels: map[string]string{"app": "web"}, Annotations: map[string]string{"a": "b", "ipam.cilium.io/ip-pool": "blue"}}
	switch l := list.(type) {
	case *corev1.PodList:
		if o.FieldSelector != nil {
			l.Items = []corev1.Pod{{ObjectMeta: labelled}}
		}
	case *corev1.NamespaceList:
		l.Items = []corev1.Namespace{{ObjectMeta: labelled}}
	case *discoveryv1.EndpointSliceList:
		return apierrors.NewForbidden(schema.GroupResource{Resource: "endpointslices"}, "", nil)
	case *ciliumv2.CiliumEgressGatewayPolicyList:
		l.Items = []ciliumv2.CiliumEgressGatewayPolicy{{ObjectMeta: labelled, Spec: ciliumv2.CiliumEgressGatewayPolicySpec{EgressGateway: &ciliumv2.EgressGateway{EgressIP: "192.0.2.1"}}}}
	case *unstructured.UnstructuredList:
		if l.GetKind() == "IPAddressPool" {
			l.Items = []unstructured.Unstructured{{Object: map[string]any{"metadata": map[string]any{"name": "p", "namespace": "m"}, "spec": map[string]any{"addresses": []any{"192.0.2.8/29"}}}}}
		}
	case *ciliumv2alpha1.CiliumPodIPPoolList:
		if !a.known {
			return &meta.NoKindMatchError{GroupKind: schema.GroupKind{Kind: "CiliumPodIPPool"}}
		}
		l.Items = []ciliumv2alpha1.CiliumPodIPPool{{ObjectMeta: labelled}}
	}
	return nil
}

// The objects that select a pod's Cilium pool are read where agents have several pools. Neighbors are read as far as they may be.
func TestReadAsks(t *testing.T) {
	for name, test := range map[string]struct {
		mode         ciliumnode.Mode
		known        bool
		pools, other int
	}{
		"multi-pool":           {ciliumnode.MultiPool, true, 1, 1},
		"the kind is unknown":  {ciliumnode.MultiPool, false, 0, 1},
		"agents have one only": {ciliumnode.CRD, true, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := Reader{Client: asked{known: test.known}, AgentSelector: labels.Everything(), Mode: test.mode}
			s, err := r.Read(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			neighbors := fmt.Sprint(s.Neighbors.In(netip.MustParsePrefix("192.0.2.0/24")))
			if want := "[192.0.2.1 of CiliumEgressGatewayPolicy a 192.0.2.8/29 of IPAddressPool m/p]"; neighbors != want {
				t.Errorf("neighbors %s, want %s", neighbors, want)
			}
			if len(s.CiliumPools) != test.pools || len(s.Namespaces) != test.other || len(s.Pods[0].Labels) != test.other || len(s.Pods[0].Annotations) != 1 {
				t.Errorf("%d CiliumPodIPPools, %d namespaces, pods %v", len(s.CiliumPools), len(s.Namespaces), s.Pods)
			}
		})
	}
}
