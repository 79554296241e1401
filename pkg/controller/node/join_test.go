package node

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/event"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/scheduling"
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
				b := newBedIn(t, mode, uninitialized(effect), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), zoned("10.1.0.0/28"))
				b.writesNothing("before the labels are final")
				b.writesNothing("again")
				if got := b.EventsOf(event.ReasonWaitsForLabels); len(got) != 1 || !strings.Contains(got[0], "node.cloudprovider.kubernetes.io/uninitialized") {
					t.Errorf("events %q, want one that names the taint", got)
				}
				b.changeNode(func(n *corev1.Node) { n.Labels, n.Spec.Taints = map[string]string{"zone": "z"}, nil })
				b.settle()
				b.servesFrom("z")
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

// A restarted process gives a new node its first blocks before it has read pods. Everything else waits for them.
func TestFirstBlockBeforePods(t *testing.T) {
	reporting := bare()
	reporting.Status.IPAM.Used = ipamtypes.AllocationMap{"10.0.0.1": {Resource: "a/b"}}
	answering := bare()
	answering.Status.IPAM.ReleaseIPs = map[string]ipamtypes.IPReleaseStatus{"10.0.0.1": ipamtypes.IPReleaseStatus(expand.Ready)}
	for name, test := range map[string]struct {
		objects  []client.Object
		claims   bool
		restored bool
	}{
		"a new node":                    {objects: []client.Object{bare()}, claims: true},
		"a Node alone":                  {},
		"a block yet to be published":   {objects: []client.Object{bare(), inService("10.0.0.0/30")}},
		"a published block":             {objects: []client.Object{fixtures.CiliumNode("n", "", "10.0.0.0/30"), inService("10.0.0.0/30")}},
		"it holds one that cools down":  {objects: []client.Object{bare(), coolingDown("10.0.0.0/30")}},
		"an address of no block":        {objects: []client.Object{publishing(fixtures.CiliumNode("n", "", "10.0.0.0/30"), "10.0.0.1")}},
		"its agent reports addresses":   {objects: []client.Object{reporting}},
		"its agent has given addresses": {objects: []client.Object{answering}},
		"etcd was restored":             {objects: []client.Object{bare()}, restored: true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, append(test.objects, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"))...)
			b.PodsLast = true
			b.restart()
			b.r.Reporter.NodeCondition = true
			b.r.Cluster.Recovery = &state.Recovery{}
			if test.restored {
				b.settleAgent()
				b.r.Cluster.Recovery.Begin(true, b.Clock.Now())
			}
			calls := b.step()
			if !test.claims && len(calls) > 0 {
				t.Errorf("calls %v before pods are read, want none", calls)
			}
			if test.claims && (len(b.Blocks()) == 0 || len(b.published()) == 0) {
				t.Errorf("blocks %v, calls %v before pods are read; want blocks that are published", b.Blocks(), calls)
			}
			b.callsNothing("once more")
			b.pods(3)
			b.Ledger.SetReady()
			b.settle()
			b.Check("at the end")
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
		b.r.Cluster.Pods.Set(state.ReadPod(pod), b.Clock.Now())
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

// zoned is a pool for nodes with a label; it outranks others.
func zoned(ranges ...string) *v1alpha1.PodIPPool {
	z := fixtures.PodIPPool("z", 1, ranges...)
	z.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"zone": "z"}}
	z.Spec.Priority = 10
	return z
}

// starts is an agent that takes over the CiliumNode, with a router's address, and answers
// marks.
func starts(router string) func(*ciliumv2.CiliumNode) {
	return func(cn *ciliumv2.CiliumNode) {
		cn.Spec.BootID = "b"
		cn.Spec.Addresses = []ciliumv2.NodeAddress{{Type: "CiliumInternalIP", IP: router}}
		cn.Status.IPAM.Used = ipamtypes.AllocationMap{router: {Owner: "router"}}
		for ip, is := range cn.Status.IPAM.ReleaseIPs {
			if is == "marked-for-release" {
				cn.Status.IPAM.ReleaseIPs[ip] = "ready-for-release"
			}
		}
	}
}

func labelled(n *corev1.Node) { n.Labels = map[string]string{"zone": "z"} }

func TestFirstBlocksAreReplaced(t *testing.T) {
	b := newBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), zoned("10.1.0.0/28"))
	b.settle()
	b.servesFrom("p")
	first := b.Blocks()
	b.changeNode(labelled)
	b.settle()
	b.servesFrom("z")
	v := b.CiliumNode()
	for _, k := range first {
		if is := b.block(k.CIDR.String()); is.Phase != ipalloc.Draining || is.Reason != expand.PoolChanged {
			t.Errorf("block %s is %v (%s)", k.CIDR, is.Phase, is.Reason)
		}
		for _, addr := range v.PublishedIn(k.CIDR) {
			if v.Release[addr] != expand.Marked {
				t.Errorf("%s is %q: an agent that starts now may take it", addr, v.Release[addr])
			}
		}
		if len(v.PublishedIn(k.CIDR)) == 0 {
			t.Errorf("addresses of %s have left the pool, and no agent has agreed", k.CIDR)
		}
	}
	b.Check("before the agent starts")
	b.restart() // marks stand over a change of leaders
	b.settle()
	if left := b.CiliumNode().Release; len(left) != 4 {
		t.Errorf("release entries are %v after a restart", left)
	}

	b.agentIs(starts("10.1.0.1"))
	b.settle()
	b.r.Cluster.Agents.Set(state.ReadAgent(fixtures.AgentPod("1", "c", true)), b.Clock.Now())
	for range 5 {
		b.settleAfter(10 * time.Minute)
	}
	if slices.ContainsFunc(b.Blocks(), func(k crd.Block) bool { return k.Pool == "p" }) || len(b.CiliumNode().Release) > 0 {
		t.Errorf("blocks %+v, release %v; want nothing of p left", b.Blocks(), b.CiliumNode().Release)
	}
	b.Check("at the end")
}

