package informer

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumconfig"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// queueKey is a key of a queue.
type queueKey struct {
	queue Queue
	name  string
}

// smallWorld is a feed of two nodes and two pools, and the keys that it has queued.
type smallWorld struct {
	*Feed
	cluster state.Cluster
	random  *rand.Rand
	version int
	nodes   map[string]*corev1.Node
	blocks  map[string]*v1alpha1.PodIPBlock
	pins    map[string]*v1alpha1.PodIPPin
	queued  map[queueKey]bool
}

func newSmallWorld(seed uint64) *smallWorld {
	w := &smallWorld{
		Feed: newBed(), random: rand.New(rand.NewPCG(seed, 0)), nodes: map[string]*corev1.Node{},
		blocks: map[string]*v1alpha1.PodIPBlock{}, pins: map[string]*v1alpha1.PodIPPin{}, queued: map[queueKey]bool{},
	}
	w.Ledger.Changed = w.SpaceChanged
	w.From.HasServiceCIDRs = func() (bool, error) { return true, nil }
	for q := range w.queues {
		w.queues[q] = listening{add: func(name string) { w.queued[queueKey{Queue(q), name}] = true }}
	}
	w.cluster = state.Cluster{
		Ledger: w.Ledger, Pools: w.Pools, Pods: w.Pods, Agents: w.Agents, Awaiting: w.Awaiting,
		Cilium: &ciliumconfig.Latest{}, Defaults: fixtures.Defaults(),
	}
	return w
}

// pick returns any of values.
func pick[V any](w *smallWorld, values ...V) V { return values[w.random.IntN(len(values))] }

func (w *smallWorld) cidr() string { return fmt.Sprintf("10.0.0.%d/30", 4*w.random.IntN(4)) }

// holder returns the node that may hold a block.
func holder(cidr string) string {
	if cidr == "10.0.0.0/30" || cidr == "10.0.0.4/30" {
		return "n"
	}
	return "m"
}

// step changes an object, or deletes it, and returns its description.
func (w *smallWorld) step(t *testing.T) string {
	w.version++
	gone := w.random.IntN(4) == 0
	node := pick(w, "n", "m")
	var obj client.Object
	var store Store
	switch w.random.IntN(8) {
	case 0:
		cidr := w.cidr()
		block := w.blocks[cidr]
		if block == nil {
			block = fixtures.BlockObject(cidr, ipalloc.InService)
			block.UID = types.UID(fmt.Sprint(w.version))
			block.Spec.NodeName = holder(cidr)
		}
		phased := fixtures.BlockObject(cidr, pick(w, ipalloc.InService, ipalloc.Draining, ipalloc.CoolingDown))
		phased.UID = block.UID
		phased.Spec = block.Spec
		w.blocks[cidr] = phased
		if gone {
			delete(w.blocks, cidr)
		}
		obj = phased
	case 1:
		cn := fixtures.CiliumNode(node, "", pick(w, "10.0.1.0/30", "10.0.1.4/30"))
		cn.Spec.IPAM.PodCIDRs = append(cn.Spec.IPAM.PodCIDRs, fixtures.PodCIDR(w.cidr()))
		cn.Spec.Addresses = []ciliumv2.NodeAddress{{Type: "CiliumInternalIP", IP: pick(w, "10.0.1.9", "192.0.2.9")}}
		obj, store = cn, w.ciliumNodeStore()
	case 2:
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node, Labels: map[string]string{"zone": pick(w, "a", "b")}}}
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: pick(w, "192.0.2.1", "10.0.0.5")}}
		w.nodes[node] = n
		if gone {
			delete(w.nodes, node)
		}
		obj = n
	case 3:
		pool := fixtures.PodIPPool("p", 1, pick(w, "10.0.0.0/28", "10.0.0.0/29"))
		if w.random.IntN(2) == 0 {
			pool = fixtures.PodIPPool("q", 2, pick(w, "10.0.1.0/28", "10.0.0.8/29"))
		}
		pool.Generation = int64(w.version)
		pool.Spec.IPv4.BlockSize = 30
		obj = pool
	case 4:
		obj, store = fixtures.Pod("a-"+node, "a-"+node, node, pick(w, "", "10.9.0.1")), w.podStore()
	case 5:
		agent := fixtures.AgentPod("agent-"+node, pick(w, "c", "d"), true)
		agent.Spec.NodeName = node
		obj, store = agent, w.agentStore()
	case 6:
		cidr := w.cidr()
		pin := w.pins[cidr]
		if pin == nil || !gone {
			pin = fixtures.Pin(cidr, node)
		}
		w.pins[cidr] = pin
		if gone {
			delete(w.pins, cidr)
		}
		obj = pin
	default:
		services := &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"}}
		services.Spec.CIDRs = []string{w.cidr()}
		obj = services
	}
	obj.SetResourceVersion(fmt.Sprint(w.version))
	switch {
	case store == nil:
		deliver(w.Feed, obj, gone)
	case gone:
		check(t, store.Delete(obj))
	default:
		check(t, store.Add(obj))
	}
	return fmt.Sprintf("%T %s, gone %t", obj, obj.GetName(), gone)
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// facts returns the inputs of each key's reconcile.
func (w *smallWorld) facts() map[queueKey]any {
	out := map[queueKey]any{}
	for _, name := range []string{"n", "m"} {
		snapshot := w.cluster.Snapshot(name, w.nodes[name], fixtures.Noon())
		if snapshot.Node != nil || snapshot.CiliumNode != nil || len(snapshot.Blocks) > 0 {
			out[queueKey{NodeQueue, name}] = snapshot
		}
	}
	for _, name := range w.Pools.Names() {
		pool := w.Pools.Get(name)
		pins := w.Ledger.Pins.Away(pool)
		slices.SortFunc(pins, netip.Prefix.Compare)
		out[queueKey{PoolQueue, name}] = []any{
			pool, w.Ledger.Size(name), w.Ledger.Used(name), state.FamiliesOf(w.Ledger, pool), pins,
			w.Ledger.Exclusions.ExcludedFrom(pool), w.Ledger.Exclusions.SharedWith(pool),
		}
	}
	for cidr := range w.blocks {
		b, _ := w.Ledger.Block(fixtures.Prefix(cidr))
		out[queueKey{BlockQueue, b.Name}] = []any{b.Phase, w.Ledger.Overlaps(b.CIDR)}
		if published := w.Ledger.CiliumNode(b.Node).ListsInAnyPool(b.CIDR); b.Phase == ipalloc.InService && b.Published != published {
			out[queueKey{PublishedQueue, b.Name}] = published
		}
	}
	for cidr := range w.pins {
		p := fixtures.Prefix(cidr)
		out[queueKey{PinQueue, crd.BlockName(p)}] = []any{w.Ledger.Pins.In(p), w.Ledger.HeldIn(p), w.Pools.Touching([]netip.Prefix{p})}
	}
	return out
}

// After each event in a small world, every key with other inputs than before has been queued.
func TestEveryChangeIsQueued(t *testing.T) {
	for seed := range uint64(40) {
		w := newSmallWorld(seed)
		before := w.facts()
		for step := range 100 {
			clear(w.queued)
			event := w.step(t)
			after := w.facts()
			for key, facts := range after {
				if !w.queued[key] && !reflect.DeepEqual(before[key], facts) {
					t.Fatalf("seed %d, step %d: %s: not queued is %v:\n%s", seed, step, event, key,
						cmp.Diff(fmt.Sprintf("%+v", before[key]), fmt.Sprintf("%+v", facts)))
				}
			}
			before = after
		}
	}
}
