package node

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/test/fakeapi"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// bed is a node controller on a fake API server.
type bed struct {
	*fakeapi.Cluster
	r *Reconciler
}

func newBed(t *testing.T, objects ...client.Object) *bed {
	t.Helper()
	return newBedIn(t, ciliumnode.CRD, objects...)
}

func newBedIn(t *testing.T, mode ciliumnode.Mode, objects ...client.Object) *bed {
	t.Helper()
	b := &bed{Cluster: fakeapi.New(t, mode, objects...)}
	b.connect()
	return b
}

// restart starts a new process, with the API server's objects.
func (b *bed) restart() {
	b.T.Helper()
	b.Restart()
	b.connect()
}

// connect starts a process with synced informers.
func (b *bed) connect() {
	b.T.Helper()
	own, err := NewMetrics(prometheus.NewRegistry())
	b.must(err)
	b.r = &Reconciler{
		Cluster: state.Cluster{
			Ledger: b.Ledger, Pools: b.Pools, Defaults: b.Defaults(), Pods: state.NewPods(), Agents: state.NewAgents(time.Minute),
			Awaiting: &state.Awaiting{}, TakenPercent: b.Pressure.TakenPercent, StartupTaints: state.SetOf(crd.DefaultStartupTaints()),
		},
		Cache: b.Cached(), Live: b.Live(), CiliumNodes: &ciliumnode.Client{Writer: b.API, Reader: b.Live(), Mode: b.Mode},
		Blocks:   &BlockClient{Cache: b.Cached(), Live: b.Live(), Writer: b.API, Ledger: b.Ledger, Counters: b.Shared, Clock: b.Clock, WaitForCache: b.Ledger.WaitForCache},
		Reporter: &Reporter{Client: b.API, Events: b.Events, Counters: b.Shared, Clock: b.Clock, Cache: b.Cached(), Live: b.Live(), Ledger: b.Ledger},
		Pacing:   b.Pacing, Pressure: b.Pressure,
		Events: b.Events, Metrics: own, Counters: b.Shared, Clock: b.Clock,
	}
}

// must fails the test if a call of the API server did.
func (b *bed) must(err error) {
	b.T.Helper()
	if err != nil {
		b.T.Fatal(err)
	}
}

// reconcile reconciles node n once and returns the calls it made.
func (b *bed) reconcile() ([]string, error) {
	b.T.Helper()
	b.Calls = nil
	b.Watch()
	for _, share := range b.r.memories.of("n").shares { // a Memory is replaced
		fakeapi.Shared(b.Cluster, &share.memory)
	}
	_, err := b.r.Reconcile(b.T.Context(), fakeapi.RequestOf("n"))
	return b.Calls, err
}

// observe is the first step of a reconcile.
func (b *bed) observe() *observation {
	b.T.Helper()
	o, err := b.r.observe(b.T.Context(), "n")
	b.must(err)
	return o
}

// step is a reconcile that must not fail.
func (b *bed) step() []string {
	b.T.Helper()
	calls, err := b.reconcile()
	b.must(err)
	return calls
}

// callsNothing fails the test if a reconcile writes, or reads live.
func (b *bed) callsNothing(when string) {
	b.T.Helper()
	if calls := b.step(); len(calls) > 0 {
		b.T.Errorf("%s: calls %v, want none", when, calls)
	}
}

// writesNothing fails the test if a reconcile writes.
func (b *bed) writesNothing(when string) {
	b.T.Helper()
	if writes := fakeapi.WritesOf(b.step()); len(writes) > 0 {
		b.T.Errorf("%s: writes %v, want none", when, writes)
	}
}

// settle reconciles node n until a reconcile does not write.
func (b *bed) settle() {
	b.T.Helper()
	for range 50 {
		if len(fakeapi.WritesOf(b.step())) == 0 {
			return
		}
	}
	b.T.Fatalf("still writing after 50 looks: %v", b.Calls)
}

// at sets the clock, as time since noon; settleAt and settleAfter also settle.
func (b *bed) at(sinceNoon time.Duration) { b.Clock.SetTime(fixtures.Noon().Add(sinceNoon)) }

