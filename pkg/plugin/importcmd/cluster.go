package importcmd

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/importer"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cli"
)

// reading is a list that import requests from the API server.
type reading struct {
	// kinds are requested in turn until one has objects: several groups may serve the same
	// objects.
	kinds []schema.GroupVersionKind
	// namespace and labels restrict the list; name requests one object.
	namespace, name string
	labels          client.MatchingLabels
}

func calicoReads(*cli.Env) []reading {
	v3 := schema.GroupVersion{Group: "projectcalico.org", Version: "v3"}
	v1 := schema.GroupVersion{Group: "crd.projectcalico.org", Version: "v1"}
	return []reading{
		{kinds: []schema.GroupVersionKind{v3.WithKind("IPPool"), v1.WithKind("IPPool")}},
		{kinds: []schema.GroupVersionKind{v3.WithKind("IPReservation"), v1.WithKind("IPReservation")}},
		{kinds: []schema.GroupVersionKind{v3.WithKind("IPAMConfiguration"), v1.WithKind("IPAMConfig")}},
	}
}

func ciliumReads(e *cli.Env) []reading {
	return []reading{
		{kinds: []schema.GroupVersionKind{{Version: "v1", Kind: "ConfigMap"}}, namespace: e.AgentNamespace, name: "cilium-config"},
		{kinds: []schema.GroupVersionKind{{Group: "cilium.io", Version: "v2alpha1", Kind: "CiliumPodIPPool"}}},
	}
}

func kubernetesReads(*cli.Env) []reading {
	return []reading{
		{kinds: []schema.GroupVersionKind{{Version: "v1", Kind: "ConfigMap"}}, namespace: "kube-system", name: "kubeadm-config"},
		{kinds: []schema.GroupVersionKind{{Version: "v1", Kind: "Pod"}}, namespace: "kube-system", labels: client.MatchingLabels{"component": "kube-controller-manager"}},
		{kinds: []schema.GroupVersionKind{
			{Group: "networking.x-k8s.io", Version: "v1", Kind: "ClusterCIDR"},
			{Group: "networking.k8s.io", Version: "v1alpha1", Kind: "ClusterCIDR"},
		}},
	}
}

// readCluster reads the objects to import, and the existing PodIPPools. Kinds that
// the API server does not serve count as absent.
func readCluster(ctx context.Context, e *cli.Env, readings []reading) ([]importer.Object, []v1alpha1.PodIPPool, error) {
	c, err := e.Client()
	if err != nil {
		return nil, nil, err
	}
	var objects []importer.Object
	for _, r := range readings {
		some, err := r.read(ctx, c)
		if err != nil {
			return nil, nil, e.CannotRead(err)
		}
		objects = append(objects, some...)
	}
	pools := &v1alpha1.PodIPPoolList{}
	if err := c.List(ctx, pools); err != nil && !meta.IsNoMatchError(err) {
		return nil, nil, e.CannotRead(err)
	}
	return objects, pools.Items, nil
}

func (r reading) read(ctx context.Context, c client.Reader) ([]importer.Object, error) {
	const source = "the cluster"
	for _, kind := range r.kinds {
		if r.name != "" {
			one := &unstructured.Unstructured{}
			one.SetGroupVersionKind(kind)
			err := c.Get(ctx, client.ObjectKey{Namespace: r.namespace, Name: r.name}, one)
			if apierrors.IsNotFound(err) {
				return nil, nil
			} else if err != nil {
				return nil, err
			}
			return importer.FromContent(source, one.Object), nil
		}
		all := &unstructured.UnstructuredList{}
		all.SetGroupVersionKind(kind)
		err := c.List(ctx, all, client.InNamespace(r.namespace), r.labels)
		if err != nil && !meta.IsNoMatchError(err) {
			return nil, err
		}
		var objects []importer.Object
		for _, o := range all.Items {
			objects = append(objects, importer.FromContent(source, o.Object)...)
		}
		if len(objects) > 0 {
			return objects, nil
		}
	}
	return nil, nil
}
