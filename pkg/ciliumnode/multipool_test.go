package ciliumnode

import (
	"fmt"
	"net/netip"
	"testing"

	iputil "github.com/cilium/cilium/pkg/ip"
	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

func TestMultiPoolView(t *testing.T) {
	cn := pooled("blue 10.9.0.0/28", "default 10.0.0.5/30 fd00::/126 10.0.0.8/30")
	cn.Spec.IPAM.Pools.Requested = []ipamtypes.IPAMPoolRequest{
		{Pool: "blue", Needed: ipamtypes.IPAMPoolDemand{IPv4Addrs: 99}},
		{Pool: "default", Needed: ipamtypes.IPAMPoolDemand{IPv4Addrs: 16, IPv6Addrs: 8}},
	}
	cn.Spec.IPAM.PodCIDRs = []iputil.Prefix{iputil.PrefixFrom(netip.MustParsePrefix("10.8.0.0/24"))}
	cn.Spec.IPAM.Pool = ipamtypes.AllocationMap{"10.7.0.1": {}}
	cn.Status.IPAM.Used = ipamtypes.AllocationMap{"10.7.0.2": {}}
	cn.Spec.Addresses = []ciliumv2.NodeAddress{{Type: "InternalIP", IP: "192.168.0.1"}, {Type: "CiliumInternalIP", IP: "10.0.0.5"}}
	cn.Spec.HealthAddressing = ciliumv2.HealthAddressingSpec{IPv4: "10.0.0.6", IPv6: "fd00::1"}
	cn.Spec.IngressAddressing.IPV4 = "10.0.0.9"
	v := MultiPool.View(cn)

	checkEqual(t, "CIDRs", cidrs("10.0.0.4/30", "fd00::/126", "10.0.0.8/30"), v.PodCIDRs)
	used := map[netip.Addr]string{}
	for addr, name := range map[string]string{"10.0.0.5": "router", "10.0.0.6": "health", "fd00::1": "health", "10.0.0.9": "ingress"} {
		used[netip.MustParseAddr(addr)] = name
	}
	checkEqual(t, "used", used, v.Used)
	if v.BlockAssignment.Requested != [2]int{ipalloc.IPv4: 16, ipalloc.IPv6: 8} || !v.BlockAssignment.Reported() {
		t.Errorf("requested %v, heard %t", v.BlockAssignment.Requested, v.BlockAssignment.Reported())
	}
	taken := sorted(v.BlockAssignment.Taken)
	checkEqual(t, "taken", cidrs("10.7.0.1/32", "10.7.0.2/32", "10.8.0.0/24", "10.9.0.0/28"), taken)
	if v.Addresses != nil {
		t.Errorf("addresses of crd mode count as published: %+v", v.Addresses)
	}
	if diff := cmp.Diff(cidrs("10.8.0.0/24"), v.BlockAssignment.LeftCIDRs, compareNetip()); diff != "" || v.BlockAssignment.LeftAddresses != 1 {
		t.Errorf("%d addresses left of crd mode, podCIDRs (-want +got):\n%s", v.BlockAssignment.LeftAddresses, diff)
	}
}

func TestLeftover(t *testing.T) {
	tests := map[string]struct {
		mode     Mode
		reported bool
		cidr     string
		want     bool
	}{
		"reported, and named":        {MultiPool, true, "10.0.0.4/30", true},
		"of whichever pool":          {MultiPool, true, "10.9.0.0/30", true},
		"nothing is reported":        {MultiPool, false, "10.0.0.4/30", false},
		"not named":                  {MultiPool, true, "10.0.0.8/30", false},
		"crd mode has its own agent": {CRD, true, "10.0.0.4/30", false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			cn := pooled("default 10.0.0.0/30")
			for _, cidr := range cidrs("10.0.0.0/30", "10.0.0.4/30", "10.9.0.0/30") {
				cn.Spec.IPAM.PodCIDRs = append(cn.Spec.IPAM.PodCIDRs, iputil.PrefixFrom(cidr))
			}
			if test.reported {
				cn.Status.IPAM.Used = ipamtypes.AllocationMap{"10.0.0.1": {}}
			}
			for _, pool := range []string{"", "blue"} {
				if got := test.mode.View(cn).Of(pool).Leftover(cidrs(test.cidr)[0]); got != test.want {
					t.Errorf("of pool %q: %t, want %t", pool, got, test.want)
				}
			}
		})
	}
}

