package ciliumnode

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"

	iputil "github.com/cilium/cilium/pkg/ip"
	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func compareNetip() cmp.Option { return cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}) }

// checkEqual reports a difference between want and got, except between nil and empty.
func checkEqual(t testing.TB, what string, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got, compareNetip(), cmpopts.EquateEmpty(), cmpopts.IgnoreUnexported(View{}, Addresses{})); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func addrs(list ...string) []netip.Addr {
	var out []netip.Addr
	for _, s := range list {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

func cidrs(list ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// node returns a CiliumNode with these pool keys and podCIDRs.
func node(keys []string, podCIDRs ...string) *ciliumv2.CiliumNode {
	cn := &ciliumv2.CiliumNode{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u1", ResourceVersion: "7"}}
	if keys != nil {
		cn.Spec.IPAM.Pool = ipamtypes.AllocationMap{}
	}
	for _, key := range keys {
		cn.Spec.IPAM.Pool[key] = ipamtypes.AllocationIP{}
	}
	for _, p := range cidrs(podCIDRs...) {
		cn.Spec.IPAM.PodCIDRs = append(cn.Spec.IPAM.PodCIDRs, iputil.PrefixFrom(p))
	}
	return cn
}

// allocated adds CIDRs that multi-pool mode has assigned; "blue 10.0.0.0/30 10.0.0.4/30" is an entry.
func allocated(cn *ciliumv2.CiliumNode, entries ...string) *ciliumv2.CiliumNode {
	for _, e := range entries {
		fields := strings.Fields(e)
		entry := ipamtypes.IPAMPoolAllocation{Pool: fields[0]}
		for _, p := range cidrs(fields[1:]...) {
			entry.CIDRs = append(entry.CIDRs, iputil.PrefixFrom(p))
		}
		cn.Spec.IPAM.Pools.Allocated = append(cn.Spec.IPAM.Pools.Allocated, entry)
	}
	return cn
}

// encodedPatch returns the JSON of a patch; nil: there is none.
func encodedPatch(t *testing.T, p *patch) []byte {
	t.Helper()
	if p == nil {
		return nil
	}
	body, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// pooled returns a CiliumNode in multi-pool mode.
func pooled(entries ...string) *ciliumv2.CiliumNode { return allocated(node(nil), entries...) }

// patched returns the CiliumNode that the API server would store after a merge patch.
func patched(t testing.TB, cn *ciliumv2.CiliumNode, patch []byte) *ciliumv2.CiliumNode {
	t.Helper()
	if patch == nil {
		return cn
	}
	var whole, change any
	decode(t, encode(t, cn), &whole)
	decode(t, patch, &change)
	out := &ciliumv2.CiliumNode{}
	decode(t, encode(t, merged(whole, change)), out)
	return out
}

// merged applies a JSON merge patch (RFC 7386, section 2).
func merged(target, patch any) any {
	changes, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	object, ok := target.(map[string]any)
	if !ok {
		object = map[string]any{}
	}
	for key, value := range changes {
		if value == nil {
			delete(object, key)
		} else {
			object[key] = merged(object[key], value)
		}
	}
	return object
}

func encode(t testing.TB, v any) []byte {
	t.Helper()
	body, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

func decode(t testing.TB, body []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(body, into); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
}
