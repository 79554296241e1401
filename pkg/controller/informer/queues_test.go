package informer

import (
	"strings"
	"testing"

	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/common"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// queuing is a feed with a real work queue of nodes.
func queuing(t *testing.T) *Feed {
	f := newCounted(t, 1).Feed
	q := f.NewNodeQueue("", workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](1, common.MaxBackoff))
	t.Cleanup(q.ShutDown)
	f.queues[NodeQueue] = q
	return f
}

// drain returns all items of the queue of nodes, in its order.
func drain(f *Feed) string {
	var out []string
	for q := f.queues[NodeQueue]; q.Len() > 0; {
		item, _ := q.Get()
		q.Done(item)
		out = append(out, item.Name)
	}
	return strings.Join(out, " ")
}

// withEntry is a CiliumNode with a release entry of a status.
func withEntry(name string, status expand.ReleaseStatus) *ciliumnode.View {
	cn := &ciliumv2.CiliumNode{ObjectMeta: metav1.ObjectMeta{Name: name}}
	cn.Status.IPAM.ReleaseIPs = map[string]ipamtypes.IPReleaseStatus{"10.0.0.1": ipamtypes.IPReleaseStatus(status)}
	return ciliumnode.NewView(cn)
}

func TestNodesWithAnAnswerAreFirst(t *testing.T) {
	f := queuing(t)
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		f.QueueNode(name)
	}
	f.onCiliumNode(withEntry("e", expand.Marked))
	f.onCiliumNode(withEntry("b", expand.Released))
	f.onCiliumNode(withEntry("d", expand.Ready))
	f.onCiliumNode(withEntry("f", expand.DoNotRelease))
	f.onCiliumNode(withEntry("d", expand.Ready))
	cooling := fixtures.Block("10.0.0.0/30", "p0", "c", 1)
	cooling.Phase = ipalloc.CoolingDown
	f.onBlock(cooling)
	f.QueueNode("d")
	if got, want := f.queues[NodeQueue].Len(), 6; got != want {
		t.Errorf("%d nodes are queued, want %d", got, want)
	}
	if got, want := drain(f), "d f c a b e"; got != want {
		t.Errorf("order %s, want %s", got, want)
	}
	// The next time it is a node like others.
	f.QueueNode("a")
	f.QueueNode("d")
	if got, want := drain(f), "a d"; got != want {
		t.Errorf("order %s, want %s", got, want)
	}
}

// An answer that arrives during a node's reconcile has it reconciled again before others.
func TestAnswerDuringReconcileIsFirst(t *testing.T) {
	f := queuing(t)
	for _, name := range []string{"a", "b", "c"} {
		f.QueueNode(name)
	}
	item, _ := f.queues[NodeQueue].Get()
	f.onCiliumNode(withEntry("a", expand.Ready))
	f.queues[NodeQueue].Done(item)
	if got, want := drain(f), "a b c"; got != want {
		t.Errorf("order %s, want %s", got, want)
	}
}
