package controller

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/exclude"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// A block with the address of a node, or of a Service, is assigned to nobody.
func TestClusterAddressesAreNotClaimed(t *testing.T) {
	ledger := NewLedger()
	pools := NewPools(defaults(), ledger)
	pools.Set(podIPPool("p", 1, "10.0.0.0/28"))
	node, services := exclude.Claimant{Kind: exclude.Node, Name: "a"}, exclude.Claimant{Kind: exclude.ServiceCIDR, Name: "kubernetes"}
	ledger.Exclude(node, prefixes("10.0.0.1/32"))
	ledger.Exclude(services, prefixes("10.0.0.8/29"))
	ledger.SetReady()
	claim := func() (netip.Prefix, error) {
		cidr, _, err := ledger.Claim(ipalloc.IPv4, "n", []*crd.Pool{pools.Get("p")})
		return cidr, err
	}
	if got, err := claim(); err != nil || got != prefix("10.0.0.4/30") {
		t.Errorf("claimed %s, %v", got, err)
	}
	if got, err := claim(); err == nil {
		t.Errorf("claimed %s", got)
	}
	ledger.Exclude(node, nil)
	if got, err := claim(); err != nil || got != prefix("10.0.0.0/30") {
		t.Errorf("with the node gone: %s, %v", got, err)
	}
}

// Of a block that is held, the address of a node is withheld; where agents have
// whole blocks, nothing can be.
func TestClusterAddressesAreWithheld(t *testing.T) {
	ledger := readyLedger(block("10.0.0.0/29", "p", "n", 1))
	o := &Observer{Ledger: ledger, Pools: NewPools(defaults(), ledger), Defaults: defaults()}
	pool := podIPPool("p", 1, "10.0.0.0/24")
	pool.Spec.IPv4.BlockSize = 29
	o.Pools.Set(pool)
	ledger.Exclude(exclude.Claimant{Kind: exclude.CiliumNode, Name: "a"}, prefixes("10.0.0.3/32"))
	usable := func(view *ciliumnode.View) []netip.Addr {
		s := o.State(expand.State{Node: "n", Family: ipalloc.IPv4}, "", view, ledger.NodeBlocks("n"))
		return s.Blocks[0].Usable
	}
	want := []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"),
		netip.MustParseAddr("10.0.0.4"), netip.MustParseAddr("10.0.0.5"), netip.MustParseAddr("10.0.0.6")}
	if diff := cmp.Diff(want, usable(ciliumnode.Keep(ciliumNode("n", "1", "10.0.0.0/29")).View), compareNetip()); diff != "" {
		t.Errorf("usable (-want +got):\n%s", diff)
	}
	whole := ciliumnode.MultiPool.Keep(pooled(1, "10.0.0.0/29")).View
	if !slices.Contains(usable(whole), netip.MustParseAddr("10.0.0.3")) {
		t.Error("an address of a whole block is withheld, which its agent uses all the same")
	}
}

// The feed takes in the addresses of Nodes, CiliumNodes and ServiceCIDRs, and looks
// at the nodes and pools concerned alone.
func TestFeedExcludes(t *testing.T) {
	feed := NewFeed()
	feed.Ledger, feed.Starving = readyLedger(block("10.0.0.0/30", "p", "holder", 1), block("10.9.0.0/30", "q", "other", 2)), func([]string) []string { return []string{"starving"} }
	feed.Pools, feed.Ledger.Changed = NewPools(defaults(), feed.Ledger), feed.Changed
	feed.Pools.Set(podIPPool("p", 1, "10.0.0.0/24"))
	feed.Pools.Set(podIPPool("q", 1, "10.9.0.0/24"))
	var queued []string
	look := listening{add: func(name string) { queued = append(queued, name) }}
	feed.nodes, feed.pools, feed.blocks = look, look, look

	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.2"}}
	elsewhere := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "b"}}
	elsewhere.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}}
	cn := ciliumNode("a", "1")
	services := &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.9.0.0/25"}}}
	for _, step := range []struct {
		what string
		do   func()
		want []string
	}{
		{"a Node with an address of a block", func() { feed.node(node) }, []string{"p", "holder", "a"}},
		{"again", func() { feed.node(node) }, []string{"a"}},
		{"a Node with another address", func() { feed.node(elsewhere) }, []string{"b"}},
		{"a CiliumNode without any", func() { feed.ciliumNode(ciliumnode.Keep(cn)) }, []string{"a"}},
		{"Services", func() { feed.serviceCIDR(services) }, []string{"q", "other"}},
		{"no Services", func() { feed.serviceCIDRGone(services) }, []string{"starving", "q", "other"}},
		{"the Node is gone", func() { feed.nodeGone(node) }, []string{"starving", "p", "holder", "a"}},
	} {
		queued = nil
		step.do()
		if diff := cmp.Diff(step.want, queued); diff != "" {
			t.Errorf("%s: queued (-want +got):\n%s", step.what, diff)
		}
	}
	if left := feed.Ledger.Excluded(prefix("10.0.0.0/8")); len(left) > 0 {
		t.Errorf("still excluded: %v", left)
	}
}

// ServiceCIDRs are watched where the API server may know them, and asked for first.
func TestServiceCIDRsAreWatched(t *testing.T) {
	for _, has := range []func() (bool, error){nil, func() (bool, error) { return true, nil }} {
		f := NewFeed()
		f.From.HasServiceCIDRs = has
		watched := slices.ContainsFunc(f.Watches(logr.Discard()), func(w Watch) bool {
			_, is := w.Object.(*networkingv1.ServiceCIDR)
			return is && w.Known != nil
		})
		if watched != (has != nil) {
			t.Errorf("asked for: %t, watched: %t", has != nil, watched)
		}
	}
}

// A pool reports what it covers, and counts no block that is not assigned.
func TestPoolReportsClusterAddresses(t *testing.T) {
	obj := podIPPool("p", 1, "10.0.0.0/28")
	ledger := readyLedger(block("10.0.0.0/30", "p", "n", 1))
	pools := NewPools(defaults(), ledger)
	pools.Set(obj)
	ledger.Exclude(exclude.Claimant{Kind: exclude.Node, Name: "a"}, prefixes("10.0.0.1/32", "10.0.0.9/32", "10.7.0.1/32"))
	excluded := ledger.ExcludedFrom(pools.Get("p"))
	usage := usageOf(pools.Get("p").Skipping(exclude.CIDRs(excluded)), ledger.PoolBlocks("p"), ledger.Free)
	usage.fill(&obj.Status)
	want := v1alpha1.StateCounts{Total: 3, InService: 1, Free: 2}
	if diff := cmp.Diff(want, obj.Status.IPv4.Blocks); diff != "" {
		t.Errorf("blocks (-want +got):\n%s", diff)
	}
	setExcluded(obj, excluded, ledger.HolderOf, noon())
	message := messageOf(obj.Status.Conditions, v1alpha1.PoolCoversCluster)
	if !strings.Contains(message, "10.0.0.1 of Node a (in block 10.0.0.0/30 of node n), 10.0.0.9 of Node a.") {
		t.Errorf("the message is %q", message)
	}
	setExcluded(obj, nil, ledger.HolderOf, noon())
	if c := meta.FindStatusCondition(obj.Status.Conditions, v1alpha1.PoolCoversCluster); c != nil {
		t.Errorf("it covers none, and says %+v", c)
	}
}