// The part of one Cilium pool reads as if there were no other.
func TestOf(t *testing.T) {
	cn := pooled("blue 10.9.0.5/28 fd00:9::/126", "default 10.0.0.0/30", "green 10.7.0.0/28")
	cn.Spec.IPAM.Pools.Allocated[0].AllowFirstIP = true
	cn.Spec.IPAM.Pools.Requested = []ipamtypes.IPAMPoolRequest{
		{Pool: "blue", Needed: ipamtypes.IPAMPoolDemand{IPv4Addrs: 3}}, {Pool: "default", Needed: ipamtypes.IPAMPoolDemand{IPv4Addrs: 16}},
	}
	cn.Spec.Addresses = []ciliumv2.NodeAddress{{Type: "CiliumInternalIP", IP: "10.0.0.1"}}
	base := MultiPool.View(cn)
	blue := base.Of("blue")
	checkEqual(t, "CIDRs", cidrs("10.9.0.0/28", "fd00:9::/126"), blue.PodCIDRs)
	if w := blue.BlockAssignment; w.Requested != [2]int{ipalloc.IPv4: 3} || !w.Reported() || !w.PodsOnly || !w.Uses(ipalloc.IPv4) || w.Uses(ipalloc.IPv6) {
		t.Errorf("of blue it says %+v", w)
	}
	if n := blue.BlockAssignment.Count(cidrs("10.9.0.0/28")[0]); n != 15 {
		t.Errorf("%d addresses of a /28 with its first one, want 15", n)
	}
	if len(blue.Own)+len(blue.Used) > 0 {
		t.Errorf("the agent's own addresses are of the default pool: %v", blue.Own)
	}
	if diff := cmp.Diff(cidrs("10.0.0.0/30"), base.PodCIDRs, compareNetip()); diff != "" || base.BlockAssignment.PodsOnly || base.Of("") != base {
		t.Errorf("the default pool has changed (-want +got):\n%s", diff)
	}
	if red := base.Of("red"); len(red.PodCIDRs) > 0 || red.BlockAssignment.Requested != [2]int{} || !red.BlockAssignment.Reported() {
		t.Errorf("of a pool that is not there it says %+v, %v", red.BlockAssignment, red.PodCIDRs)
	}
	checkEqual(t, "listed", cidrs("10.0.0.0/30", "10.9.0.0/28", "fd00:9::/126", "10.7.0.0/28"), base.ListedInAnyPool())
	for cidr, want := range map[string]string{"10.0.0.0/30": "", "10.9.0.0/28": "blue", "10.7.0.0/28": "green", "10.6.0.0/28": ""} {
		if got := base.ListedFor(cidrs(cidr)[0]); got != want {
			t.Errorf("%s is listed for %q, want %q", cidr, got, want)
		}
	}
	if v := CRD.View(cn); v.Of("blue") != v {
		t.Error("in crd mode there are pools")
	}
}

func TestMultiPoolNotHeard(t *testing.T) {
	cn := pooled("default 10.0.0.0/30")
	cn.Spec.IPAM.Pools.Requested = []ipamtypes.IPAMPoolRequest{{Pool: "blue", Needed: ipamtypes.IPAMPoolDemand{IPv4Addrs: 8}}}
	if v := MultiPool.View(cn); v.BlockAssignment.Reported() {
		t.Error("what it requests of another pool is taken for what it requests of this one")
	}
}

// As the agent counts them (Cilium v1.20.1, pkg/ipam/service/ipallocator).
func TestMultiPoolCount(t *testing.T) {
	for name, test := range map[string]struct {
		first, last bool
		cidr        string
		want        int
	}{
		"all but the edges":       {cidr: "10.0.0.0/30", want: 2},
		"with the first":          {first: true, cidr: "10.0.0.0/30", want: 3},
		"with both":               {first: true, last: true, cidr: "10.0.0.0/30", want: 4},
		"two have no edges":       {cidr: "10.0.0.2/31", want: 2},
		"one has none":            {cidr: "fd00::7/128", want: 1},
		"IPv6 alike":              {cidr: "fd00::/126", want: 2},
		"the largest of IPv4":     {cidr: "10.0.0.0/16", want: 1<<16 - 2},
		"not all of a large IPv6": {cidr: "fd00::/48", want: 1<<16 - 2},
	} {
		t.Run(name, func(t *testing.T) {
			v := MultiPool.View(pooled())
			v.BlockAssignment.first, v.BlockAssignment.last = test.first, test.last
			if got := v.BlockAssignment.Count(netip.MustParsePrefix(test.cidr)); got != test.want {
				t.Errorf("%s counts as %d, want %d", test.cidr, got, test.want)
			}
		})
	}
}

