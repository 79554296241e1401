package controller

import (
	"context"
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
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumpool"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// A pod's own annotations go before those of its namespace, and those of a family
// before those of both, as Cilium has it.
func TestAsked(t *testing.T) {
	tests := map[string]struct {
		pod, namespace map[string]string
		want           [2]string
	}{
		"nothing":           {},
		"both families":     {pod: map[string]string{poolAnnotation: "blue"}, want: [2]string{"blue", "blue"}},
		"one family":        {pod: map[string]string{v6PoolAnnotation: "blue"}, want: [2]string{ipalloc.IPv6: "blue"}},
		"its own first":     {pod: map[string]string{poolAnnotation: "blue", v4PoolAnnotation: "green"}, want: [2]string{"green", "blue"}},
		"the namespace":     {namespace: map[string]string{poolAnnotation: "blue"}, want: [2]string{"blue", "blue"}},
		"the pod first":     {pod: map[string]string{v4PoolAnnotation: "green"}, namespace: map[string]string{poolAnnotation: "blue"}, want: [2]string{"green", "blue"}},
		"back to default":   {pod: map[string]string{poolAnnotation: "default"}, namespace: map[string]string{poolAnnotation: "blue"}},
		"other annotations": {pod: map[string]string{"ipam.cilium.io/skip-masquerade": "true"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pods, nothing := NewPods(), wants{}
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "a", UID: "a", Annotations: test.pod}}
			pod.Spec.NodeName = "n"
			pods.Set(readAsking(pod), noon())
			namespace := wantsOf(&metav1.ObjectMeta{Annotations: test.namespace})
			if nodes := pods.SetNamespace("team", namespace); (len(nodes) > 0) != (namespace != nothing) {
				t.Errorf("the namespace is news for %v", nodes)
			}
			if nodes := pods.SetNamespace("team", namespace); len(nodes) > 0 {
				t.Errorf("the same again is news for %v", nodes)
			}
			asked := pods.Asked("n", nil)
			for _, f := range ipalloc.Families() {
				if got := asked.pool("team/a", f); got != test.want[f] {
					t.Errorf("%s: asks for %q, want %q", f, got, test.want[f])
				}
			}
			if again := readAsking(pod); pods.Set(again, noon()) {
				t.Error("the same pod again is news")
			}
			pod.Annotations = map[string]string{poolAnnotation: "red"}
			if !pods.Set(readAsking(pod), noon()) || pods.Asked("n", nil).pool("team/a", ipalloc.IPv4) != "red" {
				t.Error("another annotation is no news")
			}
			pods.SetNamespace("team", nothing)
			if len(pods.namespaces) > 0 {
				t.Errorf("namespaces are kept that ask for nothing: %v", pods.namespaces)
			}
		})
	}
}

// picking is a CiliumPodIPPool of IPv4 that picks pods and namespaces by their
// labels; nil: by none.
func picking(name string, pods, namespaces map[string]string) *ciliumpool.View {
	obj := ciliumPodIPPool(name, 30)
	if pods != nil {
		obj.Spec.PodSelector = &slimmetav1.LabelSelector{MatchLabels: pods}
	}
	if namespaces != nil {
		obj.Spec.NamespaceSelector = &slimmetav1.LabelSelector{MatchLabels: namespaces}
	}
	return ciliumpool.Read(obj)
}

