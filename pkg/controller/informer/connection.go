package informer

import (
	"net"
	"net/http"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
)

// NewCache returns a cache for a manager whose watches have a connection of their own.
func NewCache(config *rest.Config, options cache.Options) (cache.Cache, error) {
	own, err := ownConnection(config)
	if err != nil {
		return nil, err
	}
	options.HTTPClient = own
	return cache.New(config, options)
}

// NewToolCache returns a cache that decodes CiliumNodes as NewClient does.
func NewToolCache(config *rest.Config, options cache.Options) (cache.Cache, error) {
	http, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	ciliumNodes, err := lists{config: config, http: http, scheme: options.Scheme}.all(ciliumNodeKind, ciliumv2.CNPluralName)
	if err != nil {
		return nil, err
	}
	options.HTTPClient = http
	options.NewInformer = func(from toolscache.ListerWatcher, obj runtime.Object, resync time.Duration, by toolscache.Indexers) toolscache.SharedIndexInformer {
		if _, ok := obj.(*ciliumv2.CiliumNode); ok {
			from = ciliumNodes
		}
		return toolscache.NewSharedIndexInformer(from, obj, resync, by)
	}
	return cache.New(config, options)
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
