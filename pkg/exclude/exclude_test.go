package exclude

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
)

func prefixes(list ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

func TestObjects(t *testing.T) {
	n := &corev1.Node{}
	n.Status.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: "192.0.2.7"}, {Type: corev1.NodeInternalIP, Address: "fd00::7"},
		{Type: corev1.NodeExternalIP, Address: "::ffff:198.51.100.7"}, {Type: corev1.NodeExternalIP, Address: "192.0.2.7"},
		{Type: corev1.NodeHostName, Address: "10.0.0.1"}, {Type: corev1.NodeHostName, Address: "192.0.2.7"},
		{Type: corev1.NodeInternalIP, Address: "none"}, {Type: corev1.NodeInternalIP, Address: "010.0.0.1"},
		{Type: corev1.NodeInternalIP, Address: "FD00:0::7"}, {Type: corev1.NodeInternalIP, Address: "fe80::1%eth0"},
	}
	s := &networkingv1.ServiceCIDR{Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"fd00:96::/112", "10.96.0.0/12", "x", "::ffff:10.96.0.1/108"}}}
	service := &corev1.Service{Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.1", ExternalIPs: []string{"198.51.100.8", "::ffff:198.51.100.7"}, LoadBalancerIP: "198.51.100.9"}}
	service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "198.51.100.9"}, {Hostname: "lb.example.com"}, {IP: "FD00::9"}}
	pool := &ciliumv2.CiliumLoadBalancerIPPool{Spec: ciliumv2.CiliumLoadBalancerIPPoolSpec{Disabled: true, Blocks: []ciliumv2.CiliumLoadBalancerIPPoolIPBlock{
		{Cidr: "10.1.0.9/24"}, {Cidr: "FD00:1::/112"}, {Cidr: "x"}, {Start: "10.2.0.1", Stop: "10.2.0.3"}, {Start: "10.2.0.9"},
		{Start: "10.3.0.2", Stop: "10.3.0.1"}, {Start: "10.3.0.2", Stop: "fd00::1"}, {Start: "10.3.0.2", Stop: "x"}, {Stop: "10.3.0.2"}, {},
	}}}
	many := &corev1.Node{}
	for i := range maxOfNode + 1 {
		many.Status.Addresses = append(many.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("10.0.1.%d", 99-i)})
	}
	ofNode, _ := OfNode(n)
	ofMany, askedByMany := OfNode(many)
	assigned, asked := OfService(service)
	ofNone, askedByNone := OfService(&corev1.Service{})
	for name, test := range map[string]struct{ got, want []netip.Prefix }{
		"a Node":                     {ofNode, prefixes("10.0.0.1/32", "192.0.2.7/32", "198.51.100.7/32", "fd00::7/128", "fe80::1/128")},
		"a ServiceCIDR":              {OfServices(s), prefixes("10.96.0.0/12", "fd00:96::/112")},
		"a Node with many":           {ofMany[:1], prefixes("10.0.1.84/32")},
		"its last ones":              {askedByMany, prefixes("10.0.1.83/32")},
		"a Service":                  {assigned, prefixes("198.51.100.9/32", "fd00::9/128")},
		"asked by a Service":         {asked, prefixes("198.51.100.7/32", "198.51.100.8/32")},
		"no Service":                 {ofNone, nil},
		"asked by no Service":        {askedByNone, nil},
		"a CiliumLoadBalancerIPPool": {OfLoadBalancerPool(pool), prefixes("10.1.0.0/24", "10.2.0.1/32", "10.2.0.2/31", "10.2.0.9/32", "fd00:1::/112")},
		"addresses":                  {Of([]netip.Addr{netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("10.0.0.1")}), prefixes("10.0.0.1/32", "10.0.0.2/32")},
	} {
		if fmt.Sprint(test.got) != fmt.Sprint(test.want) {
			t.Errorf("%s: %v, want %v", name, test.got, test.want)
		}
	}
}