func (b *bed) settleAt(sinceNoon time.Duration) {
	b.T.Helper()
	b.at(sinceNoon)
	b.settle()
}

func (b *bed) settleAfter(d time.Duration) {
	b.T.Helper()
	b.Clock.SetTime(b.Clock.Now().Add(d))
	b.settle()
}

// once does something before the first call of a kind, which must come.
func (b *bed) once(before string, do func()) {
	did := false
	b.Before = func(call string) {
		if call == before && !did {
			did = true
			do()
		}
	}
	b.T.Cleanup(func() {
		if !did {
			b.T.Errorf("no call %q: this has tested nothing", before)
		}
	})
}

// withEachWrite runs a test once for each of a number of writes that fails, or loses its response,
// with and without a restart after that.
func withEachWrite(t *testing.T, writes int, test func(t *testing.T, fail func(*bed), restart bool)) {
	t.Helper()
	for _, what := range []fakeapi.Fate{fakeapi.Refused, fakeapi.Unheard} {
		for _, restart := range []bool{false, true} {
			for fails := range writes {
				t.Run(fmt.Sprintf("write %d, fate %d, restart %t", fails, what, restart), func(t *testing.T) {
					test(t, func(b *bed) {
						n := 0
						b.Fate = func(string) fakeapi.Fate {
							if n++; n == fails+1 {
								return what
							}
							return fakeapi.Done
						}
					}, restart)
				})
			}
		}
	}
}

