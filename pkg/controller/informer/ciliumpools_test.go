package informer

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	ciliumv2alpha1 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2alpha1"
	slimmetav1 "github.com/cilium/cilium/pkg/k8s/slim/k8s/apis/meta/v1"
	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// In modes without Cilium pools the feed keeps no pool requests of pods, and watches no namespaces.
func TestLabelsAreHeldWherePodsChoosePools(t *testing.T) {
	for _, mode := range ciliumnode.Modes() {
		f := newBed()
		f.Mode = mode
		p := fixtures.Pod("a", "1", "n")
		p.Labels = map[string]string{"app": "web"}
		if err := f.podStore().Add(p); err != nil {
			t.Fatal(err)
		}
		picked := f.Pods.PoolChoices("n", state.PickingOf(fixtures.Picking("blue", map[string]string{"app": "web"}, nil)))
		if held := len(picked) > 0; held != mode.ManyPools() {
			t.Errorf("%s mode: labels are held: %t", mode, held)
		}
		isNamespace := func(w Watch) bool { _, is := w.Object.(*corev1.Namespace); return is }
		if watched := slices.ContainsFunc(f.Watches(logr.Discard()), isNamespace); watched != mode.ManyPools() {
			t.Errorf("%s mode: namespaces are watched: %t", mode, watched)
		}
	}
}

// A CiliumPodIPPool that selects other pods than before queues all nodes, and so does a changed
// namespace for the nodes of its pods. The CiliumPodIPPool itself is queued in any case.
func TestPickingOtherwiseIsNews(t *testing.T) {
	f, nodes, pools := newBed(), 0, 0
	f.Mode, f.CiliumPools = ciliumnode.MultiPool, state.NewCiliumPools()
	f.queues[NodeQueue], f.queues[CiliumPoolQueue] = listening{add: func(string) { nodes++ }}, listening{add: func(string) { pools++ }}
	f.nodes["n"] = nodeFacts{}
	store := f.ciliumPoolStore()
	blue := fixtures.CiliumPodIPPool("blue", 30)
	steps := []struct {
		what string
		do   func() error
		news bool
	}{
		{"one without a selector", func() error { return store.Add(blue) }, false},
		{"a selector", func() error {
			blue = blue.DeepCopy()
			blue.Spec.PodSelector = &slimmetav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
			return store.Update(blue)
		}, true},
		{"other ranges", func() error {
			blue = blue.DeepCopy()
			blue.Spec.IPv4.CIDRs[0] = "10.9.0.0/28"
			return store.Update(blue)
		}, false},
		{"another family", func() error {
			blue = blue.DeepCopy()
			blue.Spec.IPv4, blue.Spec.IPv6 = nil, &ciliumv2alpha1.IPv6PoolSpec{MaskSize: 120}
			return store.Update(blue)
		}, true},
		{"the end", func() error { return store.Delete(blue) }, true},
		{"a namespace without pods", func() error {
			deliver(f, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team", Labels: map[string]string{"a": "b"}}}, false)
			return nil
		}, false},
		{"a namespace with one", func() error {
			f.Pods.Set(state.ReadPodWithRequest(fixtures.Pod("a", "1", "n")), fixtures.Noon())
			deliver(f, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default", Labels: map[string]string{"a": "b"}}}, false)
			return nil
		}, true},
	}
	for i, step := range steps {
		nodes, pools = 0, 0
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		if (nodes > 0) != step.news || (pools > 0) != (i < 5) {
			t.Errorf("%s: %d nodes and %d pools are reconciled", step.what, nodes, pools)
		}
	}
}

func TestStrippedNamespace(t *testing.T) {
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team", UID: types.UID("u"), Labels: map[string]string{"a": "b"},
		Annotations: map[string]string{"a": "b", "ipam.cilium.io/ip-pool": "blue", "ipam.cilium.io/ipv4-pool": "green", "ipam.cilium.io/ipv6-pool": "red", "ipam.cilium.io/require-pool-match": "true"}}}
	before := state.PoolRequestOf(&n.ObjectMeta)
	if _, err := stripNamespace(n); err != nil {
		t.Fatal(err)
	}
	if state.PoolRequestOf(&n.ObjectMeta) != before || len(n.Annotations) != 4 {
		t.Errorf("kept are %v %v", n.Labels, n.Annotations)
	}
}

// An API server that does not serve CiliumPodIPPools delays no start, and is asked again until it
// does.
func TestCiliumPoolsComeLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var known atomic.Bool
		synced := make(chan struct{})
		close(synced)
		feed, pools := newBed(), atomic.Int32{}
		feed.Mode, feed.CiliumPools = ciliumnode.MultiPool, state.NewCiliumPools()
		feed.queues[CiliumPoolQueue] = listening{add: func(string) { pools.Add(1) }}
		cached := &initialList{}
		cached.setStored()
		feed.Cache = slowCache{synced: cached}
		feed.From = Sources{
			Pods: slowWatch(synced, fixtures.Pod("a", "1", "n")), Agents: slowWatch(synced, fixtures.AgentPod("1", "c", true)),
			CiliumNodes: slowWatch(synced, fixtures.CiliumNode("n", "5", "10.0.0.0/30")),
			CiliumPools: slowWatch(synced, fixtures.CiliumPodIPPool("blue", 28)), HasCiliumPools: func() (bool, error) { return known.Load(), nil },
			HasServiceCIDRs: func() (bool, error) { return known.Load(), nil },
		}
		close(feed.connected)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- feed.Start(ctx) }()
		time.Sleep(time.Minute)
		if feed.Ledger.CiliumNode("n") == nil || feed.CiliumPools.Known() || feed.CiliumPools.Get("blue") != nil || pools.Load() > 0 {
			t.Error("it does not go on without, or goes on with what is not there")
		}
		known.Store(true)
		time.Sleep(2 * servedEvery)
		if !feed.CiliumPools.Known() || feed.CiliumPools.Get("blue") == nil || pools.Load() == 0 {
			t.Error("what came later is not known")
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
