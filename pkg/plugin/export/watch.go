package export

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/apiclient"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cli"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cluster"
)

// retryAfter is the wait after a failed delivery, and the time that the same error is not logged
// again.
const retryAfter = 10 * time.Second

// watchPrefixes keeps the objects that readPrefixes reads up to date with watches until ctx
// ends. Changes are signalled.
func watchPrefixes(ctx context.Context, e *cli.Env) (client.Reader, cluster.Changes, error) {
	config, err := e.Config()
	if err != nil {
		return nil, nil, err
	}
	scheme, err := apiclient.Scheme()
	if err != nil {
		return nil, nil, err
	}
	lost := complaint{out: e.ErrOut}
	cached, err := apiclient.NewToolCache(config, cache.Options{
		Scheme:           scheme,
		DefaultTransform: slim,
		DefaultWatchErrorHandler: func(_ context.Context, _ *toolscache.Reflector, err error) {
			if cluster.WatchEnded(err) {
				return
			}
			lost.say(err, "What was written may be old")
		},
	})
	if err != nil {
		return nil, nil, err
	}
	changed := cluster.NewChanges()
	if _, err := changed.Watch(ctx, cached, &corev1.Node{}, &ciliumv2.CiliumNode{}, &v1alpha1.PodIPBlock{}); err != nil {
		return nil, nil, err
	}
	go func() {
		// It ends with ctx, without an error.
		_ = cached.Start(ctx)
	}()
	// It is false only if ctx has ended.
	cached.WaitForCacheSync(ctx)
	changed.Notify()
	return cached, changed, nil
}

// slim drops fields that prefixes do not need before an object is cached.
func slim(o any) (any, error) {
	if accessor, ok := o.(metav1.Object); ok {
		accessor.SetManagedFields(nil)
	}
	switch o := o.(type) {
	case *ciliumv2.CiliumNode:
		o.Spec.IPAM.Pool, o.Status = nil, ciliumv2.NodeStatus{}
	case *corev1.Node:
		o.Status = corev1.NodeStatus{Addresses: o.Status.Addresses}
	}
	return o, nil
}

// complaint logs errors without repeating the same one.
type complaint struct {
	out io.Writer

	mu   sync.Mutex
	last time.Time
}

func (c *complaint) say(err error, consequence string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.last) < retryAfter {
		return
	}
	c.last = time.Now()
	fmt.Fprintf(c.out, "kubectl cilium-pool export: %v. %s; trying again\n", err, consequence)
}

// follower writes the output whenever it has changed.
type follower struct {
	to     *sink
	every  time.Duration
	errOut io.Writer

	last  []byte
	retry <-chan time.Time // nil: the last delivery succeeded
}

// delivered handles the result of a delivery. If standard output is gone, another try is
// useless.
func (f *follower) delivered(content []byte, err error) error {
	f.last, f.retry = content, nil
	switch {
	case err == nil:
		return nil
	case f.to.file == "":
		return err
	}
	fmt.Fprintf(f.errOut, "kubectl cilium-pool export: %v; trying again in %s\n", err, retryAfter)
	f.retry = time.After(retryAfter)
	return nil
}

// run continues until ctx ends.
func (f *follower) run(ctx context.Context, changed cluster.Changes, read func() ([]byte, error)) error {
	for {
		due := false
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-f.retry:
			due = true
		}
		wrote, err := f.step(ctx, due, read)
		switch {
		case ended(ctx):
			return nil
		case err != nil:
			return err
		case !wrote:
			continue
		}
		cluster.Pause(ctx, f.every)
	}
}

// step writes changes, or repeats a due write.
func (f *follower) step(ctx context.Context, due bool, read func() ([]byte, error)) (wrote bool, err error) {
	now, err := read()
	if err != nil || !due && bytes.Equal(now, f.last) {
		return false, err
	}
	err = f.to.put(ctx, now)
	if ended(ctx) {
		return true, err
	}
	return true, f.delivered(now, err)
}

func ended(ctx context.Context) bool { return ctx.Err() != nil }