// Pods that name no pool are picked by labels, as Cilium has it: where more than
// one picks a pod, it gets no address at all.
func TestPicked(t *testing.T) {
	type labelled = map[string]string
	web, prod := labelled{"app": "web"}, labelled{"env": "prod"}
	six := picking("six", web, nil)
	six.MaskSize = [2]int{ipalloc.IPv6: six.MaskSize[ipalloc.IPv4]}
	strict, names := labelled{requireAnnotation: "true"}, labelled{poolAnnotation: "red"}
	tests := map[string]struct {
		pools            []*ciliumpool.View
		annotations, of  labelled // the pod's, and its namespace's
		want             string   // of IPv4
		wantSix          string
		unlabelled, gone bool // the pod has no label; its namespace is unknown
	}{
		"nobody picks":            {},
		"by the pod":              {pools: []*ciliumpool.View{picking("blue", web, nil)}, want: "blue"},
		"by the namespace":        {pools: []*ciliumpool.View{picking("blue", nil, prod)}, want: "blue"},
		"by both":                 {pools: []*ciliumpool.View{picking("blue", web, prod)}, want: "blue"},
		"the namespace is not":    {pools: []*ciliumpool.View{picking("blue", web, web)}},
		"the pod is not":          {pools: []*ciliumpool.View{picking("blue", prod, prod)}},
		"all pods":                {pools: []*ciliumpool.View{picking("blue", labelled{}, nil)}, unlabelled: true, want: "blue"},
		"by its name":             {pools: []*ciliumpool.View{picking("blue", labelled{"io.kubernetes.pod.name": "a"}, nil)}, want: "blue"},
		"by its namespace's name": {pools: []*ciliumpool.View{picking("blue", labelled{"io.kubernetes.pod.namespace": "team"}, nil)}, want: "blue"},
		"the default one":         {pools: []*ciliumpool.View{picking("default", web, nil)}},
		"one of another family":   {pools: []*ciliumpool.View{six}, wantSix: "six"},
		"one for each family":     {pools: []*ciliumpool.View{picking("blue", web, nil), six}, want: "blue", wantSix: "six"},
		"two":                     {pools: []*ciliumpool.View{picking("blue", web, nil), picking("green", nil, prod)}, want: noPool},
		"two, and it names one":   {pools: []*ciliumpool.View{picking("blue", web, nil), picking("green", nil, prod)}, annotations: names, want: "red", wantSix: "red"},
		"annotations go first":    {pools: []*ciliumpool.View{picking("blue", web, nil)}, of: names, want: "red", wantSix: "red"},
		"must be picked, and is":  {pools: []*ciliumpool.View{picking("blue", web, nil)}, annotations: strict, want: "blue", wantSix: noPool},
		"must be picked":          {annotations: strict, want: noPool, wantSix: noPool},
		"all of it must":          {of: strict, want: noPool, wantSix: noPool},
		"no such namespace":       {pools: []*ciliumpool.View{picking("blue", nil, prod)}, gone: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "a", UID: "a", Annotations: test.annotations, Labels: labelled{"app": "web", "tier": ""}}}
			pod.Spec.NodeName = "n"
			if test.unlabelled {
				pod.Labels = nil
			}
			team := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team", Annotations: test.of, Labels: prod}}
			pods, read := NewPods(), Asked{}
			pods.Set(readAsking(pod), noon())
			if test.gone {
				team = nil
			} else {
				pods.SetNamespace("team", wantsOf(&team.ObjectMeta))
			}
			read.Add(pod, team, test.pools)
			for by, asked := range map[string]Asked{"the operator": pods.Asked("n", test.pools), "the plugin": read} {
				if four, six := asked.pool("team/a", ipalloc.IPv4), asked.pool("team/a", ipalloc.IPv6); four != test.want || six != test.wantSix {
					t.Errorf("%s: it asks for %q and %q, want %q and %q", by, four, six, test.want, test.wantSix)
				}
			}
		})
	}
}

// Where agents have no pools to choose from nothing is held of what pods want.
func TestLabelsAreHeldInMultiPoolModeAlone(t *testing.T) {
	for _, mode := range ciliumnode.Modes() {
		f := NewFeed()
		f.Mode, f.Pods, f.Now = mode, NewPods(), noon
		f.nodes = listening{add: func(string) {}}
		p := pod("a", "1", "n")
		p.Labels = map[string]string{"app": "web"}
		if err := f.podStore().Add(p); err != nil {
			t.Fatal(err)
		}
		picked := f.Pods.Asked("n", []*ciliumpool.View{picking("blue", map[string]string{"app": "web"}, nil)})
		if held := len(picked) > 0; held != (mode == ciliumnode.MultiPool) {
			t.Errorf("%s mode: labels are held: %t", mode, held)
		}
	}
}

