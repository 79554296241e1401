package informer

import (
	"context"
	"maps"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
)

// NewClient returns a client that decodes CiliumNodes by ciliumnode.Decode and PodIPBlocks in
// one pass, both without managed fields. It reads CiliumNodes from the API server, past any cache.
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
	l := lists{config: config, http: options.HTTPClient, scheme: options.Scheme}
	w := writer{Client: c, kinds: map[schema.GroupVersionKind]written{}}
	for kind, plural := range map[schema.GroupVersionKind]string{
		ciliumv2.SchemeGroupVersion.WithKind(ciliumv2.CNKindDefinition): ciliumv2.CNPluralName,
		v1alpha1.GroupVersion.WithKind("PodIPBlock"):                    "podipblocks",
	} {
		api, err := l.client(kind)
		if err != nil {
			return nil, err
		}
		w.kinds[kind] = written{api, plural}
	}
	return w, nil
}

// writer writes the kinds that it knows itself, where a write has no options.
type writer struct {
	client.Client
	kinds map[schema.GroupVersionKind]written
}

// written is a kind without namespaces.
type written struct {
	api    rest.Interface
	plural string
}

func (w writer) of(obj client.Object) (written, bool) {
	kind, err := w.GroupVersionKindFor(obj)
	r, ok := w.kinds[kind]
	return r, ok && err == nil
}

// Get reads an object.
func (w writer) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	r, ok := w.of(obj)
	if _, is := obj.(*ciliumv2.CiliumNode); !ok || !is || len(opts) > 0 {
		return w.Client.Get(ctx, key, obj, opts...)
	}
	return r.api.Get().Resource(r.plural).Name(key.Name).Do(ctx).Into(obj)
}

// List reads a list.
func (w writer) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if _, is := list.(*ciliumv2.CiliumNodeList); !is {
		return w.Client.List(ctx, list, opts...)
	}
	r, options := w.kinds[ciliumv2.SchemeGroupVersion.WithKind(ciliumv2.CNKindDefinition)], client.ListOptions{}
	options.ApplyOptions(opts)
	err := r.api.Get().Resource(r.plural).VersionedParams(options.AsListOptions(), metav1.ParameterCodec).Do(ctx).Into(list)
	if apierrors.IsNotFound(err) {
		return w.Client.List(ctx, list, opts...) // which can tell that the API server does not know the kind
	}
	return err
}

// Create creates an object, and decodes the response into it.
func (w writer) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	r, ok := w.of(obj)
	if !ok || len(opts) > 0 {
		return w.Client.Create(ctx, obj, opts...)
	}
	var body any = obj
	if cn, ok := obj.(*ciliumv2.CiliumNode); ok {
		var err error
		if body, err = withoutEmpty(cn); err != nil {
			return err
		}
	}
	return r.api.Post().Resource(r.plural).SetHeader("Content-Type", runtime.ContentTypeJSON).Body(body).Do(ctx).Into(obj)
}

// withoutEmpty encodes a CiliumNode to be created, without its status, which a create cannot
// set, and without empty fields of its spec. Cilium's type encodes all of them, and the API
// server would store each twice, as a value and in the managed fields, and send it to every
// watch.
func withoutEmpty(cn *ciliumv2.CiliumNode) ([]byte, error) {
	data, err := json.Marshal(cn) // not DefaultUnstructuredConverter, which loses Cilium's prefixes
	if err != nil {
		return nil, err
	}
	var content map[string]any
	if err := json.Unmarshal(data, &content); err != nil {
		return nil, err
	}
	content["apiVersion"], content["kind"] = ciliumv2.SchemeGroupVersion.String(), ciliumv2.CNKindDefinition
	delete(content, "status")
	if spec, ok := content["spec"].(map[string]any); ok {
		dropEmpty(spec["ipam"])
		dropEmpty(spec)
	}
	return json.Marshal(content)
}

// dropEmpty removes the fields of an object that are empty objects.
func dropEmpty(of any) {
	fields, _ := of.(map[string]any)
	maps.DeleteFunc(fields, func(_ string, value any) bool {
		inner, is := value.(map[string]any)
		return is && len(inner) == 0
	})
}

// Patch patches an object, and decodes the response into it.
func (w writer) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	r, ok := w.of(obj)
	if !ok || len(opts) > 0 {
		return w.Client.Patch(ctx, obj, patch, opts...)
	}
	return r.patch(ctx, obj, patch)
}

// patch patches an object or a subresource of it.
func (r written) patch(ctx context.Context, obj client.Object, patch client.Patch, subresource ...string) error {
	data, err := patch.Data(obj)
	if err != nil {
		return err
	}
	return r.api.Patch(patch.Type()).Resource(r.plural).Name(obj.GetName()).SubResource(subresource...).Body(data).Do(ctx).Into(obj)
}

// Status returns a writer of status.
func (w writer) Status() client.SubResourceWriter { return statusWriter{w.Client.Status(), w} }

type statusWriter struct {
	client.SubResourceWriter
	writer writer
}

// Update replaces the status of an object, and decodes the response into it.
func (s statusWriter) Update(ctx context.Context, obj client.Object, opts ...client.SubResourceUpdateOption) error {
	r, ok := s.writer.of(obj)
	if !ok || len(opts) > 0 {
		return s.SubResourceWriter.Update(ctx, obj, opts...)
	}
	return r.api.Put().Resource(r.plural).Name(obj.GetName()).SubResource("status").Body(obj).Do(ctx).Into(obj)
}

// Patch patches the status of an object, and decodes the response into it.
func (s statusWriter) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
	r, ok := s.writer.of(obj)
	if !ok || len(opts) > 0 {
		return s.SubResourceWriter.Patch(ctx, obj, patch, opts...)
	}
	return r.patch(ctx, obj, patch, "status")
}
