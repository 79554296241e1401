package clusterview

import (
	"context"
	"errors"
	"io"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/apiclient"
)

// Watched is a cache that watches keep up to date.
type Watched struct {
	cache.Cache
	// Changed receives a value after any number of changes, and Failed an error after any number of
	// failures. Synced receives a value once the cache has all objects.
	Changed, Synced chan bool
	Failed          chan error
}

// Watch watches kinds until ctx ends.
func Watch(ctx context.Context, config *rest.Config, o cache.Options, kinds ...client.Object) (*Watched, error) {
	w := &Watched{Changed: make(chan bool, 1), Synced: make(chan bool, 1), Failed: make(chan error, 1)}
	o.DefaultWatchErrorHandler = func(_ context.Context, _ *toolscache.Reflector, err error) { w.Fail(err) }
	var err error
	if w.Cache, err = apiclient.NewToolCache(config, o); err != nil {
		return nil, err
	}
	handler := toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { w.change() }, UpdateFunc: func(_, _ any) { w.change() }, DeleteFunc: func(any) { w.change() },
	}
	var received []toolscache.InformerSynced
	for _, kind := range kinds {
		informer, err := w.GetInformer(ctx, kind)
		if err != nil {
			return nil, err
		}
		registered, err := informer.AddEventHandler(handler)
		if err != nil {
			return nil, err
		}
		received = append(received, registered.HasSynced)
	}
	go func() {
		if err := w.Start(ctx); err != nil {
			w.Fail(err)
		}
	}()
	go func() { w.Synced <- toolscache.WaitForCacheSync(ctx.Done(), received...) }()
	return w, nil
}

func (w *Watched) change() {
	select {
	case w.Changed <- true:
	default:
	}
}

// Fail records an error, unless the API server ended a watch, which is then restarted.
func (w *Watched) Fail(err error) {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return
	}
	select {
	case w.Failed <- err:
	default:
	}
}
