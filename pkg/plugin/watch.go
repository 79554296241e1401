package plugin

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

// bell holds one ring: something has changed since it was last heard.
type bell chan struct{}

func newBell() bell { return make(bell, 1) }

func (b bell) ring() {
	select {
	case b <- struct{}{}:
	default:
	}
}

// follow has the bell rung by every change of kinds in from, which is not started
// yet. What it returns tells when all there is of them has been shown.
func (b bell) follow(ctx context.Context, from cache.Cache, kinds ...client.Object) ([]toolscache.InformerSynced, error) {
	handler := toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { b.ring() }, UpdateFunc: func(_, _ any) { b.ring() }, DeleteFunc: func(any) { b.ring() },
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

// watchEnded separates a watch that the API server ended, and that is restarted, from
// one that broke.
func watchEnded(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || apierrors.IsResourceExpired(err) || apierrors.IsGone(err)
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