// If a Node and its CiliumNode name the same address, it is dropped with the last of them.
func TestSharedAddress(t *testing.T) {
	var s Set
	node, ciliumNode := Claimant{Kind: Node, Name: "a"}, Claimant{Kind: CiliumNode, Name: "a"}
	for i, step := range []struct {
		by                     Claimant
		cidrs                  []netip.Prefix
		added, removed, shared int
	}{
		{node, prefixes("10.0.0.5/32"), 1, 0, 0},
		{ciliumNode, prefixes("10.0.0.5/32"), 0, 0, 1},
		{node, nil, 0, 0, 1},
		{ciliumNode, prefixes("10.0.0.6/32"), 1, 1, 0},
		{ciliumNode, nil, 0, 1, 0},
	} {
		added, removed, shared := s.Put(step.by, step.cidrs)
		if len(added) != step.added || len(removed) != step.removed || len(shared) != step.shared {
			t.Errorf("step %d: added %v, removed %v, shared %v", i, added, removed, shared)
		}
	}
	if len(s.byClaimant)+len(s.claimants) > 0 {
		t.Errorf("something is kept: %v %v", s.byClaimant, s.claimants)
	}
}

// A Set finds the same as a search through a list.
func TestSetAgainstList(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	cidr := func() netip.Prefix {
		p, err := netip.AddrFrom4([4]byte{10, 0, 0, byte(r.IntN(256))}).Prefix(24 + r.IntN(9))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	var s Set
	all := map[Claimant][]netip.Prefix{}
	for i := range 2000 {
		by := Claimant{Kind: Node, Name: fmt.Sprint(r.IntN(8))}
		var has []netip.Prefix
		for range r.IntN(4) {
			has = append(has, cidr())
		}
		all[by] = sorted(has)
		s.Put(by, all[by])
		in := cidr()
		var want []netip.Prefix
		for _, cidrs := range all {
			for _, p := range cidrs {
				if p.Overlaps(in) {
					want = append(want, p)
				}
			}
		}
		if got := CIDRs(s.In(in)); fmt.Sprint(got) != fmt.Sprint(sorted(want)) {
			t.Fatalf("step %d: in %s are %v, want %v", i, in, got, want)
		}
		for _, found := range s.In(in) {
			if !slices.Contains(all[found.By], found.CIDR) {
				t.Fatalf("step %d: %s has no %s", i, found.By, found.CIDR)
			}
		}
	}
}

// The object that has an address is named before another that only asks for it.
func TestAsked(t *testing.T) {
	var s Set
	s.Put(Claimant{LoadBalancerPool, "lb", true}, prefixes("10.0.0.5/32", "10.0.0.6/32"))
	s.Put(Claimant{Kind: Service, Name: "default/web"}, prefixes("10.0.0.5/32", "10.0.0.7/32"))
	s.Put(Claimant{LoadBalancerPool, "late", true}, prefixes("10.0.0.7/32"))
	var got []string
	for _, r := range s.In(netip.MustParsePrefix("10.0.0.0/24")) {
		got = append(got, fmt.Sprint(r, " ", r.Asked()))
	}
	if diff := cmp.Diff([]string{"10.0.0.5 of Service default/web false", "10.0.0.6 of CiliumLoadBalancerIPPool lb true", "10.0.0.7 of Service default/web false"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestWords(t *testing.T) {
	var s Set
	s.Put(Claimant{Kind: ServiceCIDR, Name: "kubernetes"}, prefixes("10.96.0.0/12"))
	for i := range 9 {
		s.Put(Claimant{Kind: Node, Name: fmt.Sprint("n", i)}, prefixes(fmt.Sprintf("10.0.0.%d/32", i)))
	}
	s.Put(Claimant{Service, "t/a", true}, prefixes("10.0.1.1/32"))
	s.Put(Claimant{Service, "t/b", true}, prefixes("10.0.1.2/32"))
	words := Words(s.InAll(prefixes("10.96.0.0/12", "10.0.0.0/8")), func(r Range) string {
		if r.By.Name == "n1" {
			return "in block 10.0.0.0/27"
		}
		return ""
	})
	want := "10.0.0.0 of Node n0, 10.0.0.1 of Node n1 (in block 10.0.0.0/27), 10.0.0.2 of Node n2, 10.0.0.3 of Node n3, 10.0.0.4 of Node n4 and 7 more, most of them of Services of namespace t"
	if diff := cmp.Diff(want, words); diff != "" {
		t.Error(diff)
	}
	if five := Words(s.In(netip.MustParsePrefix("10.0.0.0/8"))[:5], nil); strings.Contains(five, "more") {
		t.Error(five)
	}
	if one := Words(s.In(netip.MustParsePrefix("10.100.0.0/24")), nil); !strings.Contains(one, "10.96.0.0/12 of ServiceCIDR kubernetes") {
		t.Error(one)
	}
}
