package ciliumnode

import (
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	iputil "github.com/cilium/cilium/pkg/ip"
	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
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
	if got := len(v.Pool) + len(v.NonCanonical) + len(v.Unreadable); got != len(cn.Spec.IPAM.Pool) {
		t.Errorf("%d keys are read of %v", got, cn.Spec.IPAM.Pool)
	}
	for key := range cn.Spec.IPAM.Pool {
		addr, readable := asAgentReads(key)
		_, canonical := v.Pool[addr]
		switch {
		case !readable:
		case addr.String() == key && !canonical:
			t.Errorf("%q is not read", key)
		case addr.String() != key && !slices.Contains(v.NonCanonical, addr):
			t.Errorf("%q, which the agent takes for %s, is not among the odd ones %v", key, addr, v.NonCanonical)
		case addr.String() != key && !slices.Contains(v.InUse(), addr):
			t.Errorf("%q counts as free", key)
		}
	}
	for a := range v.Pool {
		if _, there := cn.Spec.IPAM.Pool[a.String()]; !there {
			t.Errorf("%s is read, of %v", a, cn.Spec.IPAM.Pool)
		}
	}
}

// FuzzRelease applies marks, retirements and clears to any release-ips: an existing entry is never
// overwritten by a mark, only requested entries are cleared, and repeating the change has no
// effect.
func FuzzRelease(f *testing.F) {
	f.Add("10.0.0.1 10.0.0.2", "10.0.0.1 10.0.0.3", "10.0.0.2 10.0.0.4")
	f.Add("FD00::1 fd00::2 x", "fd00::1 fd00::2", "fd00::2 fd00::1")
	f.Add("", "", "10.0.0.1")
	f.Add("x y 10.0.0.2", "10.0.0.1 10.0.0.2 10.0.0.3 10.0.0.4 10.0.0.5 10.0.0.2", "10.0.0.4")
	f.Fuzz(func(t *testing.T, entries, mark, clearing string) {
		cn := node(nil)
		cn.Status.IPAM.ReleaseIPs = map[string]ipamtypes.IPReleaseStatus{}
		for i, key := range strings.Fields(entries) {
			cn.Status.IPAM.ReleaseIPs[key] = []ipamtypes.IPReleaseStatus{"ready-for-release", "do-not-release", "released"}[i%3]
		}
		change := Entries{Clear: parse(clearing, netip.ParseAddr)}
		for i, a := range parse(mark, netip.ParseAddr) {
			if i%3 == 2 {
				change.Retire = append(change.Retire, a)
			} else {
				change.Mark = append(change.Mark, a)
			}
		}
		// A plan never has an address in two lists.
		change.Mark = slices.DeleteFunc(change.Mark, func(a netip.Addr) bool { return slices.Contains(change.Clear, a) })
		change.Retire = slices.DeleteFunc(change.Retire, func(a netip.Addr) bool {
			return slices.Contains(change.Clear, a) || slices.Contains(change.Mark, a)
		})
		before := NewView(cn)
		want := maps.Clone(before.Release)
		if want == nil {
			want = map[netip.Addr]expand.ReleaseStatus{}
		}
		maps.DeleteFunc(want, func(a netip.Addr, _ expand.ReleaseStatus) bool { return slices.Contains(change.Clear, a) })
		for _, a := range change.Mark {
			if entry, stands := before.Release[a]; !stands || entry == expand.Released {
				want[a] = expand.Marked
			}
		}
		for _, a := range change.Retire {
			if _, stands := before.Release[a]; !stands {
				want[a] = expand.Released
			}
		}
		body, err := change.patch(before)
		if err != nil {
			t.Fatal(err)
		}
		after := patched(t, cn, body)
		if diff := cmp.Diff(want, NewView(after).Release, compareNetip(), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("entries %q, %+v (-want +got):\n%s", entries, change, diff)
		}
		same(t, "the spec has changed", cn.Spec, after.Spec)
		if again, err := change.patch(NewView(after)); err != nil || again != nil {
			t.Errorf("second patch is %s, %v; want none", again, err)
		}
	})
}

// FuzzWithoutBlocks removes any blocks from any CiliumNode: none of their addresses is left, and
// everything else is unchanged.
func FuzzWithoutBlocks(f *testing.F) {
	f.Add("10.0.0.1 172.16.0.1 x", "192.168.0.0/24 10.0.0.0/30", "10.0.0.0/30")
	f.Add("FD00::1 fd00::2 ::ffff:10.0.0.1", "fd00::/126 fd00::/126 ::/0", "fd00::/126 10.0.0.0/30")
	f.Fuzz(func(t *testing.T, keys, podCIDRs, blocks string) {
		cn := node(strings.Fields(keys))
		for _, p := range parse(podCIDRs, netip.ParsePrefix) {
			cn.Spec.IPAM.PodCIDRs = append(cn.Spec.IPAM.PodCIDRs, iputil.PrefixFrom(p))
		}
		list := masked(parse(blocks, netip.ParsePrefix))
		inBlocks := func(a netip.Addr) bool {
			return slices.ContainsFunc(list, func(b netip.Prefix) bool { return b.Contains(a) })
		}
		before, pool := NewView(cn), maps.Clone(cn.Spec.IPAM.Pool)
		withoutBlocks(cn, list)
		after := NewView(cn)
		for a := range after.Pool {
			if inBlocks(a) {
				t.Errorf("%s is still there", a)
			}
		}
		for a := range before.Pool {
			if _, there := after.Pool[a]; !there && !inBlocks(a) {
				t.Errorf("%s is lost", a)
			}
		}
		want := slices.DeleteFunc(slices.Clone(before.PodCIDRs), func(p netip.Prefix) bool {
			return slices.Contains(list, p) || hasIn(pool, p) && !hasIn(cn.Spec.IPAM.Pool, p)
		})
		same(t, "podCIDRs", want, after.PodCIDRs)
		same(t, "unreadable keys", before.Unreadable, after.Unreadable)
	})
}

func hasIn(pool ipamtypes.AllocationMap, p netip.Prefix) bool {
	for key := range pool {
		if addr, err := netip.ParseAddr(key); err == nil && p.Contains(addr) {
			return true
		}
	}
	return false
}