func TestMultiPoolPublished(t *testing.T) {
	v := MultiPool.View(pooled("default 10.0.0.0/30 10.1.0.0/28 fd00::/48", "blue 10.2.0.0/30"))
	for cidr, want := range map[string]int{
		"10.0.0.0/30": 2,         // listed
		"10.1.0.4/30": 2,         // part of what is listed
		"10.0.0.0/29": 2,         // more than what is listed
		"10.2.0.0/30": 0,         // another pool's
		"fd00::/48":   1<<16 - 2, // as many as the agent counts
	} {
		if got := v.CountIn(netip.MustParsePrefix(cidr)); got != want {
			t.Errorf("pods may get %d addresses of %s, want %d", got, cidr, want)
		}
	}
	if v.Publishes(addrs("10.2.0.1")[0]) || !v.Publishes(addrs("10.1.0.9")[0]) {
		t.Error("Publishes goes by other pools, or not by whole CIDRs")
	}
}

func TestMultiPoolPatch(t *testing.T) {
	blocks := cidrs("10.0.0.0/30", "10.0.0.4/30", "fd00::/126")
	const head = `{"metadata":{"resourceVersion":"7"},"spec":{"ipam":{"pools":{"allocated":[`
	tests := map[string]struct {
		entries []string
		edges   bool // the default entry lets pods have edges
		change  Change
		want    string // "": no write
	}{
		"nothing asked": {change: Change{Blocks: blocks}},
		"all as it should be": {
			entries: []string{"default 10.0.0.0/30"}, change: Change{Assign: cidrs("10.0.0.0/30"), Blocks: blocks},
		},
		"a block listed with host bits, for another pool, or as an IPv4-mapped range is listed": {
			entries: []string{"blue 10.0.0.6/30", "default 10.0.0.2/30", "green ::ffff:10.0.0.8/126"},
			change:  Change{Assign: cidrs("10.0.0.0/30", "10.0.0.4/30", "10.0.0.8/30"), Blocks: cidrs("10.0.0.0/30", "10.0.0.4/30", "10.0.0.8/30")},
		},
		"the first block": {
			change: Change{Assign: cidrs("10.0.0.0/30"), Blocks: blocks},
			want:   head + `{"pool":"default","cidrs":["10.0.0.0/30"]}]}}}}`,
		},
		"both families, in one patch": {
			change: Change{Assign: cidrs("fd00::/126", "10.0.0.0/30"), Blocks: blocks},
			want:   head + `{"pool":"default","cidrs":["10.0.0.0/30","fd00::/126"]}]}}}}`,
		},
		"in the order in which the agent writes them": {
			entries: []string{"default 10.0.0.0/30 10.9.0.0/24 fd00::/126"}, change: Change{Assign: cidrs("10.0.0.4/30"), Blocks: blocks},
			want: head + `{"pool":"default","cidrs":["10.0.0.0/30","10.0.0.4/30","10.9.0.0/24","fd00::/126"]}]}}}}`,
		},
		"foreign entries stay as they are": {
			entries: []string{"blue 10.8.0.0/28 10.7.0.0/28", "green 10.6.0.0/28"}, change: Change{Assign: cidrs("10.0.0.0/30"), Blocks: blocks},
			want: head + `{"pool":"blue","cidrs":["10.8.0.0/28","10.7.0.0/28"]},{"pool":"default","cidrs":["10.0.0.0/30"]},` +
				`{"pool":"green","cidrs":["10.6.0.0/28"]}]}}}}`,
		},
		"each block goes to its pool": {
			entries: []string{"default 10.0.0.0/30"},
			change:  Change{Assign: cidrs("10.0.0.4/30", "10.0.0.0/30"), Blocks: blocks, CiliumPools: map[netip.Prefix]string{cidrs("10.0.0.4/30")[0]: "blue"}},
			want:    head + `{"pool":"blue","cidrs":["10.0.0.4/30"]},{"pool":"default","cidrs":["10.0.0.0/30"]}]}}}}`,
		},
		"what the entry says of edges stays": {
			entries: []string{"default 10.0.0.0/30"}, edges: true, change: Change{Assign: cidrs("10.0.0.4/30"), Blocks: blocks},
			want: head + `{"pool":"default","allowFirstIP":true,"allowLastIP":true,"cidrs":["10.0.0.0/30","10.0.0.4/30"]}]}}}}`,
		},
		"an entry without CIDRs has its pool forgotten": {
			entries: []string{"default 10.0.0.0/30"}, change: Change{Forget: []string{"blue", "", "blue"}, Blocks: blocks},
			want: head + `{"pool":"blue"},{"pool":"default","cidrs":["10.0.0.0/30"]}]}}}}`,
		},
		"one that gets a block needs no other": {
			change: Change{Forget: []string{""}, Assign: cidrs("10.0.0.0/30"), Blocks: blocks},
			want:   head + `{"pool":"default","cidrs":["10.0.0.0/30"]}]}}}}`,
		},
		"nothing that is listed is taken off": {
			entries: []string{"default 10.0.0.0/30"}, change: Change{Remove: addrs("10.0.0.1", "10.0.0.2"), Blocks: blocks},
		},
		"nothing is published that is no block of the node": {change: Change{Assign: cidrs("10.5.0.0/30"), Blocks: blocks}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			cn := pooled(test.entries...)
			if test.edges {
				cn.Spec.IPAM.Pools.Allocated[0].AllowFirstIP, cn.Spec.IPAM.Pools.Allocated[0].AllowLastIP = true, true
			}
			got := patchIs(t, cn, test.change, test.want)
			if again := MultiPool.patch(MultiPool.View(patched(t, cn, got)), test.change); again != nil {
				t.Errorf("second patch is %+v; want none", again)
			}
		})
	}
}

