package node

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/event"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/test/fakeapi"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// uninitialized is node n before a cloud controller manager has initialized it.
func uninitialized(effect corev1.TaintEffect) *corev1.Node {
	n := fixtures.Node()
	n.Spec.Taints = []corev1.Taint{{Key: "node.cloudprovider.kubernetes.io/uninitialized", Value: "true", Effect: effect}}
	return n
}

func TestFirstBlockAwaitsLabels(t *testing.T) {
	for _, mode := range ciliumnode.Modes() {
		for _, effect := range []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute} {
			t.Run(mode.String()+" "+string(effect), func(t *testing.T) {
				zoned := zoned("10.1.0.0/28")
				b := newBedIn(t, mode, uninitialized(effect), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), zoned)
				for range 2 {
					calls, err := b.reconcile()
					if writes := fakeapi.WritesOf(calls); err != nil || len(writes) > 0 {
						t.Fatalf("writes %v, %v; want none before the labels are final", writes, err)
					}
				}
				if got := b.EventsOf(event.ReasonWaitsForLabels); len(got) != 1 || !strings.Contains(got[0], "node.cloudprovider.kubernetes.io/uninitialized") {
					t.Errorf("events %q, want one that names the taint", got)
				}
				b.changeNode(func(n *corev1.Node) {
					n.Labels, n.Spec.Taints = map[string]string{"zone": "z"}, nil
				})
				b.settle()
				if len(b.Blocks()) == 0 || slices.ContainsFunc(b.Blocks(), func(k crd.Block) bool { return k.Pool != "z" }) {
					t.Errorf("blocks %+v, want those of the zone's pool alone", b.Blocks())
				}
				b.Check("at the end")
			})
		}
	}
}

// No node waits for its labels forever.
func TestLabelsAreOverdue(t *testing.T) {
	zoned := zoned("10.1.0.0/28")
	node := uninitialized(corev1.TaintEffectNoSchedule)
	node.CreationTimestamp = metav1.NewTime(fixtures.Noon())
	b := newBed(t, node, fixtures.PodIPPool("p", 1, "10.0.0.0/28"), zoned)
	b.Watch()
	result, err := b.r.Reconcile(t.Context(), fakeapi.RequestOf("n"))
	if err != nil || result.RequeueAfter != 5*time.Minute || len(b.Blocks()) > 0 {
		t.Fatalf("%v, %v, blocks %v; want another look in five minutes", result, err, b.Blocks())
	}
	b.settleAt(5 * time.Minute)
	if got := b.EventsOf(event.ReasonLabelsOverdue); len(got) != 1 || len(b.Blocks()) == 0 || b.Blocks()[0].Pool != "p" {
		t.Errorf("events %q, blocks %+v", got, b.Blocks())
	}
}

// A node that has addresses proceeds with any taints.
func TestNodeWithAddressesDoesNotAwaitLabels(t *testing.T) {
	tainted := uninitialized(corev1.TaintEffectNoSchedule)
	other := tainted.DeepCopy()
	other.Spec.Taints[0].Key = "node.kubernetes.io/not-ready"
	removed := publishing(fixtures.CiliumNode("n", "", "10.0.0.0/30"), "10.0.0.1")
	for name, objects := range map[string][]client.Object{
		"it holds a block, and nothing is published":   {tainted, inService("10.0.0.0/30")},
		"the object of its block was removed by force": {tainted, removed},
		"another taint":              {other},
		"its CiliumNode was deleted": {tainted, owned(removed.DeepCopy(), "node-uid")},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, append(objects, fixtures.PodIPPool("p", 1, "10.0.0.0/28"))...)
			if name == "its CiliumNode was deleted" {
				b.Watch()
				b.must(b.API.Delete(t.Context(), fixtures.CiliumNode("n", "")))
			}
			b.settle()
			if got := b.EventsOf(event.ReasonWaitsForLabels); len(got) > 0 || len(b.Blocks()) != 2 {
				t.Errorf("events %q, %d blocks; want no event and two blocks", got, len(b.Blocks()))
			}
		})
	}
}

// listing counts the lists that a reconciler reads from the API server.
type listing struct {
	client.Reader
	lists int
}

func (l *listing) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	l.lists++
	return l.Reader.List(ctx, list, opts...)
}

// A node that waits for its labels reads its pods once, and again when pods that wait or its taints
// change.
func TestWaitForLabelsReadsPodsOnce(t *testing.T) {
	zoned := zoned("10.1.0.0/28")
	b := newBed(t, uninitialized(corev1.TaintEffectNoSchedule), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), zoned)
	b.Watch()
	reads := &listing{Reader: b.r.Live}
	b.r.Live = reads
	create := func(pod *corev1.Pod) {
		b.T.Helper()
		b.must(b.API.Create(b.T.Context(), pod))
		b.r.Pods.Set(state.ReadPod(pod), b.Clock.Now())
	}
	look := func(what string, lists, blocks int) {
		b.T.Helper()
		for range 3 {
			b.step()
		}
		if reads.lists != lists || len(b.Blocks()) != blocks {
			b.T.Errorf("%s: %d lists, %d blocks, want %d and %d", what, reads.lists, len(b.Blocks()), lists, blocks)
		}
	}
	look("no pod", 0, 0)
	create(fixtures.Pod("a", "a", "n"))
	look("a pod waits", 1, 0)
	b.changeNode(func(n *corev1.Node) { n.Labels = map[string]string{"rack": "1"} })
	look("another label", 1, 0)
	b.changeNode(func(n *corev1.Node) { n.Spec.Taints[0].Value = "" })
	look("another taint", 2, 0)
	tolerant := fixtures.Pod("b", "b", "n")
	tolerant.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	create(tolerant)
	look("a pod that tolerates the taint waits", 3, 2)
}
