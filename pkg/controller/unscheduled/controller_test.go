package unscheduled

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/scheduling"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/test/fakeapi"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// waiting is a pod that requests an address and fits on no node.
func waiting(uid string) scheduling.UnscheduledPod {
	p := fixtures.Pod("p"+uid, uid, "")
	p.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{v1alpha1.IPv4Resource: resource.MustParse("1")},
	}}}
	p.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
		Message: "0/1 nodes are available: 1 Insufficient cilium-pool.io/ipv4.",
	}}
	return scheduling.ReadUnscheduled(p)
}

// Nodes are reconciled when, and only when, the number of addresses they should have room for
// changes, and again once an address that no pod takes is no longer needed.
func TestReconcile(t *testing.T) {
	b := fakeapi.New(t, ciliumnode.CRD, fixtures.Node(), fixtures.CiliumNode("n", ""), fixtures.PodIPPool("p", 1, "10.0.0.0/28"))
	own, err := NewMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	var queued []string
	u := scheduling.NewUnscheduled()
	r := &Reconciler{
		Cluster: scheduling.Offering{State: state.Cluster{
			Ledger: b.Ledger, Pools: b.Pools, Defaults: b.Defaults(), Pods: state.NewPods(), Agents: state.NewAgents(time.Minute),
			Unscheduled: u,
		}, Unscheduled: u},
		Cache: b.Cached(), QueueNodes: func(names []string) { queued = append(queued, names...) }, Metrics: own, Clock: b.Clock,
	}
	steps := []struct {
		what  string
		do    func()
		want  []string
		again time.Duration
	}{
		{"no pod waits", func() {}, nil, 0},
		{"one waits", func() { r.Cluster.Unscheduled.Set(waiting("1"), b.Clock.Now()) }, []string{"n"}, 30 * time.Second},
		{"nothing has changed", func() {}, nil, 30 * time.Second},
		{"another one waits", func() { r.Cluster.Unscheduled.Set(waiting("2"), b.Clock.Now()) }, []string{"n"}, 30 * time.Second},
		{"both are gone", func() { r.Cluster.Unscheduled.Delete("1"); r.Cluster.Unscheduled.Delete("2") }, []string{"n"}, 0},
	}
	for _, step := range steps {
		queued = nil
		step.do()
		result, err := r.Reconcile(t.Context(), fakeapi.RequestOf("pods"))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(step.want, queued); diff != "" || result.RequeueAfter != step.again {
			t.Errorf("%s: again after %s, want %s; queued (-want +got):\n%s", step.what, result.RequeueAfter, step.again, diff)
		}
		if step.what == "another one waits" {
			counts := map[string]float64{
				"cilium_pool_unscheduled_pods scheduler": 0, "cilium_pool_unscheduled_pods growth": 2,
				"cilium_pool_unscheduled_pods block": 0, "cilium_pool_unscheduled_pods node": 0,
			}
			if diff := cmp.Diff(counts, fakeapi.Series(t, own.pods)); diff != "" {
				t.Errorf("metrics (-want +got):\n%s", diff)
			}
		}
	}
}
