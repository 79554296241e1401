package ciliumnode

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	iputil "github.com/cilium/cilium/pkg/ip"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// FuzzPatch applies a change to a CiliumNode with any pool keys and podCIDRs. The pool must be
// as intended, foreign entries must keep their value and place, and a block must be listed
// exactly while it has an address in the pool.
func FuzzPatch(f *testing.F) {
	f.Add("10.0.0.1 172.16.0.1", "192.168.0.0/24 10.0.0.0/30", "10.0.0.5 fd00::1", "10.0.0.1", "10.0.0.0/30 10.0.0.4/30 fd00::/126")
	f.Add("FD00::1 x ::ffff:10.0.0.2", "fd00::/126 fd00::/126", "fd00::1 10.0.0.2", "fd00::1", "fd00::/126 10.0.0.0/30")
	f.Add("fe80::1%eth0 10.0.0.0", "::/0 0.0.0.0/0", "10.0.0.0", "10.0.0.0", "10.0.0.0/30")
	f.Fuzz(checkPatch)
}

// TestPatchRandom runs FuzzPatch with words that often coincide.
func TestPatchRandom(t *testing.T) {
	addresses := strings.Fields("10.0.0.0 10.0.0.1 10.0.0.2 10.0.0.5 10.0.1.1 FD00::1 fd00::1 fd00::2 fd00::5 ::ffff:10.0.0.1 x")
	ranges := strings.Fields("10.0.0.0/30 10.0.0.0/31 10.0.0.4/30 10.0.1.0/30 10.0.0.0/24 fd00::/126 fd00::4/126 192.168.0.0/24")
	rng := rand.New(rand.NewPCG(1, 2))
	some := func(words []string) string {
		var out []string
		for range rng.IntN(7) {
			out = append(out, words[rng.IntN(len(words))])
		}
		return strings.Join(out, " ")
	}
	for range 2000 {
		checkPatch(t, some(addresses), some(ranges), some(addresses), some(addresses), some(ranges))
		if t.Failed() {
			return
		}
	}
}

func checkPatch(t *testing.T, keys, podCIDRs, publish, remove, blocks string) {
	if !utf8.ValidString(keys) {
		return // no JSON object has such keys
	}
	cn := node(strings.Fields(keys))
	for _, p := range parse(podCIDRs, netip.ParsePrefix) {
		cn.Spec.IPAM.PodCIDRs = append(cn.Spec.IPAM.PodCIDRs, iputil.PrefixFrom(p))
	}
	change := Change{
		Publish: parse(publish, netip.ParseAddr), Remove: parse(remove, netip.ParseAddr),
		Blocks: masked(parse(blocks, netip.ParsePrefix)),
	}
	change.Remove = slices.DeleteFunc(change.Remove, func(a netip.Addr) bool { return slices.Contains(change.Publish, a) })
	change.Publish = slices.DeleteFunc(change.Publish, netip.Addr.Is4In6)
	input := fmt.Sprintf("pool %q, podCIDRs %q, change %v", keys, podCIDRs, change)

	before := NewView(cn)
	after := NewView(patched(t, cn, encodedPatch(t, change.patch(before))))
	if diff := cmp.Diff(intended(before, change), after.Addresses.Pool, compareNetip(), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("%s: pool (-want +got):\n%s", input, diff)
	}
	if diff := cmp.Diff(before.Addresses.NonCanonical, after.Addresses.NonCanonical, compareNetip()); diff != "" {
		t.Errorf("%s: keys in an odd form (-want +got):\n%s", input, diff)
	}
	if diff := cmp.Diff(before.Addresses.Unreadable, after.Addresses.Unreadable); diff != "" {
		t.Errorf("%s: unreadable keys (-want +got):\n%s", input, diff)
	}
	checkListed(t, before, after, change)
	if again := change.patch(after); again != nil {
		t.Errorf("%s: second patch is %+v; want none", input, again)
	}
}

func intended(v *View, c Change) map[netip.Addr]string {
	want := map[netip.Addr]string{}
	for a, owner := range v.Addresses.Pool {
		if !slices.Contains(c.Remove, a) {
			want[a] = owner
		}
	}
	for _, a := range c.Publish {
		if _, there := want[a]; !there && !slices.Contains(v.Addresses.NonCanonical, a) {
			want[a] = ""
		}
	}
	return want
}

func checkListed(t *testing.T, before, after *View, c Change) {
	t.Helper()
	foreign := func(list []netip.Prefix) []netip.Prefix {
		return slices.DeleteFunc(slices.Clone(list), func(p netip.Prefix) bool { return slices.Contains(c.Blocks, p) })
	}
	checkEqual(t, "foreign podCIDRs", foreign(before.PodCIDRs), foreign(after.PodCIDRs))
	for _, b := range c.Blocks {
		published := false
		for a := range after.Addresses.Pool {
			published = published || b.Contains(a)
		}
		if after.ListsForDefaultPool(b) != published {
			t.Errorf("block %s: listed %t, published %t", b, after.ListsForDefaultPool(b), published)
		}
	}
}

// parse parses the words that can be parsed.
func parse[T any](words string, read func(string) (T, error)) []T {
	var out []T
	for _, word := range strings.Fields(words) {
		if v, err := read(word); err == nil {
			out = append(out, v)
		}
	}
	return out
}

func masked(list []netip.Prefix) []netip.Prefix {
	for i := range list {
		list[i] = list[i].Masked()
	}
	return list
}
