package ciliumnode

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
)

// FuzzNewView reads a CiliumNode with any keys. The agent parses them with net.ParseIP (Cilium
// v1.20.1, pkg/ipam/crd.go): any address that it considers in use must count as in use here
// too, and of two keys that it parses to the same address only one may be allocated.
func FuzzNewView(f *testing.F) {
	f.Add("10.0.0.1 172.16.0.1", "10.0.0.1", "10.0.0.2")
	f.Add("FD00::1 fd00::1 ::ffff:10.0.0.2 10.0.0.2 x", "::ffff:10.0.0.1 FD00::1", "fd00::01 ::ffff:10.0.0.3")
	f.Add("fe80::1%eth0 10.0.0.01 010.0.0.1 1.2.3", "fe80::1%eth0 ::", "10.0.0.1/32")
	f.Fuzz(func(t *testing.T, pool, used, release string) {
		cn := node(strings.Fields(pool))
		cn.Status.IPAM.Used = ipamtypes.AllocationMap{}
		for _, key := range strings.Fields(used) {
			cn.Status.IPAM.Used[key] = ipamtypes.AllocationIP{Owner: "default/" + key}
		}
		cn.Status.IPAM.ReleaseIPs = map[string]ipamtypes.IPReleaseStatus{}
		for _, key := range strings.Fields(release) {
			cn.Status.IPAM.ReleaseIPs[key] = "ready-for-release"
		}
		v := NewView(cn)
		checkPoolKeys(t, cn, v)
		for key := range cn.Status.IPAM.Used {
			if addr, ok := asAgentReads(key); ok {
				if _, there := v.Used[addr]; !there {
					t.Errorf("%q is in use, and is not read: %v", key, v.Used)
				}
			}
		}
		for a, status := range v.Release {
			if string(cn.Status.IPAM.ReleaseIPs[a.String()]) != string(status) {
				t.Errorf("release entry %s is %q, of %v", a, status, cn.Status.IPAM.ReleaseIPs)
			}
		}
	})
}

// asAgentReads returns the address that the agent parses from a key.
func asAgentReads(key string) (netip.Addr, bool) {
	addr, ok := netip.AddrFromSlice(net.ParseIP(key))
	return addr.Unmap(), ok
}

// checkPoolKeys checks that each key is read in one of three ways, and that none that the agent
// would allocate is overlooked.
func checkPoolKeys(t *testing.T, cn *ciliumv2.CiliumNode, v *View) {
	t.Helper()
	if got := len(v.Addresses.Pool) + len(v.Addresses.NonCanonical) + len(v.Addresses.Unreadable); got != len(cn.Spec.IPAM.Pool) {
		t.Errorf("%d keys are read of %v", got, cn.Spec.IPAM.Pool)
	}
	for key := range cn.Spec.IPAM.Pool {
		addr, readable := asAgentReads(key)
		_, canonical := v.Addresses.Pool[addr]
		switch {
		case !readable:
		case addr.String() == key && !canonical:
			t.Errorf("%q is not read", key)
		case addr.String() != key && !slices.Contains(v.Addresses.NonCanonical, addr):
			t.Errorf("%q, which the agent takes for %s, is not among the odd ones %v", key, addr, v.Addresses.NonCanonical)
		case addr.String() != key && !slices.Contains(v.InUseUnreported(), addr):
			t.Errorf("%q counts as free", key)
		}
	}
	for a := range v.Addresses.Pool {
		if _, there := cn.Spec.IPAM.Pool[a.String()]; !there {
			t.Errorf("%s is read, of %v", a, cn.Spec.IPAM.Pool)
		}
	}
}
