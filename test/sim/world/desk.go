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
	"github.com/cilium-pool/cilium-pool-operator/pkg/config"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
)

// desk is a client for everything that the plugin reads.
type desk struct{ live }

// Get reads an object, the default mode of agents on Nodes that no label names, or the settings
// that operators publish.
func (d desk) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	switch obj := obj.(type) {
	case *corev1.ConfigMap:
		return d.send(&call{verb: "get", key: key.String(), do: func() error {
			obj.Data = map[string]string{"ipam": "crd", "enable-endpoint-routes": "true"}
			return nil
		}})
	case *coordinationv1.Lease:
		return d.send(&call{verb: "get", key: key.String(), do: func() error {
			settings := d.in().settings()
			body, err := settings.Publish()
			obj.Labels = map[string]string{v1alpha1.ModeLabel: string(ciliumnode.CRD)}
			obj.Annotations = map[string]string{v1alpha1.SettingsAnnotation: body}
			return err
		}})
	}
	return d.live.Get(ctx, key, obj, opts...)
}

// settings returns those of the leading operator.
func (w *World) settings() config.Settings {
	if h := w.lease.holder; h != nil {
		return h.settings
	}
	return w.cfg.Settings
}

// Patch writes an object, unless it is a dry run.
func (d desk) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	if o := (&client.PatchOptions{}).ApplyOptions(opts); len(o.DryRun) > 0 {
		return d.send(&call{verb: "get", kind: kindOf(obj), key: keyOf(obj), sub: "dry-run", do: func() error { return nil }})
	}
	return d.live.Patch(ctx, obj, patch, opts...)
}

// Delete deletes an object. An agent whose pod is deleted ends.
func (d desk) Delete(ctx context.Context, obj client.Object, opts ...client.DeleteOption) error {
	if kindOf(obj) != KindPod {
		return d.live.Delete(ctx, obj, opts...)
	}
	o := (&client.DeleteOptions{}).ApplyOptions(opts)
	return d.send(&call{verb: "delete", kind: KindPod, key: keyOf(obj), do: func() error {
		return d.in().restartAgent(keyOf(obj), o.Preconditions)
	}})
}

// eviction is the subresource of pods that requests an eviction.
const eviction = "eviction"

// SubResource supports evictions only.
func (d desk) SubResource(string) client.SubResourceClient { return evictions{d: d} }

type evictions struct {
	client.SubResourceClient
	d desk
}

// Create evicts a pod.
func (e evictions) Create(_ context.Context, pod, body client.Object, _ ...client.SubResourceCreateOption) error {
	requested := body.(*policyv1.Eviction)
	return e.d.send(&call{verb: "create", sub: eviction, kind: KindPod, key: keyOf(pod), do: func() error {
		return e.d.in().evict(keyOf(pod), requested.DeleteOptions.Preconditions)
	}})
}

// List reads all objects of a kind.
func (d desk) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	o := (&client.ListOptions{}).ApplyOptions(opts)
	w := d.in()
	return d.send(&call{verb: "list", key: o.Namespace, do: func() error {
		defer w.mover.read.take(list, o.LabelSelector != nil)
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
		case *networkingv1.ServiceCIDRList, *corev1.ServiceList, *ciliumv2.CiliumLoadBalancerIPPoolList, *coordinationv1.LeaseList:
			// no Services here, and no other Lease
		case *policyv1.PodDisruptionBudgetList:
			l.Items = nil // evictions are refused by chance
		case *unstructured.UnstructuredList:
			l.Items = w.nodeConfigs()
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
func (w *World) nodeConfigs() []unstructured.Unstructured {
	var out []unstructured.Unstructured
	for _, m := range w.machines {
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
