package apiclient

import (
	"fmt"
	"net"
	"net/http"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// Cache is a cache with watches that Reads follows.
type Cache struct {
	cache.Cache
	Reads *Reads
}

// NewCache returns a *Cache for a manager. Its watches have a connection of their own.
func NewCache(config *rest.Config, options cache.Options) (cache.Cache, error) {
	connection, err := OwnConnection(config)
	if err != nil {
		return nil, err
	}
	reads := &Reads{Now: time.Now}
	options.HTTPClient = connection
	options.NewInformer = func(source toolscache.ListerWatcher, obj runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
		kind := fmt.Sprintf("%T", obj)
		if gvk, err := apiutil.GVKForObject(obj, options.Scheme); err == nil {
			kind = gvk.Kind
		}
		return toolscache.NewSharedIndexInformer(reads.Of(kind, source), obj, resync, indexers)
	}
	source, err := cache.New(config, options)
	return &Cache{source, reads}, err
}

// NewToolCache returns a cache that decodes CiliumNodes as NewClient does.
func NewToolCache(config *rest.Config, options cache.Options) (cache.Cache, error) {
	http, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	field := fields.Everything()
	for obj, by := range options.ByObject {
		if _, ok := obj.(*ciliumv2.CiliumNode); ok && by.Field != nil {
			field = by.Field
		}
	}
	lists := Lists{Config: config, HTTP: http, Scheme: options.Scheme}
	ciliumNodes, err := lists.Of(ciliumNodeKind, ciliumv2.CNPluralName, metav1.NamespaceAll, labels.Everything(), field)
	if err != nil {
		return nil, err
	}
	options.HTTPClient = http
	options.NewInformer = func(source toolscache.ListerWatcher, obj runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
		if _, ok := obj.(*ciliumv2.CiliumNode); ok {
			source = ciliumNodes
		}
		return toolscache.NewSharedIndexInformer(source, obj, resync, indexers)
	}
	return cache.New(config, options)
}

// OwnConnection returns an HTTP client for watches, which shares no connection with other
// clients. A busy API server closes a watch if it cannot send an event for a tenth of a second
// (k8s.io/apiserver v0.36.3, pkg/storage/cacher, cacheWatcher.add). That happens often if the
// watch shares its connection with the responses to many writes. The Lease stays on the
// connection of the writes: if these do not get through, the leader must lose it.
func OwnConnection(config *rest.Config) (*http.Client, error) {
	config = rest.CopyConfig(config)
	if config.Dial == nil { // client-go shares transports between equal configs, but not if they have a dialer
		config.Dial = (&net.Dialer{Timeout: dialTimeout, KeepAlive: dialTimeout}).DialContext
	}
	return rest.HTTPClientFor(config)
}

// dialTimeout is client-go's timeout for dialing and its keep-alive period
// (transport/cache.go, v0.36.3).
const dialTimeout = 30 * time.Second

// Lists builds the ListWatches of reflectors.
type Lists struct {
	Config *rest.Config
	HTTP   *http.Client
	Scheme *runtime.Scheme
	// Reads, if set, follows them.
	Reads *Reads
}

// Of lists and watches a kind in a namespace, "" for all.
func (l Lists) Of(gvk schema.GroupVersionKind, resource, namespace string, selector labels.Selector, field fields.Selector) (toolscache.ListerWatcher, error) {
	c, err := l.client(gvk)
	if err != nil {
		return nil, fmt.Errorf("watching %s: %w", resource, err)
	}
	return l.followed(gvk.Kind, listerWatcher(c, resource, namespace, selector, field)), nil
}

func (l Lists) followed(kind string, source toolscache.ListerWatcher) toolscache.ListerWatcher {
	if l.Reads == nil {
		return source
	}
	return l.Reads.Of(kind, source)
}

// All lists and watches all objects of a kind.
func (l Lists) All(gvk schema.GroupVersionKind, resource string) (toolscache.ListerWatcher, error) {
	return l.Of(gvk, resource, metav1.NamespaceAll, labels.Everything(), fields.Everything())
}

// BoundPods lists and watches pods of all namespaces. They have only the fields of pod.
func (l Lists) BoundPods(field fields.Selector) (toolscache.ListerWatcher, error) {
	c, err := l.clientOf("/api", corev1.SchemeGroupVersion, runtime.ContentTypeProtobuf, pruned{l.codecs().WithoutConversion()})
	if err != nil {
		return nil, fmt.Errorf("watching pods: %w", err)
	}
	return l.followed("Pod", listerWatcher(c, "pods", metav1.NamespaceAll, labels.Everything(), field)), nil
}

func listerWatcher(c rest.Interface, resource, namespace string, selector labels.Selector, field fields.Selector) toolscache.ListerWatcher {
	return toolscache.NewFilteredListWatchFromClient(c, resource, namespace, func(o *metav1.ListOptions) {
		o.LabelSelector = selector.String()
		o.FieldSelector = field.String()
	})
}

// client returns a client of a kind: of CiliumNodes a lenient one, which reads JSON whatever
// client-go prefers (KUBE_FEATURE_ClientsPreferCBOR). Kinds outside the scheme are unstructured.
func (l Lists) client(gvk schema.GroupVersionKind) (rest.Interface, error) {
	if gvk != ciliumNodeKind {
		return apiutil.RESTClientForGVK(gvk, false, !l.Scheme.Recognizes(gvk), l.Config, l.codecs(), l.HTTP)
	}
	return l.clientOf("/apis", gvk.GroupVersion(), runtime.ContentTypeJSON, lenient{l.codecs().WithoutConversion()})
}

func (l Lists) clientOf(path string, version schema.GroupVersion, contentType string, serializer runtime.NegotiatedSerializer) (rest.Interface, error) {
	config := rest.CopyConfig(l.Config)
	config.APIPath = path
	config.GroupVersion = &version
	config.ContentType = contentType
	config.NegotiatedSerializer = serializer
	return rest.RESTClientForConfigAndClient(config, l.HTTP)
}

func (l Lists) codecs() serializer.CodecFactory { return serializer.NewCodecFactory(l.Scheme) }
