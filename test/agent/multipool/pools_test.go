package multipool

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
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
	wants("at first", Share{Pool: "default", Requested: [2]int{2}})
	if p.Ready() {
		t.Error("it is ready without an address of the pool with a reserve")
	}
	if _, err := p.Allocate("blue", ipalloc.IPv4, "ns/a"); !errors.Is(err, ErrExhausted) {
		t.Errorf("of a pool without a CIDR: %v", err)
	}
	wants("while a pod waits", Share{Pool: "blue", Requested: [2]int{1}}, Share{Pool: "default", Requested: [2]int{2}})
	p.Sees("blue", cidrs("10.0.5.0/30"))
	p.Sees("default", cidrs("10.0.0.0/30"))
	addr, err := p.Allocate("blue", ipalloc.IPv4, "ns/a")
	if err != nil || addr != netip.MustParseAddr("10.0.5.1") {
		t.Errorf("got %s, %v", addr, err)
	}
	if err := p.Restore("default", addr, "ns/b"); !errors.Is(err, ErrNotInPool) {
		t.Errorf("another pool's address was restored: %v", err)
	}
	p.Forget("default", ipalloc.IPv4, "ns/b")
	p.Restored()
	inUse := []Share{{"blue", cidrs("10.0.5.0/30"), [2]int{1}}, {"default", cidrs("10.0.0.0/30"), [2]int{2}}}
	wants("while a pod has an address", inUse...)
	p.Release(addr)
	p.Sees("default", cidrs("10.0.0.0/30")) // and the other pool is not listed
	wants("once no pod uses the pool", inUse[1])
	p.Sees("blue", cidrs("10.0.5.0/30"))
	if diff := cmp.Diff(cidrs("10.0.5.0/30", "10.0.0.0/30"), p.CIDRs(), cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
		t.Errorf("a returned CIDR is not taken as a new one (-want +got):\n%s", diff)
	}
}

// Each family is requested and returned by itself. A pool is forgotten, with its returned CIDRs,
// only once it has a CIDR of neither, and CIDRs of a family that the agent does not run are none of
// it.
func TestDualStack(t *testing.T) {
	p := Pools{Reserve: map[string]int{"default": 2}, IPv6: true}
	wants := func(when string, want ...Share) {
		t.Helper()
		if diff := cmp.Diff(want, p.Update(), cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	p.Restored()
	wants("at first", Share{Pool: "default", Requested: [2]int{2, 2}})
	p.Sees("default", cidrs("10.0.0.0/30"))
	if p.Ready() {
		t.Error("it is ready without an address of one of its families")
	}
	both := cidrs("10.0.0.0/30", "fd00::/126", "fd00::4/126")
	p.Sees("default", both)
	if !p.Ready() {
		t.Error("it is not ready")
	}
	wants("with more of one family than it needs", Share{"default", both[:2], [2]int{2, 2}})
	p.Sees("default", both)
	wants("while the list names what it has returned", Share{"default", both[:2], [2]int{2, 2}})
	addr, err := p.Allocate("default", ipalloc.IPv6, "ns/a")
	if err != nil || addr != netip.MustParseAddr("fd00::1") {
		t.Errorf("got %s, %v", addr, err)
	}
	wants("once it needs it", Share{"default", both, [2]int{2, 4}})

	alone := Pools{}
	alone.Sees("default", both)
	if diff := cmp.Diff(both[:1], alone.CIDRs(), cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
		t.Errorf("of an agent that runs IPv4 alone (-want +got):\n%s", diff)
	}
	if err := alone.Restore("default", addr, "ns/a"); !errors.Is(err, ErrNotInPool) {
		t.Errorf("an address of a family that the agent does not run: %v", err)
	}
}

// A pod with a refused address waits for another one, like a pod that was refused any.
func TestRestore(t *testing.T) {
	p := Pools{Reserve: map[string]int{"default": 2}}
	p.Sees("default", cidrs("10.0.0.5/30")) // with host bits
	if err := p.Restore("default", netip.MustParseAddr("10.0.0.5"), "ns/a"); err != nil {
		t.Error(err)
	}
	for addr, want := range map[string]error{
		"10.0.0.4": ErrNotInPool, "10.0.0.5": ErrInUse, "10.0.0.7": ErrNotInPool, "10.0.0.8": ErrNotInPool,
	} {
		if err := p.Restore("default", netip.MustParseAddr(addr), "ns/"+addr); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", addr, err, want)
		}
	}
	want := []Share{{"default", cidrs("10.0.0.4/30"), [2]int{8}}} // 1 in use, 4 wait
	if diff := cmp.Diff(want, p.Update(), cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
