package multipool

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func cidrs(texts ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, text := range texts {
		out = append(out, netip.MustParsePrefix(text))
	}
	return out
}

// Each pool is requested separately, and a pool without CIDRs and requests is no
// longer written.
func TestPools(t *testing.T) {
	p := Pools{Reserve: map[string]int{"default": 2}}
	wants := func(when string, want ...Share) {
		t.Helper()
		if diff := cmp.Diff(want, p.Update(), cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	wants("at first", Share{Pool: "default", Requested: 2})
	if p.Ready() {
		t.Error("it is ready without an address of the pool with a reserve")
	}
	if _, err := p.Allocate("blue", "ns/a"); !errors.Is(err, ErrExhausted) {
		t.Errorf("of a pool without a CIDR: %v", err)
	}
	wants("while a pod waits", Share{Pool: "blue", Requested: 1}, Share{Pool: "default", Requested: 2})
	p.Sees("blue", cidrs("10.0.5.0/30"))
	p.Sees("default", cidrs("10.0.0.0/30"))
	addr, err := p.Allocate("blue", "ns/a")
	if err != nil || addr != netip.MustParseAddr("10.0.5.1") {
		t.Errorf("got %s, %v", addr, err)
	}
	if err := p.Restore("default", addr, "ns/b"); !errors.Is(err, ErrNotInPool) {
		t.Errorf("another pool's address was restored: %v", err)
	}
	p.Restored()
	inUse := []Share{{"blue", cidrs("10.0.5.0/30"), 1}, {"default", cidrs("10.0.0.0/30"), 2}}
	wants("while a pod has an address", inUse...)
	p.Release(addr)
	p.Sees("default", cidrs("10.0.0.0/30")) // and the other pool is not listed
	wants("once no pod uses the pool", inUse[1])
	p.Sees("blue", cidrs("10.0.5.0/30"))
	if diff := cmp.Diff(cidrs("10.0.5.0/30", "10.0.0.0/30"), p.CIDRs(), cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
		t.Errorf("a returned CIDR is not taken as a new one (-want +got):\n%s", diff)
	}
}
