package informer

import (
	"net"
	"net/http"
	"reflect"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
)

// NewCache returns a cache for a manager whose watches have a connection of their own. It
// decodes PodIPBlocks in one pass, and of Nodes only what it keeps. It lists and watches all of
// both, whatever the options select.
func NewCache(config *rest.Config, options cache.Options) (cache.Cache, error) {
	own, err := ownConnection(config)
	if err != nil {
		return nil, err
	}
	options.HTTPClient = own
	l := lists{config: config, http: own, scheme: options.Scheme}
	blocks, err := l.of(v1alpha1.GroupVersion.WithKind("PodIPBlock"), "podipblocks", fields.Everything())
	if err != nil {
		return nil, err
	}
	nodes, err := l.pruned(corev1.SchemeGroupVersion.WithKind("Node"), node, "nodes", metav1.NamespaceAll, labels.Everything(), fields.Everything())
	if err != nil {
		return nil, err
	}
	options.NewInformer = informersFrom(map[reflect.Type]toolscache.ListerWatcher{
		reflect.TypeFor[*v1alpha1.PodIPBlock](): blocks, reflect.TypeFor[*corev1.Node](): nodes,
	})
	return cache.New(config, options)
}

// NewToolCache returns a cache that decodes CiliumNodes as NewClient does.
func NewToolCache(config *rest.Config, options cache.Options) (cache.Cache, error) {
	http, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	kind := ciliumv2.SchemeGroupVersion.WithKind(ciliumv2.CNKindDefinition)
	ciliumNodes, err := lists{config: config, http: http, scheme: options.Scheme}.of(kind, ciliumv2.CNPluralName, fields.Everything())
	if err != nil {
		return nil, err
	}
	options.HTTPClient = http
	options.NewInformer = informersFrom(map[reflect.Type]toolscache.ListerWatcher{reflect.TypeFor[*ciliumv2.CiliumNode](): ciliumNodes})
	return cache.New(config, options)
}

// informersFrom makes informers that list and watch some types by own.
func informersFrom(own map[reflect.Type]toolscache.ListerWatcher) func(toolscache.ListerWatcher, runtime.Object, time.Duration, toolscache.Indexers) toolscache.SharedIndexInformer {
	return func(from toolscache.ListerWatcher, obj runtime.Object, resync time.Duration, by toolscache.Indexers) toolscache.SharedIndexInformer {
		if w, ok := own[reflect.TypeOf(obj)]; ok {
			from = w
		}
		return toolscache.NewSharedIndexInformer(from, obj, resync, by)
	}
}

// ownConnection returns an HTTP client for watches, which shares no connection with other
// clients. A busy API server closes a watch to which it could not send an event for a tenth of
// a second (k8s.io/apiserver v0.36.3, pkg/storage/cacher, cacheWatcher.add), which happens
// often if the watch shares its connection with the responses to many writes. The Lease stays
// on the connection of the writes: a leader whose writes do not get through must lose it.
func ownConnection(config *rest.Config) (*http.Client, error) {
	config = rest.CopyConfig(config)
	if config.Dial == nil { // client-go shares transports between equal configs, but not if they have a dialer
		config.Dial = (&net.Dialer{Timeout: dialTimeout, KeepAlive: dialTimeout}).DialContext
	}
	return rest.HTTPClientFor(config)
}

// dialTimeout is client-go's timeout for dialing and its keep-alive period
// (transport/cache.go, v0.36.3).
const dialTimeout = 30 * time.Second