// survivesEveryWrite makes each write of a joining node fail. The rules must hold at that point, and
// the node must be as in want at the end.
func survivesEveryWrite(t *testing.T, mode ciliumnode.Mode, writes int, want string) {
	t.Helper()
	withEachWrite(t, writes, func(t *testing.T, fail func(*bed), restart bool) {
		b := newBedIn(t, mode, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"))
		fail(b)
		if _, err := b.reconcile(); err == nil {
			t.Fatal("the failure went unnoticed")
		}
		b.Check("after the failure")
		if restart {
			b.restart()
		}
		b.settle()
		b.Check("at the end")
		b.is(want)
	})
}

// settled checks that no write is left, by this process or a new one.
func (b *bed) settled() {
	b.T.Helper()
	b.callsNothing("settled")
	b.restart()
	b.callsNothing("after a restart")
	b.restart()
}

// memoryOf returns the memory of a family of node n with a CiliumNode of this UID.
func (b *bed) memoryOf(uid types.UID, f ipalloc.Family) *expand.Memory {
	o := &observation{Snapshot: &state.Snapshot{Name: "n", CiliumNode: &ciliumnode.View{Name: "n", UID: uid}}}
	return b.r.memories.of("n").forShare(o, &state.Share{Family: f})
}

// get reads an object without a namespace.
func get[T client.Object](b *bed, name string, obj T) T {
	b.T.Helper()
	b.must(b.API.Get(b.T.Context(), types.NamespacedName{Name: name}, obj))
	return obj
}

func (b *bed) raw() *ciliumv2.CiliumNode               { return get(b, "n", &ciliumv2.CiliumNode{}) }
func (b *bed) node() *corev1.Node                      { return get(b, "n", &corev1.Node{}) }
func (b *bed) object(name string) *v1alpha1.PodIPBlock { return get(b, name, &v1alpha1.PodIPBlock{}) }

// changeNode edits node n as users and other controllers do.
func (b *bed) changeNode(mod func(*corev1.Node)) {
	b.T.Helper()
	n := b.node()
	mod(n)
	b.must(b.API.Update(b.T.Context(), n))
}

// agentIs changes spec and status of node n's CiliumNode as its agent does.
func (b *bed) agentIs(mod func(*ciliumv2.CiliumNode)) {
	b.T.Helper()
	cn := b.raw()
	mod(cn)
	b.must(b.API.Update(b.T.Context(), cn))
	cn = b.raw()
	mod(cn)
	b.must(b.API.Status().Update(b.T.Context(), cn))
}

// reports makes the agent of n report addresses as used.
func (b *bed) reports(addrs ...string) {
	b.T.Helper()
	cn := b.raw()
	cn.Status.IPAM.Used = fixtures.AllocationMap(addrs...)
	b.must(b.API.Status().Update(b.T.Context(), cn))
}

// agentWrites applies a patch as the agent of node n.
func (b *bed) agentWrites(patch string) {
	b.T.Helper()
	b.must(b.API.Patch(b.T.Context(), fixtures.CiliumNode("n", ""), fakeapi.RawMerge(patch)))
}

// agentSince makes the agent of n ready since a time after noon; settleAgent for an hour by now.
func (b *bed) agentSince(sinceNoon time.Duration) {
	b.r.Cluster.Agents.Set(state.ReadAgent(fixtures.AgentPod("agent", "c", true)), fixtures.Noon().Add(sinceNoon))
}

func (b *bed) settleAgent() { b.agentSince(-time.Hour) }

// startAgent starts the agent of n, which is not Ready yet.
func (b *bed) startAgent() {
	b.r.Cluster.Agents.Set(state.ReadAgent(fixtures.AgentPod("agent", "c", false)), fixtures.Noon())
}

// podOn is a pod on n: with these IPs, or waiting for one if there are none.
func podOn(name string, ips ...string) state.BoundPod {
	return state.ReadPod(fixtures.Pod(name, name, "n", ips...))
}

// pods binds this many pods to n that wait for an address.
func (b *bed) pods(n int) {
	for i := range n {
		b.r.Cluster.Pods.Set(podOn(fmt.Sprint("pod", i)), fixtures.Noon())
	}
}

func inService(cidr string) *v1alpha1.PodIPBlock {
	return fixtures.BlockObject(cidr, ipalloc.InService)
}
func coolingDown(cidr string) *v1alpha1.PodIPBlock {
	return fixtures.BlockObject(cidr, ipalloc.CoolingDown)
}

// publishing adds addresses to the pool of a CiliumNode. bare is that of n without any.
func publishing(cn *ciliumv2.CiliumNode, addrs ...string) *ciliumv2.CiliumNode {
	return fixtures.Publishing(cn, addrs...)
}

func bare() *ciliumv2.CiliumNode { return publishing(fixtures.CiliumNode("n", "")) }

func (b *bed) has(cidr string) bool {
	b.T.Helper()
	return slices.ContainsFunc(b.Blocks(), func(k crd.Block) bool { return k.CIDR == fixtures.Prefix(cidr) })
}

// block returns the block of a CIDR, which must exist.
func (b *bed) block(cidr string) crd.Block {
	b.T.Helper()
	return b.ReadBlock(b.object(crd.BlockName(fixtures.Prefix(cidr))))
}

// hasPhases compares the blocks and their phases.
func (b *bed) hasPhases(when string, want ...string) {
	b.T.Helper()
	if diff := cmp.Diff(want, b.phases()); diff != "" {
		b.T.Errorf("%s (-want +got):\n%s", when, diff)
	}
}

// phases returns the blocks of the bed and their phases, in order.
func (b *bed) phases() []string {
	b.T.Helper()
	var out []string
	for _, k := range b.Blocks() {
		line := fmt.Sprintf("%s %s", k.CIDR, k.Phase)
		if k.Obstacle.Reason.IsDelay() {
			line += " held"
		}
		out = append(out, line)
	}
	slices.Sort(out)
	return out
}

// published returns the keys of node n's pool, sorted.
func (b *bed) published() []string {
	b.T.Helper()
	var out []string
	for a := range b.CiliumNode().Published() {
		out = append(out, a.String())
	}
	slices.Sort(out)
	return out
}

func (b *bed) publishes(want ...string) {
	b.T.Helper()
	if diff := cmp.Diff(want, b.published()); diff != "" {
		b.T.Errorf("published (-want +got):\n%s", diff)
	}
}

// listed returns the CIDRs that node n's CiliumNode lists.
func (b *bed) listed() []netip.Prefix {
	b.T.Helper()
	return b.CiliumNode().PodCIDRs
}

func (b *bed) listsOnly(want ...string) {
	b.T.Helper()
	if diff := cmp.Diff(fixtures.Prefixes(want...), b.listed(), fixtures.CompareNetip()); diff != "" {
		b.T.Errorf("listed (-want +got):\n%s", diff)
	}
}
