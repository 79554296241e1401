package world

import (
	"context"
	"fmt"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/adopt"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
)

// cliClient is a client for everything that the plugin reads.
type cliClient struct{ live }

// Get reads an object, the default mode of agents on Nodes that no label names, or the settings
// that operators publish.
func (d cliClient) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	switch obj := obj.(type) {
	case *corev1.ConfigMap:
		return d.send(&call{verb: "get", key: key.String(), do: func() error {
			obj.Data = map[string]string{"ipam": "crd", "enable-endpoint-routes": "true"}
			return nil
		}})
	case *coordinationv1.Lease:
		return d.send(&call{verb: "get", key: key.String(), do: func() error {
			settings := d.in().processes.settings()
			body, err := settings.Publish()
			obj.Labels = map[string]string{v1alpha1.ModeLabel: string(ciliumnode.CRD)}
			obj.Annotations = map[string]string{v1alpha1.SettingsAnnotation: body}
			return err
		}})
	}
	return d.live.Get(ctx, key, obj, opts...)
}

// Patch writes an object, unless it is a dry run.
func (d cliClient) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	if o := (&client.PatchOptions{}).ApplyOptions(opts); len(o.DryRun) > 0 {
		return d.send(&call{verb: "get", kind: kindOf(obj), key: keyOf(obj), sub: "dry-run", do: func() error { return nil }})
	}
	return d.live.Patch(ctx, obj, patch, opts...)
}

// List reads all objects of a kind.
func (d cliClient) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	o := (&client.ListOptions{}).ApplyOptions(opts)
	w := d.in()
	return d.send(&call{verb: "list", key: o.Namespace, do: func() error {
		switch l := list.(type) {
		case *corev1.PodList:
			l.Items = nil
			for _, key := range w.api.Keys(KindPod) {
				pod := w.api.Get(KindPod, key).(*corev1.Pod)
				if o.LabelSelector == nil && needsAddress(pod) || o.LabelSelector != nil && isAgent(pod) {
					l.Items = append(l.Items, *pod.DeepCopy())
				}
			}
		case *corev1.NodeList:
			l.Items = allOf[corev1.Node](w, KindNode)
		case *ciliumv2.CiliumNodeList:
			l.Items = allOf[ciliumv2.CiliumNode](w, KindCiliumNode)
		case *v1alpha1.PodIPPoolList:
			l.Items = allOf[v1alpha1.PodIPPool](w, KindPool)
		case *v1alpha1.PodIPBlockList:
			l.Items = allOf[v1alpha1.PodIPBlock](w, KindBlock)
		case *networkingv1.ServiceCIDRList:
			l.Items = allOf[networkingv1.ServiceCIDR](w, KindServiceCIDR)
		case *corev1.ServiceList, *ciliumv2.CiliumLoadBalancerIPPoolList, *coordinationv1.LeaseList:
			// no Services here, and no other Lease
		case *policyv1.PodDisruptionBudgetList:
			l.Items = nil
		case *unstructured.UnstructuredList:
			l.Items = w.migration.nodeConfigs()
		default:
			panic(fmt.Sprintf("the simulated API server does not list %T", list))
		}
		return nil
	}})
}

// allOf returns copies of all objects of a kind.
func allOf[T any](w *World, kind Kind) []T {
	var out []T
	for _, key := range w.api.Keys(kind) {
		out = append(out, *any(w.api.Get(kind, key).DeepCopyObject()).(*T))
	}
	return out
}

// nodeConfigs returns the CiliumNodeConfigs that make nodes start in their old mode.
func (mg *migration) nodeConfigs() []unstructured.Unstructured {
	var out []unstructured.Unstructured
	for _, m := range mg.machines {
		if m.starts == adopt.None {
			continue
		}
		out = append(out, unstructured.Unstructured{Object: map[string]any{
			"metadata": map[string]any{"name": m.name},
			"spec": map[string]any{
				"defaults":     map[string]any{"ipam": string(m.starts)},
				"nodeSelector": map[string]any{"matchLabels": map[string]any{"kubernetes.io/hostname": m.name}},
			},
		}})
	}
	return out
}
