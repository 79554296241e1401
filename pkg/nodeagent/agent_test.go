package nodeagent

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	ciliumv2alpha1 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/cilium-pool/cilium-pool-operator/pkg/nodeipam"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// node is a node with its agent, an API server, and a clock.
type node struct {
	*testing.T
	agent *Agent
	now   time.Time
	// stale, if set, is the CiliumNode as the watch still shows it.
	stale *ciliumv2.CiliumNode
	// restarts is how often the agent ended its process.
	restarts int
}

func newNode(t *testing.T, objects ...client.Object) *node {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{ciliumv2.AddToScheme, ciliumv2alpha1.AddToScheme, corev1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	store, err := nodeipam.Open(filepath.Join(t.TempDir(), "store"))
	if err != nil {
		t.Fatal(err)
	}
	store.Boot = boot
	nodeOf := func(obj client.Object) []string { return []string{obj.(*corev1.Pod).Spec.NodeName} }
	objects = append(objects, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}})
	c := fake.NewClientBuilder().WithScheme(scheme).WithIndex(&corev1.Pod{}, "spec.nodeName", nodeOf).WithObjects(objects...).WithStatusSubresource(&ciliumv2.CiliumNode{}).Build()
	n := &node{T: t, now: fixtures.Noon()}
	n.agent = &Agent{
		Node: "n", Store: store, Watched: watched{c, n}, Live: c, Client: c, ReportEvery: 15 * time.Second, Now: func() time.Time { return n.now },
		Restart: func() { n.restarts++ },
	}
	return n
}

// watched reads the CiliumNode as a watch shows it.
type watched struct {
	client.WithWatch
	node *node
}

func (w watched) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if cn, ok := obj.(*ciliumv2.CiliumNode); ok && w.node.stale != nil {
		w.node.stale.DeepCopyInto(cn)
		return nil
	}
	return w.WithWatch.Get(ctx, key, obj, opts...)
}

// boot is the run of the machine.
const boot = "boot"

// ciliumNode returns the CiliumNode of n, with the agent's own address, and with blocks by Cilium pool.
func ciliumNode(pools ...string) *ciliumv2.CiliumNode {
	cn := fixtures.CiliumNode("n", "")
	cn.Spec.Addresses = []ciliumv2.NodeAddress{{Type: "CiliumInternalIP", IP: "169.254.23.0"}}
	cn.Spec.BootID = boot
	list(cn, pools...)
	return cn
}

// list lists blocks: "default=10.0.0.0/29".
func list(cn *ciliumv2.CiliumNode, pools ...string) {
	cn.Spec.IPAM.Pools.Allocated = nil
	for _, p := range pools {
		pool, cidr, _ := strings.Cut(p, "=")
		allocation := ipamtypes.IPAMPoolAllocation{Pool: pool}
		allocation.CIDRs = append(allocation.CIDRs, fixtures.PodCIDR(cidr))
		cn.Spec.IPAM.Pools.Allocated = append(cn.Spec.IPAM.Pools.Allocated, allocation)
	}
}

func (n *node) live() *ciliumv2.CiliumNode {
	n.Helper()
	cn := &ciliumv2.CiliumNode{}
	if err := n.agent.Live.Get(n.Context(), types.NamespacedName{Name: "n"}, cn); err != nil {
		n.Fatal(err)
	}
	return cn
}

// operatorLists writes the blocks as the operator does.
func (n *node) operatorLists(pools ...string) {
	n.Helper()
	cn := n.live()
	list(cn, pools...)
	if err := n.agent.Client.Update(n.Context(), cn); err != nil {
		n.Fatal(err)
	}
}

func (n *node) reconcile() ctrl.Result {
	n.Helper()
	result, err := n.agent.Reconcile(n.Context(), ctrl.Request{})
	if err != nil {
		n.Fatal(err)
	}
	return result
}

// adopt reconciles a new store until it has taken over the addresses of pods.
func (n *node) adopt() {
	n.Helper()
	n.reconcile()
	n.expect("ADD meanwhile", n.add("early"), nodeipam.ErrNotReady.Error())
	n.now = n.now.Add(statusLag)
	n.reconcile()
}

