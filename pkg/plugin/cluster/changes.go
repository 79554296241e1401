package cluster

import (
	"context"
	"errors"
	"io"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Changes receives one value after any number of changes.
type Changes chan struct{}

// NewChanges returns a channel without a change.
func NewChanges() Changes { return make(Changes, 1) }

// Notify signals a change.
func (c Changes) Notify() {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Watch signals every change of kinds in from, which has not been started yet. It returns
// functions that report when all objects have been received.
func (c Changes) Watch(ctx context.Context, from cache.Cache, kinds ...client.Object) ([]toolscache.InformerSynced, error) {
	handler := toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { c.Notify() }, UpdateFunc: func(_, _ any) { c.Notify() }, DeleteFunc: func(any) { c.Notify() },
	}
	var synced []toolscache.InformerSynced
	for _, kind := range kinds {
		informer, err := from.GetInformer(ctx, kind)
		if err != nil {
			return nil, err
		}
		registered, err := informer.AddEventHandler(handler)
		if err != nil {
			return nil, err
		}
		synced = append(synced, registered.HasSynced)
	}
	return synced, nil
}

// WatchEnded reports whether the API server ended a watch, which is then restarted, as opposed
// to an error.
func WatchEnded(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || apierrors.IsResourceExpired(err) || apierrors.IsGone(err)
}

// Pause waits for d, or until ctx ends.
func Pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
