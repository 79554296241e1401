package informer

import (
	"testing"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// A standby keeps the deleted CiliumNode of a Node that exists, as it may have to restore it.
func TestStandbyForgetsGoneNodes(t *testing.T) {
	feed := newBed()
	feed.Elected = make(chan struct{})
	node, cn := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, ciliumnode.NewView(fixtures.CiliumNode("n", "1", "10.0.0.0/24"))
	feed.onNode(node)
	feed.onCiliumNode(cn)
	feed.onCiliumNodeGone(cn.At("2"))
	if feed.Ledger.LastCiliumNode("n") == nil {
		t.Error("the CiliumNode of a Node that exists is forgotten")
	}
	feed.onNodeGone(node)
	if feed.Ledger.LastCiliumNode("n") != nil {
		t.Error("the CiliumNode of a Node that is gone is kept")
	}
}

// The feed records the addresses of Nodes, CiliumNodes and ServiceCIDRs, and queues only the
// nodes and pools concerned.
func TestFeedExcludes(t *testing.T) {
	feed := newBed()
	feed.Ledger, feed.Awaiting = state.ReadyLedger(fixtures.Block("10.0.0.0/30", "p", "holder", 1), fixtures.Block("10.9.0.0/30", "q", "other", 2)), &state.Awaiting{}
	feed.Awaiting.Set("starving", true, true, [2][]*crd.Pool{{{Name: "p"}, {Name: "q"}}})
	feed.Pools, feed.Ledger.Changed = state.NewPools(fixtures.Defaults(), feed.Ledger), feed.SpaceChanged
	feed.Pools.Set(fixtures.PodIPPool("p", 1, "10.0.0.0/24"))
	feed.Pools.Set(fixtures.PodIPPool("q", 1, "10.9.0.0/24"))
	var queued []string
	look := listening{add: func(name string) { queued = append(queued, name) }}
	feed.queues = [queueCount]workQueue{NodeQueue: look, PoolQueue: look, BlockQueue: look}

	served := func() (bool, error) { return true, nil }
	feed.From = Sources{HasServiceCIDRs: served, HasLoadBalancerPools: served, APIServer: "192.0.2.9"}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.2"}}
	elsewhere := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "b"}}
	elsewhere.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}}
	cn := fixtures.CiliumNode("a", "1")
	router := fixtures.CiliumNode("a", "2")
	router.Spec.Addresses = []ciliumv2.NodeAddress{{Type: "CiliumInternalIP", IP: "10.0.0.3"}}
	its := fixtures.Block("10.0.0.2/31", "p", "a", 3)
	services := &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.9.0.0/25"}}}
	store, endpoints := feed.serviceStore(), feed.endpointStore()
	balanced := func(uid, addr string) *corev1.Service {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: types.UID(uid)}}
		if addr != "" {
			s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: addr}}
		}
		return s
	}
	// show shows the store the list of Services, or the change of one.
	show := func(event func(any) error, s client.Object) func() {
		return func() {
			if err := event(s); err != nil {
				t.Error(err)
			}
		}
	}
	list := func(services ...any) func() {
		return func() {
			if err := store.Replace(services, "1"); err != nil {
				t.Error(err)
			}
		}
	}
	offers := &ciliumv2.CiliumLoadBalancerIPPool{ObjectMeta: metav1.ObjectMeta{Name: "lb"}}
	offers.Spec.Blocks = []ciliumv2.CiliumLoadBalancerIPPoolIPBlock{{Cidr: "10.9.0.0/30"}}
	apiServer := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kubernetes"}, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}}}}
	for _, step := range []struct {
		what string
		do   func()
		want []string
	}{
		{"a Service without addresses", show(store.Add, balanced("1", "")), nil},
		{"a Service with one of a block", show(store.Add, balanced("1", "10.0.0.1")), []string{"p", "holder"}},
		{"again", show(store.Update, balanced("1", "10.0.0.1")), nil},
		{"another Service under its name, which the list shows first", list(balanced("2", "10.0.0.1")), nil},
		{"and one without addresses", list(balanced("3", "")), []string{"starving", "p", "holder"}},
		{"it is gone", show(store.Delete, balanced("3", "")), nil},
		{"a Service again", show(store.Add, balanced("4", "10.0.0.1")), []string{"p", "holder"}},
		{"is deleted", show(store.Delete, balanced("4", "10.0.0.1")), []string{"starving", "p", "holder"}},
		{"an address of the API server", show(endpoints.Add, apiServer), []string{"p", "holder"}},
		{"none", show(endpoints.Delete, apiServer), []string{"starving", "p", "holder"}},
		{"a range offered to Services", func() { deliver(feed, offers, false) }, []string{"q"}},
		{"no such range", func() { deliver(feed, offers, true) }, []string{"starving", "q"}},
		{"a Node with an address of a block", func() { feed.onNode(node) }, []string{"p", "holder", "a", "p", "q"}},
		{"again", func() { feed.onNode(node) }, []string{"a"}},
		{"a Node with another address", func() { feed.onNode(elsewhere) }, []string{"b", "p", "q"}},
		{"a CiliumNode without any", func() { feed.onCiliumNode(ciliumnode.NewView(cn)) }, []string{"a"}},
		{"its router in a block of another node", func() { feed.onCiliumNode(ciliumnode.NewView(router)) }, []string{"holder", "p", "holder", "a"}},
		{"and in one of its own", func() {
			feed.Ledger.Upsert(its)
			feed.wake(exclusionChanged, subject{excluded: feed.excludeCiliumNode("a")})
		}, []string{"holder", "a", "starving", "p", "holder", "a"}},
		{"Services", func() { deliver(feed, services, false) }, []string{"q", "other"}},
		{"no Services", func() { deliver(feed, services, true) }, []string{"starving", "q", "other"}},
		{"the Node is gone", func() { feed.onNodeGone(node) }, []string{"starving", "p", "holder", "a", "a", "p", "q"}},
	} {
		queued = nil
		feed.Awaiting.Begin("starving") // it has been reconciled since the last step
		feed.Awaiting.End("starving")
		step.do()
		if diff := cmp.Diff(step.want, queued); diff != "" {
			t.Errorf("%s: queued (-want +got):\n%s", step.what, diff)
		}
	}
	if left := feed.Ledger.Exclusions.Excluded(fixtures.Prefix("10.0.0.0/8")); len(left) > 0 {
		t.Errorf("still excluded: %v", left)
	}
	if dialed := feed.Ledger.Exclusions.Excluded(fixtures.Prefix("192.0.2.9/32")); len(dialed) != 1 {
		t.Errorf("of the address that the operator dials: %v", dialed)
	}
	if len(feed.services.uids) > 0 {
		t.Errorf("Services are kept: %v", feed.services.uids)
	}
}
