package controller

import (
	"fmt"
	"maps"
	"runtime"
	"testing"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// BenchmarkScale measures one worker without an API server, from a watch's event to the decision, and the live
// heap. All values are per node: they stay the same if everything is linear.
func BenchmarkScale(b *testing.B) {
	for _, nodes := range []int{5_000, 20_000, 50_000} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			for b.Loop() {
				measureScale(b, nodes)
			}
		})
	}
}

func measureScale(b *testing.B, nodes int) {
	ctrllog.SetLogger(logr.Discard())
	before := liveHeap()
	f := newFleet(b, nil)
	pool := fixtures.PodIPPool("p", 1, "10.0.0.0/8")
	pool.Spec.IPv4.BlockSize = 27
	pool.Finalizers = []string{v1alpha1.Finalizer}
	f.exists(pool)
	report := func(name string, took time.Duration) {
		b.ReportMetric(float64(took.Nanoseconds())/1000/float64(nodes), name+"-µs/node")
	}
	each := func(name string, prepare func(n int) func()) {
		var took time.Duration
		for n := range nodes {
			act := prepare(n)
			begin := time.Now()
			act()
			took += time.Since(begin)
		}
		report(name, took)
	}

	each("read", func(n int) func() {
		all := settled(n)
		return func() { f.deliver(all, false) }
	})
	maps.DeleteFunc(f.objects, func(_ string, o client.Object) bool { // of these the operator keeps no object
		switch o.(type) {
		case *corev1.Pod, *ciliumv2.CiliumNode:
			return true
		}
		return false
	})
	begin := time.Now()
	f.work()
	report("decide", time.Since(begin))
	b.ReportMetric(float64(liveHeap()-before)/float64(nodes), "B/node")
	each("pod", func(n int) func() {
		name := fmt.Sprintf("more-%d", n)
		pod := fixtures.Pod(name, name, fmt.Sprintf("node-%d", n))
		return func() {
			f.exists(pod)
			f.work("node")
			f.event(pod, true)
			f.work("node")
		}
	})
	again := func(what int, change func(client.Object)) func(n int) func() {
		return func(n int) func() {
			object := settled(n)[what].Object
			change(object)
			return func() {
				f.exists(object)
				f.work("node")
			}
		}
	}
	each("report", again(2, func(client.Object) {}))
	each("relabel", again(0, func(node client.Object) { node.SetLabels(map[string]string{"zone": "b"}) }))
	runtime.KeepAlive(f)
}

func liveHeap() uint64 {
	runtime.GC()
	runtime.GC() // once more, for objects with finalizers
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// settled returns the objects of node n, which has two blocks, 20 pods with addresses, and all it needs: the Node,
// the agent's pod, the CiliumNode, and the rest.
func settled(n int) []member {
	m := fixtures.NewMachine(n)
	m.Node.Labels = map[string]string{"zone": "a"}
	out := []member{{m.Node, ""}, {m.Agent, "agents"}, {m.CiliumNode, ""}}
	blocks, pods := m.Settle(n)
	for _, block := range blocks {
		out = append(out, member{block, ""})
	}
	for _, pod := range pods {
		out = append(out, member{pod, ""})
	}
	return out
}
