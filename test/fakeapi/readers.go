package fakeapi

import (
	"context"
	"reflect"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/dump"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Live returns a reader that reads from the API server.
func (b *Cluster) Live() client.Reader { return live{b} }

type live struct{ *Cluster }

func (l live) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	l.call("get " + kindOf(obj))
	if err := l.Refuse["get "+kindOf(obj)]; err != nil {
		return err
	}
	return l.API.Get(ctx, key, obj, opts...)
}

func (l live) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return l.API.List(ctx, list, opts...)
}

// Cached returns a reader like the operator's cache: callers share the objects that it returns with
// other readers. If one of them is changed, the test fails.
func (b *Cluster) Cached() client.Reader { return cached{b} }

type cached struct{ *Cluster }

func (c cached) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	err := c.API.Get(ctx, key, obj, opts...)
	if err == nil {
		c.share(obj)
	}
	return err
}

func (c cached) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if err := c.API.List(ctx, list, opts...); err != nil {
		return err
	}
	return meta.EachListItem(list, func(item runtime.Object) error {
		c.share(item)
		return nil
	})
}

// share expects that nothing below the object's own fields is changed until the test ends: readers
// get a copy of these alone (sigs.k8s.io/controller-runtime v0.25.2, pkg/cache/internal, Get).
func (c cached) share(obj runtime.Object) {
	shared, original := reflect.New(reflect.TypeOf(obj).Elem()), obj.DeepCopyObject()
	shared.Elem().Set(reflect.ValueOf(obj).Elem())
	c.T.Cleanup(func() {
		if !equality.Semantic.DeepEqual(original, shared.Interface()) {
			c.T.Errorf("an object of the cache was changed from %+v to %+v", original, shared)
		}
	})
}

// Shared returns a value that its readers share, as a CiliumNode's View. If one of them changes it, the test fails.
func Shared[V any](b *Cluster, value V) V {
	original := dump.ForHash(value)
	b.T.Cleanup(func() {
		if now := dump.ForHash(value); now != original {
			b.T.Errorf("a shared %T was changed (-was +is):\n%s", value, cmp.Diff(original, now))
		}
	})
	return value
}
