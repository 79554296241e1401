package export

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/apiclient"
	"github.com/cilium-pool/cilium-pool-operator/pkg/clusterview"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cli"
)

// retryAfter is the wait after a failed delivery, and the time that no other error of a watch is
// printed.
const retryAfter = 10 * time.Second

// watchPrefixes keeps the objects that readPrefixes reads up to date with watches until ctx ends,
// and the Leases of nodes if a silence reads them. These change too often to be followed.
func watchPrefixes(ctx context.Context, e *cli.Env, leases bool) (*clusterview.Watched, error) {
	config, err := e.Config()
	if err != nil {
		return nil, err
	}
	scheme, err := apiclient.Scheme()
	if err != nil {
		return nil, err
	}
	options := cache.Options{Scheme: scheme, DefaultTransform: slim, ByObject: map[client.Object]cache.ByObject{
		&coordinationv1.Lease{}: {Namespaces: map[string]cache.Config{corev1.NamespaceNodeLease: {}}},
	}}
	w, err := clusterview.Watch(ctx, config, options, &corev1.Node{}, &ciliumv2.CiliumNode{}, &v1alpha1.PodIPBlock{})
	if err == nil && leases {
		_, err = w.GetInformer(ctx, &coordinationv1.Lease{})
	}
	return w, err
}

// slim drops fields that prefixes do not need before an object is cached.
func slim(o any) (any, error) {
	if accessor, ok := o.(metav1.Object); ok {
		accessor.SetManagedFields(nil)
	}
	switch o := o.(type) {
	case *ciliumv2.CiliumNode:
		o.Spec.IPAM.Pool = nil
		o.Status = ciliumv2.NodeStatus{}
	case *corev1.Node:
		o.Status = corev1.NodeStatus{Addresses: o.Status.Addresses, Conditions: o.Status.Conditions}
	}
	return o, nil
}

// follower writes the output whenever it has changed.
type follower struct {
	target  *sink
	every   time.Duration
	errOut  io.Writer
	watched *clusterview.Watched
	dead    *silence

	last  []byte
	retry <-chan time.Time // nil: the last delivery succeeded
}

// delivered handles the result of a delivery. If standard output is gone, another try is
// useless.
func (f *follower) delivered(content []byte, err error) error {
	f.last = content
	f.retry = nil
	if err == nil {
		return nil
	}
	if f.target.file == "" {
		return err
	}
	f.complain("%v; trying again in %s", err, retryAfter)
	f.retry = time.After(retryAfter)
	return nil
}

func (f *follower) complain(format string, args ...any) {
	fmt.Fprintf(f.errOut, "kubectl cilium-pool export: "+format+"\n", args...)
}

// run continues until ctx ends. It reads nothing before the watches have delivered everything.
func (f *follower) run(ctx context.Context, read func() ([]byte, error)) error {
	changed := (<-chan bool)(nil)
	complained := time.Time{}
	look := (<-chan time.Time)(nil)
	for {
		due := false
		select {
		case <-ctx.Done():
			return nil
		case err := <-f.watched.Failed:
			if time.Since(complained) >= retryAfter {
				complained = time.Now()
				f.complain("%v. What was written may be old; trying again", err)
			}
			continue
		case <-f.watched.Synced:
			changed = f.watched.Changed
			look = f.dead.ticks()
		case <-changed:
		case <-look:
			if !f.lookAtNodes(ctx) {
				continue
			}
		case <-f.retry:
			due = true
		}
		if err := f.write(ctx, read, due); err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// write writes the output if it has changed, or is due again. Then it waits, so that an interrupt ends
// the caller's loop.
func (f *follower) write(ctx context.Context, read func() ([]byte, error), due bool) error {
	now, err := read()
	if err != nil || !due && bytes.Equal(now, f.last) {
		return err
	}
	if err = f.target.put(ctx, now); ctx.Err() == nil {
		err = f.delivered(now, err)
	}
	_ = cli.Sleep(ctx, f.every)
	return err
}

// lookAtNodes reports whether prefixes of a node are to be withdrawn, or announced again.
func (f *follower) lookAtNodes(ctx context.Context) bool {
	deaf := f.dead.deaf
	changed, err := f.dead.read(ctx, f.watched)
	if err != nil {
		return false // ctx has ended
	}
	now := f.dead.deaf
	if now && !deaf {
		f.complain("fewer than half of the nodes renew their Leases: the API server, or the way to it, has failed. Withdrawing no more")
	} else if !now && deaf {
		f.complain("half of the nodes renew their Leases again")
	}
	for _, node := range changed {
		if f.dead.is(node) {
			f.complain("node %s does not renew its Lease: withdrawing its prefixes", node)
		} else {
			f.complain("node %s renews its Lease again: announcing its prefixes", node)
		}
	}
	return len(changed) > 0
}