// A CiliumPodIPPool that picks other pods than before has all nodes looked at, and
// so has a namespace the nodes of its pods; what is kept is looked at either way.
func TestPickingOtherwiseIsNews(t *testing.T) {
	f, nodes, pools := NewFeed(), 0, 0
	f.Mode, f.Ledger, f.Pods, f.CiliumPools, f.Now = ciliumnode.MultiPool, readyLedger(), NewPods(), NewCiliumPools(), noon
	f.Pools = NewPools(defaults(), f.Ledger)
	f.nodes, f.ciliumPools = listening{add: func(string) { nodes++ }}, listening{add: func(string) { pools++ }}
	f.names["n"] = true
	store := f.ciliumPoolStore()
	blue := ciliumPodIPPool("blue", 30)
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
			f.namespace(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team", Labels: map[string]string{"a": "b"}}})
			return nil
		}, false},
		{"a namespace with one", func() error {
			f.Pods.Set(readAsking(pod("a", "1", "n")), noon())
			f.namespace(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default", Labels: map[string]string{"a": "b"}}})
			return nil
		}, true},
	}
	for i, step := range steps {
		nodes, pools = 0, 0
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		if (nodes > 0) != step.news || (pools > 0) != (i < 5) {
			t.Errorf("%s: %d nodes and %d pools are looked at", step.what, nodes, pools)
		}
	}
}

// In multi-pool mode alone namespaces are watched, and one that asks for another
// pool than before has all nodes looked at.
func TestNamespacesAreWatched(t *testing.T) {
	for _, mode := range ciliumnode.Modes() {
		f := NewFeed()
		f.Mode = mode
		watched := false
		for _, w := range f.Watches(logr.Discard()) {
			_, isNamespace := w.Object.(*corev1.Namespace)
			watched = watched || isNamespace
		}
		if watched != (mode == ciliumnode.MultiPool) {
			t.Errorf("%s mode: namespaces are watched: %t", mode, watched)
		}
	}
}

func TestStrippedNamespace(t *testing.T) {
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team", UID: types.UID("u"), Labels: map[string]string{"a": "b"},
		Annotations: map[string]string{"a": "b", "ipam.cilium.io/ip-pool": "blue", "ipam.cilium.io/ipv4-pool": "green", "ipam.cilium.io/ipv6-pool": "red", "ipam.cilium.io/require-pool-match": "true"}}}
	before := wantsOf(&n.ObjectMeta)
	if _, err := stripNamespace(n); err != nil {
		t.Fatal(err)
	}
	if wantsOf(&n.ObjectMeta) != before || len(n.Annotations) != 4 {
		t.Errorf("kept are %v %v", n.Labels, n.Annotations)
	}
}

// An API server that does not know CiliumPodIPPools holds nothing up, and is asked
// again until it does.
func TestCiliumPoolsComeLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var known atomic.Bool
		synced := make(chan struct{})
		close(synced)
		feed, pools := NewFeed(), atomic.Int32{}
		feed.Mode, feed.Ledger, feed.Pods, feed.CiliumPools, feed.Now = ciliumnode.MultiPool, readyLedger(), NewPods(), NewCiliumPools(), noon
		feed.Pools, feed.Starving = NewPools(defaults(), feed.Ledger), func([]string) []string { return nil }
		feed.State = NewAgents(0)
		feed.nodes, feed.ciliumPools = listening{add: func(string) {}}, listening{add: func(string) { pools.Add(1) }}
		var cached atomic.Bool
		cached.Store(true)
		feed.Cache = slowCache{synced: &cached}
		feed.From = Sources{
			Pods: slowWatch(synced, pod("a", "1", "n")), Agents: slowWatch(synced, agentPod("1", "c", true)),
			CiliumNodes: slowWatch(synced, ciliumNode("n", "5", "10.0.0.0/30")),
			CiliumPools: slowWatch(synced, ciliumPodIPPool("blue", 28)), HasCiliumPools: func() (bool, error) { return known.Load(), nil },
			HasServiceCIDRs: func() (bool, error) { return known.Load(), nil },
		}
		close(feed.connected)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- feed.Start(ctx) }()
		time.Sleep(time.Minute)
		if feed.Ledger.Node("n") == nil || feed.CiliumPools.Known() || feed.CiliumPools.Get("blue") != nil || pools.Load() > 0 {
			t.Error("it does not go on without, or goes on with what is not there")
		}
		known.Store(true)
		time.Sleep(2 * knownEvery)
		if !feed.CiliumPools.Known() || feed.CiliumPools.Get("blue") == nil || pools.Load() == 0 {
			t.Error("what came later is not known")
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