// patchIs checks the patch of a change, and that creating it did not modify cn.
func patchIs(t *testing.T, cn *ciliumv2.CiliumNode, change Change, want string) []byte {
	t.Helper()
	before := cn.DeepCopy()
	got := encodedPatch(t, MultiPool.patch(MultiPool.View(cn), change))
	checkEqual(t, "patch", want, string(got))
	checkEqual(t, "patch wrote into what was read", before, cn)
	return got
}

func TestMultiPoolRecreate(t *testing.T) {
	last := pooled("blue 10.8.0.0/28", "default 10.0.0.0/30 10.9.0.0/24")
	last.Spec.IPAM.Pools.Requested = []ipamtypes.IPAMPoolRequest{{Pool: "default", Needed: ipamtypes.IPAMPoolDemand{IPv4Addrs: 8}}}
	remembered := last.DeepCopy()
	c := fakeClient(t, interceptor.Funcs{})
	c.Mode = MultiPool
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "node-uid"}}
	if _, err := c.Recreate(t.Context(), MultiPool.View(last), n, cidrs("10.0.0.0/30", "10.9.0.4/30")); err != nil {
		t.Fatal(err)
	}
	want := ipamtypes.IPAMPoolSpec{Allocated: pooled("blue 10.8.0.0/28").Spec.IPAM.Pools.Allocated}
	checkEqual(t, "pools", want, get(t, c, "n1").Spec.IPAM.Pools)
	checkEqual(t, "Recreate wrote into what is remembered", remembered, last)
}

// While Cilium's agent runs in another mode, its request is not a node agent's, and its own addresses are in use.
func TestViewOfNodeAgent(t *testing.T) {
	for name, test := range map[string]struct {
		router    string
		requested int
		want      string
	}{
		"its own report":         {"169.254.23.0", 1, "true [] map[10.0.0.9:default/a]"},
		"a request from before":  {"169.254.23.0", 16, "false [] map[10.0.0.9:default/a]"},
		"an agent that assigns":  {"10.0.0.5", 1, "false [10.0.0.5] map[10.0.0.5:router]"},
		"one with more requests": {"10.0.0.5", 16, "false [10.0.0.5] map[10.0.0.5:router]"},
	} {
		cn := &ciliumv2.CiliumNode{}
		cn.Spec.Addresses = []ciliumv2.NodeAddress{{Type: "CiliumInternalIP", IP: test.router}}
		cn.Spec.IPAM.Pools.Requested = []ipamtypes.IPAMPoolRequest{{Pool: "default", Needed: ipamtypes.IPAMPoolDemand{IPv4Addrs: test.requested}}}
		cn.Status.IPAM.Used = ipamtypes.AllocationMap{"10.0.0.9": {Owner: "default/a"}}
		v := DelegatedPlugin.View(cn)
		if got := fmt.Sprint(v.BlockAssignment.Reported(), v.Own, v.Used); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}
