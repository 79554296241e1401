package main

import (
	"context"
	"sync"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	k8sclient "github.com/cilium/cilium/pkg/k8s/client"
	"github.com/cilium/cilium/pkg/k8s/client/clientset/versioned"
	typedv2 "github.com/cilium/cilium/pkg/k8s/client/clientset/versioned/typed/cilium.io/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/cilium-pool/cilium-pool-operator/test/truth/wire"
)

// clientset is Cilium's client with a gate before UpdateStatus and a tap on the watch. The
// allocator uses only CiliumV2; the nil rest would panic.
type clientset struct {
	k8sclient.Clientset
	cilium versioned.Interface
	events *events
	gate   *wire.Gate
}

func (c *clientset) CiliumV2() typedv2.CiliumV2Interface {
	return &ciliumV2{CiliumV2Interface: c.cilium.CiliumV2(), parent: c}
}

type ciliumV2 struct {
	typedv2.CiliumV2Interface
	parent *clientset
}

func (c *ciliumV2) CiliumNodes() typedv2.CiliumNodeInterface {
	return &ciliumNodes{CiliumNodeInterface: c.CiliumV2Interface.CiliumNodes(), parent: c.parent}
}

type ciliumNodes struct {
	typedv2.CiliumNodeInterface
	parent *clientset
}

func (c *ciliumNodes) List(ctx context.Context, opts metav1.ListOptions) (*ciliumv2.CiliumNodeList, error) {
	list, err := c.CiliumNodeInterface.List(ctx, opts)
	if err == nil {
		for i := range list.Items {
			c.parent.events.delivered(list.Items[i].ResourceVersion)
		}
	}
	return list, err
}

func (c *ciliumNodes) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	w, err := c.CiliumNodeInterface.Watch(ctx, opts)
	if err != nil {
		return nil, err
	}
	return watch.Filter(w, func(ev watch.Event) (watch.Event, bool) {
		if cn, ok := ev.Object.(*ciliumv2.CiliumNode); ok {
			switch ev.Type {
			case watch.Added, watch.Modified:
				c.parent.events.delivered(cn.ResourceVersion)
			case watch.Deleted:
				c.parent.events.delivered("")
			}
		}
		return ev, true
	}), nil
}

func (c *ciliumNodes) UpdateStatus(ctx context.Context, cn *ciliumv2.CiliumNode, opts metav1.UpdateOptions) (*ciliumv2.CiliumNode, error) {
	if err := c.parent.gate.Pass(); err != nil {
		return nil, err
	}
	return c.CiliumNodeInterface.UpdateStatus(ctx, cn, opts)
}

// events pairs the watch's deliveries with the ones that the allocator has reported as processed
// (ipam.K8sEventRegister), so that a test can wait for it.
type events struct {
	mu       sync.Mutex
	versions []string
	handled  int
}

func (e *events) delivered(version string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.versions = append(e.versions, version)
}

// K8sEventReceived is called when an event has been processed: a deferred call in AddFunc and
// UpdateFunc, the last in DeleteFunc (pkg/ipam/crd.go).
func (e *events) K8sEventReceived(_, _, _ string, _, _ bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.handled++
}

func (e *events) K8sEventProcessed(string, string, bool) {}

// seen returns the resourceVersion that the allocator works with, or "" if it has none.
func (e *events) seen() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.handled == 0 || e.handled > len(e.versions) {
		return ""
	}
	return e.versions[e.handled-1]
}