// If a pool has a block, but not enough of them for the node's pods, the node gets that one. Its
// first blocks stay in service beside it, and no write is tried over and over.
func TestFirstBlocksServeBesideThePoolThatRules(t *testing.T) {
	b := newBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/27"), zoned("10.1.0.0/30"))
	b.pods(5)
	b.settle()
	b.changeNode(labelled)
	b.settle()
	b.servesFrom("p", "z")
	if got := b.CiliumNode().PublishedIn(fixtures.Prefix("10.1.0.0/30")); len(got) == 0 {
		t.Error("the block of z is not published")
	}
	if n := b.r.memories.of("n").conflicts; n > 0 {
		t.Errorf("%d races lost once settled", n)
	}
	b.Check("settled")
}

// A node with first blocks of another pool waits for a block of the pool that rules it.
func TestFirstBlocksWaitForThePoolThatRules(t *testing.T) {
	b := newBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), zoned("10.1.0.0/30"))
	b.r.Cluster.Ledger.Upsert(fixtures.Block("10.1.0.0/30", "z", "m", 1))
	b.settle()
	b.changeNode(labelled)
	b.settle()
	b.servesFrom("p")
	if woken := b.r.Cluster.Awaiting.Wake(ipalloc.IPv4, []string{"z"}); !slices.Equal(woken, []string{"n"}) {
		t.Errorf("a block of z that comes free wakes %v, want n", woken)
	}
}

// Addresses that may be in use stay.
func TestFirstBlocksStay(t *testing.T) {
	agentIs := func(mod func(*ciliumv2.CiliumNode)) func(*bed) { return func(b *bed) { b.agentIs(mod) } }
	for name, between := range map[string]func(*bed){ // after the node has joined
		"the agent was faster":                  agentIs(starts("10.0.0.1")),
		"an agent has only looked":              agentIs(func(cn *ciliumv2.CiliumNode) { cn.Spec.BootID = "b" }),
		"an agent's container has been started": (*bed).startAgent,
		"another process may have claimed them": (*bed).restart,
		"the new pool has no block": func(b *bed) {
			closed := zoned("10.1.0.0/28")
			closed.Generation, closed.Spec.IPv4.CIDRs[0].AllocationPolicy = 2, v1alpha1.AllocationDrain
			b.r.Cluster.Pools.Set(closed)
		},
		"the agent starts before they are marked": func(b *bed) { b.once("patch CiliumNode status", func() { b.agentIs(starts("10.0.0.1")) }) },
		"the label goes again": func(b *bed) {
			b.changeNode(labelled)
			b.settle()
			b.changeNode(func(n *corev1.Node) { n.Labels = nil })
			b.settle()
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), zoned("10.1.0.0/28"))
			b.settle()
			before := b.Blocks()
			between(b)
			if name != "the label goes again" {
				b.changeNode(labelled)
			}
			b.settle()
			for _, k := range before {
				if is := b.block(k.CIDR.String()); is.Phase != ipalloc.InService {
					t.Errorf("block %s is %v (%s)", k.CIDR, is.Phase, is.Reason)
				}
				for addr := range b.CiliumNode().Release {
					if k.CIDR.Contains(addr) {
						t.Errorf("%s is marked", addr)
					}
				}
			}
			b.Check("at the end")
		})
	}
}

// A node with full pools and without a block counts as waiting for its first block until it has one
// or is gone. A node that only needs more blocks does not.
func TestNodeWithoutBlockIsCounted(t *testing.T) {
	other := crd.NewBlock(fixtures.Prefix("10.0.0.0/30"), "p", "m", "uid-m")
	other.UID, other.Finalizers = "uid-other", nil
	b := newBed(t, fixtures.Node(), carrier(), fixtures.PodIPPool("p", 1, "10.0.0.0/30"), other)
	changes := 0
	u := scheduling.NewUnscheduled()
	b.r.Cluster.Unscheduled, u.Changed = u, func() { changes++ }
	expect := func(when string, waits bool, changed int) {
		t.Helper()
		b.settle()
		if got := u.Any(); got != waits || changes != changed {
			t.Errorf("%s: it counts: %t, %d changes; want %t, %d", when, got, changes, waits, changed)
		}
	}
	expect("its pool is full", true, 1)
	expect("nothing has changed", true, 1)
	b.must(b.API.Delete(t.Context(), other))
	expect("it has a block, and wants more for its reserve", false, 2)
}

func TestNodeThatIsGoneIsNotCounted(t *testing.T) {
	b := newBed(t, fixtures.Node())
	u := scheduling.NewUnscheduled()
	b.r.Cluster.Unscheduled = u
	b.r.Cluster.Unscheduled.SetWithoutBlock("n", true)
	b.r.forget("n")
	if u.Any() {
		t.Error("it still counts")
	}
}
