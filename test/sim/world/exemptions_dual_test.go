package world

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/test/agent"
)

// TestAwaited checks that unbound pods keep a node's blocks only in dual stack, only while one
// family is exhausted and the other is not, and only where they could run.
func TestAwaited(t *testing.T) {
	both := []agent.Family{agent.IPv4, agent.IPv6}
	for name, test := range map[string]struct {
		families []agent.Family
		v4, v6   int    // that the Node offers
		only     string // the node that the pods want
		bound    bool
		want     int
	}{
		"IPv4 is exhausted":          {families: both, v6: 4, want: 2},
		"IPv6 is exhausted":          {families: both, v4: 4, want: 2},
		"both are":                   {families: both},
		"none is":                    {families: both, v4: 4, v6: 4},
		"in single stack":            {families: both[:1]},
		"the pods want another node": {families: both, v6: 4, only: "n2"},
		"they are bound":             {families: both, v4: 2, v6: 4, bound: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := small(t, func(c *Config) { c.Families, c.Scheduling = test.families, &Scheduling{Pods: 2} })
			node := w.api.Get(KindNode, "n1").DeepCopyObject().(*corev1.Node)
			node.Status.Allocatable = corev1.ResourceList{
				state.OfferResource(ipalloc.IPv4): *resource.NewQuantity(int64(test.v4), resource.DecimalSI),
				state.OfferResource(ipalloc.IPv6): *resource.NewQuantity(int64(test.v6), resource.DecimalSI),
			}
			w.must(w.api.Update(node, true))
			for _, slot := range w.sched.slots {
				w.sched.newPod(slot, test.only)
				if test.bound {
					pod := w.sched.pod(slot).DeepCopy()
					pod.Spec.NodeName = "n1"
					w.must(w.api.Update(pod, false))
				}
			}
			if got := w.offers.awaited(w.machine("n1")); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}

// TestDropRefused checks that pods are removed only in dual stack, in multi-pool mode, and only
// if they have no address.
func TestDropRefused(t *testing.T) {
	both := []agent.Family{agent.IPv4, agent.IPv6}
	for name, test := range map[string]struct {
		families []agent.Family
		mode     ciliumnode.Mode
		has      bool // an address
		want     bool
	}{
		"a pod without an address": {families: both, mode: ciliumnode.MultiPool, want: true},
		"it has one":               {families: both, mode: ciliumnode.MultiPool, has: true},
		"in single stack":          {families: both[:1], mode: ciliumnode.MultiPool},
		"in crd mode":              {families: both, mode: ciliumnode.CRD},
	} {
		t.Run(name, func(t *testing.T) {
			w := small(t, func(c *Config) { c.Families, c.Settings.Mode = test.families, test.mode })
			m := w.machine("n1")
			m.kubelet.newPod("p1", "")
			if test.has {
				m.endpoints["p1"] = &endpoint{pod: m.kubelet.podObject("p1"), v4: first.Addr().Next()}
			}
			got := w.quiescence.dropRefused()
			if pod := m.kubelet.podObject("p1"); got != test.want || (pod == nil || pod.DeletionTimestamp != nil) != test.want {
				t.Errorf("removed %t (%v), want %t", got, pod, test.want)
			}
		})
	}
}
