package export

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/apiclient"
	"github.com/cilium-pool/cilium-pool-operator/pkg/audit/clusterread"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cli"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cluster"
)

// retryAfter is the wait after a failed delivery, and the time that no other error of a watch is
// printed.
const retryAfter = 10 * time.Second

// watchPrefixes keeps the objects that readPrefixes reads up to date with watches until ctx ends.
func watchPrefixes(ctx context.Context, e *cli.Env) (*cluster.Watched, error) {
	config, err := e.Config()
	if err != nil {
		return nil, err
	}
	scheme, err := apiclient.Scheme()
	if err != nil {
		return nil, err
	}
	return cluster.Watch(ctx, config, cache.Options{Scheme: scheme, DefaultTransform: slim}, &corev1.Node{}, &ciliumv2.CiliumNode{}, &v1alpha1.PodIPBlock{})
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

// follower writes the output whenever it has changed.
type follower struct {
	to      *sink
	every   time.Duration
	errOut  io.Writer
	watched *cluster.Watched

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
	f.complain("%v; trying again in %s", err, retryAfter)
	f.retry = time.After(retryAfter)
	return nil
}

func (f *follower) complain(format string, args ...any) {
	fmt.Fprintf(f.errOut, "kubectl cilium-pool export: "+format+"\n", args...)
}

// run continues until ctx ends. It reads nothing before the watches have delivered everything.
func (f *follower) run(ctx context.Context, read func() ([]byte, error)) error {
	changed, complained := (<-chan bool)(nil), time.Time{}
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
		case <-changed:
		case <-f.retry:
			due = true
		}
		now, err := read()
		write := err == nil && (due || !bytes.Equal(now, f.last))
		if write {
			if err = f.to.put(ctx, now); ctx.Err() == nil {
				err = f.delivered(now, err)
			}
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
		if write {
			_ = clusterread.Sleep(ctx, f.every) // an interrupt ends the loop
		}
	}
}