// add assigns an address to a container, and returns it or the error.
func (n *node) add(container string) string {
	n.Helper()
	owner := nodeipam.Owner{Attachment: nodeipam.Attachment{Container: container}, Pod: "default/" + container, UID: "uid-" + container, Netns: n.netns(container)}
	if err := os.WriteFile(owner.Netns, nil, 0o600); err != nil {
		n.Fatal(err)
	}
	addrs, err := n.agent.Store.Assign(n.Context(), owner)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(addrs)
}

func (n *node) netns(container string) string { return filepath.Join(n.TempDir(), container) }

func (n *node) expect(what, got, want string) {
	n.Helper()
	if got != want {
		n.Errorf("%s: %s, want %s", what, got, want)
	}
}

// used prints the report in the CiliumNode.
func (n *node) used() string {
	n.Helper()
	var out []string
	for addr, ip := range n.live().Status.IPAM.Used {
		out = append(out, addr+" "+ip.Owner)
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// listed prints the blocks in the CiliumNode.
func (n *node) listed() string {
	n.Helper()
	var out []string
	for _, entry := range n.live().Spec.IPAM.Pools.Allocated {
		out = append(out, fmt.Sprint(entry.Pool, entry.CIDRs))
	}
	return strings.Join(out, " ")
}

// A new store adopts the addresses of running pods before it assigns any, and the CiliumNode shows all in use.
func TestFirstStart(t *testing.T) {
	host := fixtures.Pod("host", "h", "n", "192.0.2.1")
	host.Spec.HostNetwork = true
	n := newNode(t, ciliumNode("default=10.0.0.0/29"), fixtures.Pod("web", "w", "n", "10.0.0.1"), fixtures.Pod("a", "uid-a", "n"), host)
	n.expect("before", n.add("a"), nodeipam.ErrNotReady.Error())
	n.adopt()
	n.expect("used", n.used(), "10.0.0.1 default/web")
	n.expect("requested", fmt.Sprint(n.live().Spec.IPAM.Pools.Requested), "[{default {1 0}}]")
	n.expect("ADD", n.add("a"), "[10.0.0.2]")
	n.reconcile()
	n.expect("used at once", n.used(), "10.0.0.1 default/web")
	n.now = n.now.Add(15 * time.Second)
	n.reconcile()
	n.expect("used later", n.used(), "10.0.0.1 default/web, 10.0.0.2 default/a")
	before := n.live().ResourceVersion
	n.now = n.now.Add(time.Hour)
	n.reconcile()
	n.expect("version at rest", n.live().ResourceVersion, before)
}

// After a restore of etcd the operator asks for a report by a mark, which the report takes away.
func TestAnswersMark(t *testing.T) {
	cn := ciliumNode("default=10.0.0.0/29")
	cn.Status.IPAM.ReleaseIPs = map[string]ipamtypes.IPReleaseStatus{"233.252.0.1": "marked-for-release"}
	n := newNode(t, cn, fixtures.Pod("web", "w", "n", "10.0.0.1"))
	n.adopt()
	n.expect("marks", fmt.Sprint(n.live().Status.IPAM.ReleaseIPs), "map[]")
	n.expect("used", n.used(), "10.0.0.1 default/web")
}

// After a restore of etcd to lower versions the watch delivers none of them, so the agent starts anew. A conflict with a later
// version is no reason.
func TestWatchOfAnotherEtcd(t *testing.T) {
	n := newNode(t, ciliumNode("default=10.0.0.0/29"))
	n.stale = n.live()
	n.operatorLists("default=10.9.0.0/29")
	n.reconcile()
	if n.restarts > 0 {
		t.Error("it restarts after a conflict")
	}
	n.stale.ResourceVersion = "1000000"
	n.reconcile()
	if n.restarts != 1 {
		t.Errorf("it restarted %d times after a restore, want once", n.restarts)
	}
}

// A pod that names a pool which does not exist yet waits for it, and one of a new Namespace until the watch shows that.
func TestPoolNotThereYet(t *testing.T) {
	elsewhere := fixtures.Pod("elsewhere", "uid-elsewhere", "n")
	elsewhere.Namespace = "new"
	blue := fixtures.Pod("blue", "uid-blue", "n")
	blue.Annotations = map[string]string{"ipam.cilium.io/ip-pool": "blue"}
	n := newNode(t, ciliumNode("default=10.0.0.0/29"), fixtures.CiliumPodIPPool("default", 29), blue, elsewhere)
	n.reconcile()
	n.expect("blue", n.add("blue"), "no free ipv4 address of Cilium pool blue on this node")
	n.expect("elsewhere", n.add("elsewhere"), "the node agent has not seen Namespace new yet")
	n.expect("unseen", n.add("unseen"), "[10.0.0.1]")
}

// Where there are several Cilium pools, a pod gets an address once the node agent has seen which one it chose.
func TestPoolChoice(t *testing.T) {
	blue := fixtures.Pod("blue", "uid-blue", "n")
	blue.Annotations = map[string]string{"ipam.cilium.io/ip-pool": "blue"}
	strict := fixtures.Pod("strict", "uid-strict", "n")
	strict.Annotations = map[string]string{"ipam.cilium.io/require-pool-match": "true"}
	n := newNode(t, ciliumNode("blue=10.9.0.0/29", "default=10.0.0.0/29"), fixtures.CiliumPodIPPool("default", 29), fixtures.CiliumPodIPPool("blue", 29),
		blue, strict, fixtures.Pod("plain", "uid-plain", "n"))
	n.reconcile()
	n.expect("blue", n.add("blue"), "[10.9.0.1]")
	n.expect("plain", n.add("plain"), "[10.0.0.1]")
	n.expect("strict", n.add("strict"), "agents give no ipv4 address to pod default/strict, as no CiliumPodIPPool selects it, and the annotation ipam.cilium.io/require-pool-match of pod default/strict requires one")
	n.expect("unseen", n.add("unseen"), nodeipam.ErrNotReady.Error())
	if err := n.agent.Client.Create(t.Context(), fixtures.Pod("unseen", "uid-unseen", "n")); err != nil {
		t.Fatal(err)
	}
	n.reconcile()
	n.expect("seen", n.add("unseen"), "[10.0.0.2]")
}

// A lost store also adopts the addresses in the last report, as statuses of pods may not show them yet.
func TestLostStore(t *testing.T) {
	cn := ciliumNode("default=10.0.0.0/29")
	cn.Status.IPAM.Used = ipamtypes.AllocationMap{"10.0.0.1": {Owner: "default/new"}, "10.0.0.2": {Owner: "default/ended"}, "10.0.0.3": {Owner: "router"}}
	n := newNode(t, cn, fixtures.Pod("new", "uid-new", "n"))
	n.adopt()
	n.expect("used", n.used(), "10.0.0.1 default/new")
}

// While Cilium's agent runs in another mode, it assigns the addresses. Then a new store adopts them.
func TestMove(t *testing.T) {
	n := newNode(t, ciliumNode("default=10.0.0.0/29"), fixtures.Pod("stays", "uid-stays", "n"))
	n.reconcile()
	n.expect("stays", n.add("stays"), "[10.0.0.1]")
	n.expect("ends", n.add("ends"), "[10.0.0.2]")
	agentHas := func(router string) {
		cn := n.live()
		cn.Spec.Addresses[0].IP = router
		if err := n.agent.Client.Update(t.Context(), cn); err != nil {
			t.Fatal(err)
		}
	}
	agentHas("10.0.0.3")
	n.operatorLists("default.draining.cilium-pool.io=10.0.0.0/29")
	n.reconcile()
	n.expect("listed in another mode", n.listed(), "default.draining.cilium-pool.io[10.0.0.0/29]")
	n.expect("ADD in another mode", n.add("late"), nodeipam.ErrNotReady.Error())
	n.operatorLists("default=10.0.0.0/29")
	terminating := fixtures.Pod("terminating", "uid-terminating", "n", "10.0.0.2")
	terminating.Finalizers = []string{"a.b/c"}
	for _, pod := range []*corev1.Pod{fixtures.Pod("new", "uid-new", "n", "10.0.0.2"), terminating} {
		if err := n.agent.Client.Create(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.agent.Client.Delete(t.Context(), terminating); err != nil {
		t.Fatal(err)
	}
	agentHas("169.254.23.0")
	n.adopt()
	n.expect("used", n.used(), "10.0.0.1 default/stays, 10.0.0.2 default/new")
	n.expect("ADD after the move", n.add("late"), "[10.0.0.3]")
}

// Nothing is assigned before Cilium's agent says which families it runs, or if the CiliumNode is of another run of the
// machine: it may be of a Node that was deleted.
func TestBeforeCiliumStarts(t *testing.T) {
	cn := ciliumNode("default=10.0.0.0/29")
	cn.Spec.Addresses = nil
	n := newNode(t, cn)
	n.reconcile()
	n.expect("ADD", n.add("a"), nodeipam.ErrNotReady.Error())
	of := ciliumNode("default=10.0.0.0/29")
	of.Spec.BootID = "another"
	n = newNode(t, of)
	n.reconcile()
	n.expect("ADD after another boot", n.add("a"), nodeipam.ErrNotReady.Error())
	starts := n.live()
	starts.Spec.BootID = boot
	if err := n.agent.Client.Update(t.Context(), starts); err != nil {
		t.Fatal(err)
	}
	n.reconcile()
	n.expect("ADD once Cilium's agent has started", n.add("a"), "[10.0.0.1]")
}

// A closed block serves its pods until the last one ends, and no other. Then it is returned at once.
func TestClosedBlock(t *testing.T) {
	n := newNode(t, ciliumNode("default=10.0.0.0/29"))
	n.reconcile()
	n.expect("ADD", n.add("a"), "[10.0.0.1]")
	n.operatorLists("default=10.9.0.0/29", "default.draining.cilium-pool.io=10.0.0.0/29")
	if got := n.reconcile().RequeueAfter; got != drainEvery {
		t.Errorf("looks again after %s, want %s", got, drainEvery)
	}
	n.expect("listed while in use", n.listed(), "default[10.9.0.0/29] default.draining.cilium-pool.io[10.0.0.0/29]")
	n.expect("ADD", n.add("b"), "[10.9.0.1]")
	if err := n.agent.Store.Release(t.Context(), nodeipam.Attachment{Container: "a"}); err != nil {
		t.Fatal(err)
	}
	n.reconcile()
	n.expect("listed when empty", n.listed(), "default[10.9.0.0/29]")
	n.expect("used", n.used(), "10.9.0.1 default/b")
	n.operatorLists("default=10.0.0.0/29")
	n.reconcile()
	n.expect("ADD in a block that came back", n.add("c"), "[10.0.0.2]")
}

// A closed block stays as long as a pod's status names an address of it, though the store does not know the pod.
func TestClosedBlockOfUnknownPod(t *testing.T) {
	n := newNode(t, ciliumNode("default.draining.cilium-pool.io=10.0.0.0/29"))
	n.reconcile()
	n.expect("listed without pods", n.listed(), "")
	n.operatorLists("default.draining.cilium-pool.io=10.0.0.0/29")
	web := fixtures.Pod("web", "w", "n", "10.0.0.1")
	if err := n.agent.Client.Create(t.Context(), web); err != nil {
		t.Fatal(err)
	}
	n.reconcile()
	n.expect("listed", n.listed(), "default.draining.cilium-pool.io[10.0.0.0/29]")
}

// A block that the operator has opened meanwhile is not returned.
func TestOpenedBlock(t *testing.T) {
	n := newNode(t, ciliumNode("default.draining.cilium-pool.io=10.0.0.0/29"))
	n.stale = n.live()
	n.operatorLists("default=10.0.0.0/29")
	n.reconcile()
	n.expect("listed", n.listed(), "default[10.0.0.0/29]")
	n.stale = nil
	n.reconcile()
	n.expect("ADD", n.add("a"), "[10.0.0.1]")
}

// Without a CiliumNode, no further pod gets an address: the blocks may be other nodes'. With a new one they do, before
// Cilium's agent writes the families that it runs, which the store knows.
func TestCiliumNodeGone(t *testing.T) {
	n := newNode(t, ciliumNode("default=10.0.0.0/29"))
	n.reconcile()
	n.expect("ADD", n.add("a"), "[10.0.0.1]")
	if err := n.agent.Client.Delete(t.Context(), n.live()); err != nil {
		t.Fatal(err)
	}
	n.reconcile()
	n.expect("ADD without a CiliumNode", n.add("b"), "no free ipv4 address of Cilium pool default on this node")
	again := ciliumNode("default=10.0.0.0/29")
	again.Spec.Addresses = nil
	again.Spec.BootID = ""
	if err := n.agent.Client.Create(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	n.reconcile()
	n.expect("ADD before Cilium's agent has written its addresses", n.add("b"), "[10.0.0.2]")
	n.expect("used", n.used(), "10.0.0.1 default/a")
}

// An older version of the CiliumNode, from an API server that lags, brings no returned block back. A restore of etcd
// does: then the API server knows no newer version.
func TestOlderCiliumNode(t *testing.T) {
	n := newNode(t, ciliumNode("default=10.0.0.0/29"))
	older := n.live()
	n.operatorLists("default=10.9.0.0/29")
	n.reconcile()
	n.stale = older
	n.reconcile()
	n.expect("ADD", n.add("a"), "[10.9.0.1]")
	restored := n.live()
	list(restored, "default=10.5.0.0/29")
	restored.ResourceVersion = "1"
	n.stale = restored
	n.agent.Live = lives{restored}
	n.reconcile()
	n.expect("ADD after a restore", n.add("b"), "[10.5.0.1]")
}

// lives is an API server with one object.
type lives struct{ cn *ciliumv2.CiliumNode }

func (l lives) Get(_ context.Context, _ client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	if cn, ok := obj.(*ciliumv2.CiliumNode); ok {
		l.cn.DeepCopyInto(cn)
	}
	return nil
}

func (lives) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

// An address is released that no runtime will release: its pod and its network namespace are gone for a while.
func TestOrphans(t *testing.T) {
	running := fixtures.Pod("running", "uid-running", "n")
	failed := fixtures.Pod("failed", "uid-failed", "n")
	failed.Status.Phase = corev1.PodFailed
	n := newNode(t, ciliumNode("default=10.0.0.0/28"), running, failed, fixtures.Pod("adopted", "adopted", "n", "10.0.0.9"))
	n.adopt()
	for _, container := range []string{"running", "ended", "torn-down", "failed"} {
		n.add(container)
	}
	taken := func() string {
		owners, err := n.agent.Store.Assignments()
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, addr := range []string{"10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.9"} {
			if owner, ok := owners[netip.MustParseAddr(addr)]; ok {
				out = append(out, owner.Pod)
			}
		}
		return strings.Join(out, " ")
	}
	owners, err := n.agent.Store.Assignments()
	if err != nil {
		t.Fatal(err)
	}
	for _, addr := range []string{"10.0.0.1", "10.0.0.3", "10.0.0.4"} { // the other one is of a pod that the API server has forgotten, and that still runs
		if err := os.Remove(owners[netip.MustParseAddr(addr)].Netns); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.agent.Client.Delete(t.Context(), fixtures.Pod("adopted", "adopted", "n")); err != nil {
		t.Fatal(err)
	}
	n.reconcile()
	n.now = n.now.Add(orphanedFor - time.Second)
	n.reconcile()
	n.expect("used", n.used(), "10.0.0.1 unknown/unknown, 10.0.0.2 default/ended, 10.0.0.3 unknown/unknown, 10.0.0.4 unknown/unknown, 10.0.0.9 default/adopted")
	n.expect("soon", taken(), "default/running default/ended default/torn-down default/failed default/adopted")
	n.now = n.now.Add(time.Second)
	n.reconcile()
	n.expect("later", taken(), "default/running default/ended")
}
