package apiclient

import (
	"context"
	"fmt"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	ciliumv2alpha1 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// PodIPPoolKinds are the versions of CiliumPodIPPools, the preferred one first: v2alpha1 goes once
// v2 has come. v2 has all fields of v2alpha1, so both decode as the Go type of v2alpha1. Patches are
// merge patches, so they keep the other fields of v2.
func PodIPPoolKinds() []schema.GroupVersionKind {
	return []schema.GroupVersionKind{
		ciliumv2.SchemeGroupVersion.WithKind(ciliumv2alpha1.CPIPKindDefinition),
		ciliumv2alpha1.SchemeGroupVersion.WithKind(ciliumv2alpha1.CPIPKindDefinition),
	}
}

// ServedPodIPPools returns the version of CiliumPodIPPools that the API server serves.
func ServedPodIPPools(mapper meta.RESTMapper) (schema.GroupVersionKind, error) {
	var err error
	for _, kind := range PodIPPoolKinds() {
		_, err = mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if !unserved(err) {
			return kind, err
		}
	}
	return schema.GroupVersionKind{}, err
}

// ServedScheme returns the scheme of a cache, which lists and watches CiliumPodIPPools in one version:
// the one that the API server serves, if it serves any.
func ServedScheme(mapper meta.RESTMapper) (*runtime.Scheme, error) {
	kind, err := ServedPodIPPools(mapper)
	if meta.IsNoMatchError(err) {
		return Scheme()
	}
	if err != nil {
		return nil, err
	}
	return schemeWith(kind.GroupVersion())
}

// unserved reports whether the API server does not serve the version of a request. Of one that
// discovery has seen before, it says so without a Status.
func unserved(err error) bool {
	return meta.IsNoMatchError(err) || apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// addPodIPPools adds CiliumPodIPPools to a scheme, in one version.
func addPodIPPools(version schema.GroupVersion) func(*runtime.Scheme) error {
	return func(s *runtime.Scheme) error {
		s.AddKnownTypes(version, &ciliumv2alpha1.CiliumPodIPPool{}, &ciliumv2alpha1.CiliumPodIPPoolList{})
		metav1.AddToGroupVersion(s, version)
		return nil
	}
}

// podIPPoolClient reads and writes CiliumPodIPPools in the version that the API server serves: it
// tries a client of each.
type podIPPoolClient []client.Client

func newPodIPPoolClient(config *rest.Config, options client.Options) (podIPPoolClient, error) {
	var clients podIPPoolClient
	for _, kind := range PodIPPoolKinds() {
		scheme, err := schemeWith(kind.GroupVersion())
		if err != nil {
			return nil, err
		}
		options.Scheme = scheme
		c, err := client.New(config, options)
		if err != nil {
			return nil, err
		}
		clients = append(clients, c)
	}
	return clients, nil
}

func (p podIPPoolClient) do(request func(client.Client) error) error {
	var err error
	for _, c := range p {
		if err = request(c); !unserved(err) {
			return err
		}
	}
	return err
}

// isPodIPPool reports whether an object or a list is of CiliumPodIPPools.
func isPodIPPool(obj runtime.Object) bool {
	switch obj.(type) {
	case *ciliumv2alpha1.CiliumPodIPPool, *ciliumv2alpha1.CiliumPodIPPoolList:
		return true
	}
	return false
}

// PodIPPools lists and watches CiliumPodIPPools in the version that the API server serves at that
// time.
func (l Lists) PodIPPools() (toolscache.ListerWatcher, error) {
	var sources []toolscache.ListerWatcherWithContext
	for _, kind := range PodIPPoolKinds() {
		scheme, err := schemeWith(kind.GroupVersion())
		if err != nil {
			return nil, err
		}
		source, err := Lists{Config: l.Config, HTTP: l.HTTP, Scheme: scheme}.All(kind, ciliumv2alpha1.CPIPPluralName)
		if err != nil {
			return nil, err
		}
		sources = append(sources, toolscache.ToListerWatcherWithContext(source))
	}
	return l.followed(ciliumv2alpha1.CPIPKindDefinition, &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return firstServed(sources, func(source toolscache.ListerWatcherWithContext) (runtime.Object, error) {
				return source.ListWithContext(ctx, options)
			})
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return firstServed(sources, func(source toolscache.ListerWatcherWithContext) (watch.Interface, error) {
				return source.WatchWithContext(ctx, options)
			})
		},
	}), nil
}

func firstServed[T any](sources []toolscache.ListerWatcherWithContext, request func(toolscache.ListerWatcherWithContext) (T, error)) (T, error) {
	var result T
	err := fmt.Errorf("no version of %s is known", ciliumv2alpha1.CPIPPluralName)
	for _, source := range sources {
		if result, err = request(source); !unserved(err) {
			break
		}
	}
	return result, err
}
