package informer

import (
	"net"
	"net/http"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
)

// NewCache returns a cache for a manager whose watches have a connection of their own.
func NewCache(config *rest.Config, options cache.Options) (cache.Cache, error) {
	var err error
	if options.HTTPClient, err = ownConnection(config); err != nil {
		return nil, err
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
