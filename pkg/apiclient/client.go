// Package apiclient has the clients and caches that reach the API server: a value that Cilium's type
// of CiliumNodes cannot hold ends none of their requests.
package apiclient

import (
	"context"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	ciliumv2alpha1 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
)

// Scheme knows every kind the operator handles.
func Scheme() (*runtime.Scheme, error) { return schemeWith(ciliumv2alpha1.SchemeGroupVersion) }

// schemeWith returns a scheme with CiliumPodIPPools of one version.
func schemeWith(podIPPools schema.GroupVersion) (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, ciliumv2.AddToScheme, addPodIPPools(podIPPools), v1alpha1.AddToScheme} {
		if err := add(s); err != nil {
			return nil, err
		}
	}
	return s, nil
}

var ciliumNodeKind = ciliumv2.SchemeGroupVersion.WithKind(ciliumv2.CNKindDefinition)

// NewClient returns a client that decodes CiliumNodes by ciliumnode.Decode, except the responses
// to creates and updates, and reads them from the API server, past any cache. It reads and writes
// CiliumPodIPPools in the version that the API server serves.
func NewClient(config *rest.Config, options client.Options) (client.Client, error) {
	if options.HTTPClient == nil {
		http, err := rest.HTTPClientFor(config)
		if err != nil {
			return nil, err
		}
		options.HTTPClient = http
	}
	c, err := client.New(config, options)
	if err != nil {
		return nil, err
	}
	api, err := Lists{Config: config, HTTP: options.HTTPClient, Scheme: options.Scheme}.client(ciliumNodeKind)
	if err != nil {
		return nil, err
	}
	options.Mapper = c.RESTMapper()
	options.Cache = nil
	podIPPools, err := newPodIPPoolClient(config, options)
	return lenientClient{c, api, podIPPools}, err
}

// NewLiveClient returns a NewClient that reads from the API server, on the connection of a manager's writes.
func NewLiveClient(mgr cluster.Cluster) (client.Client, error) {
	return NewClient(mgr.GetConfig(), client.Options{HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
}

// lenientClient reads and patches CiliumNodes by api, and CiliumPodIPPools by podIPPools.
type lenientClient struct {
	client.Client
	api        rest.Interface
	podIPPools podIPPoolClient
}

// GroupVersionKindFor returns the kind of an object: of CiliumPodIPPools the one that is served.
func (c lenientClient) GroupVersionKindFor(obj runtime.Object) (schema.GroupVersionKind, error) {
	if isPodIPPool(obj) {
		return ServedPodIPPools(c.RESTMapper())
	}
	return c.Client.GroupVersionKindFor(obj)
}

// Create creates an object.
func (c lenientClient) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	if isPodIPPool(obj) {
		return c.podIPPools.do(func(c client.Client) error { return c.Create(ctx, obj, opts...) })
	}
	return c.Client.Create(ctx, obj, opts...)
}

// Delete deletes an object.
func (c lenientClient) Delete(ctx context.Context, obj client.Object, opts ...client.DeleteOption) error {
	if isPodIPPool(obj) {
		return c.podIPPools.do(func(c client.Client) error { return c.Delete(ctx, obj, opts...) })
	}
	return c.Client.Delete(ctx, obj, opts...)
}

// Get reads an object.
func (c lenientClient) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if isPodIPPool(obj) {
		return c.podIPPools.do(func(c client.Client) error { return c.Get(ctx, key, obj, opts...) })
	}
	if _, ok := obj.(*ciliumv2.CiliumNode); !ok || len(opts) > 0 {
		return c.Client.Get(ctx, key, obj, opts...)
	}
	return c.api.Get().Resource(ciliumv2.CNPluralName).Name(key.Name).Do(ctx).Into(obj)
}

// List reads a list.
func (c lenientClient) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if isPodIPPool(list) {
		return c.podIPPools.do(func(c client.Client) error { return c.List(ctx, list, opts...) })
	}
	if _, ok := list.(*ciliumv2.CiliumNodeList); !ok {
		return c.Client.List(ctx, list, opts...)
	}
	options := client.ListOptions{}
	options.ApplyOptions(opts)
	err := c.api.Get().Resource(ciliumv2.CNPluralName).VersionedParams(options.AsListOptions(), metav1.ParameterCodec).Do(ctx).Into(list)
	if apierrors.IsNotFound(err) {
		return c.Client.List(ctx, list, opts...) // it reports an unknown kind
	}
	return err
}

// Patch patches an object, and decodes the response into it.
func (c lenientClient) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	if isPodIPPool(obj) {
		return c.podIPPools.do(func(c client.Client) error { return c.Patch(ctx, obj, patch, opts...) })
	}
	if _, ok := obj.(*ciliumv2.CiliumNode); !ok || len(opts) > 0 {
		return c.Client.Patch(ctx, obj, patch, opts...)
	}
	return c.patch(ctx, obj, patch)
}

// patch patches a CiliumNode or a subresource of it.
func (c lenientClient) patch(ctx context.Context, obj client.Object, patch client.Patch, subresource ...string) error {
	data, err := patch.Data(obj)
	if err != nil {
		return err
	}
	return c.api.Patch(patch.Type()).Resource(ciliumv2.CNPluralName).Name(obj.GetName()).SubResource(subresource...).Body(data).Do(ctx).Into(obj)
}

// Status returns a writer of status.
func (c lenientClient) Status() client.SubResourceWriter { return lenientStatus{c.Client.Status(), c} }

type lenientStatus struct {
	client.SubResourceWriter
	client lenientClient
}

// Patch patches the status of an object, and decodes the response into it.
func (s lenientStatus) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
	if _, ok := obj.(*ciliumv2.CiliumNode); !ok || len(opts) > 0 {
		return s.SubResourceWriter.Patch(ctx, obj, patch, opts...)
	}
	return s.client.patch(ctx, obj, patch, "status")
}
