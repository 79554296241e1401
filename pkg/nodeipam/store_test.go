package nodeipam

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

func newStore(t testing.TB, blocks ...Block) *Store {
	t.Helper()
	s, err := Open(filepath.Join(t.TempDir(), "store"))
	if err != nil {
		t.Fatal(err)
	}
	set := Node{Families: [2]bool{ipalloc.IPv4: len(blocks) == 0}, Blocks: blocks, OnlyDefault: true}
	for _, b := range blocks {
		set.Families[ipalloc.FamilyOf(b.CIDR.Addr())] = true
	}
	if err := s.SetNode(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	return s
}

func block(cidr string, change ...func(*Block)) Block {
	b := Block{CIDR: netip.MustParsePrefix(cidr)}
	for _, c := range change {
		c(&b)
	}
	return b
}

func owner(container string) Owner {
	return Owner{Attachment: Attachment{container, "eth0"}, Pod: "default/" + container, UID: "uid-" + container}
}

// assignAll assigns addresses until none is free, and returns them.
func assignAll(t *testing.T, s *Store) string {
	t.Helper()
	var out []string
	for n := 0; ; n++ {
		addrs, err := s.Assign(t.Context(), owner(fmt.Sprint("c", n)))
		var none *NoAddressError
		if errors.As(err, &none) {
			return strings.Join(out, " ")
		}
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, strings.Trim(fmt.Sprint(addrs), "[]"))
	}
}

func TestAssign(t *testing.T) {
	closed := func(b *Block) { b.Closed = true }
	blue := func(b *Block) { b.Pool = "blue" }
	edges := func(b *Block) {
		b.AllowFirst = true
		b.AllowLast = true
	}
	for name, test := range map[string]struct {
		blocks []Block
		want   string
	}{
		"no edges":                {blocks: []Block{block("10.0.0.0/29")}, want: "10.0.0.1 10.0.0.2 10.0.0.3 10.0.0.4 10.0.0.5 10.0.0.6"},
		"edges":                   {blocks: []Block{block("10.0.0.0/30", edges)}, want: "10.0.0.0 10.0.0.1 10.0.0.2 10.0.0.3"},
		"two addresses":           {blocks: []Block{block("10.0.0.4/31")}, want: "10.0.0.4 10.0.0.5"},
		"one address":             {blocks: []Block{block("10.0.0.4/32")}, want: "10.0.0.4"},
		"blocks in their order":   {blocks: []Block{block("10.0.0.0/30"), block("10.9.0.0/30")}, want: "10.0.0.1 10.0.0.2 10.9.0.1 10.9.0.2"},
		"a closed block":          {blocks: []Block{block("10.0.0.0/30", closed), block("10.9.0.0/30")}, want: "10.9.0.1 10.9.0.2"},
		"another Cilium pool":     {blocks: []Block{block("10.0.0.0/30"), block("10.9.0.0/30", blue)}, want: "10.0.0.1 10.0.0.2"},
		"both families":           {blocks: []Block{block("10.0.0.0/30"), block("fd00::/126")}, want: "10.0.0.1 fd00::1 10.0.0.2 fd00::2"},
		"one family is exhausted": {blocks: []Block{block("10.0.0.0/32"), block("fd00::/126")}, want: "10.0.0.0 fd00::1"},
		"no block":                {want: ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t, test.blocks...)
			if got := assignAll(t, s); got != test.want {
				t.Errorf("assigned %s, want %s", got, test.want)
			}
		})
	}
}

// Pods get addresses of the Cilium pools that they chose, by family.
func TestPoolsOfPods(t *testing.T) {
	s := newStore(t)
	blue := func(b *Block) { b.Pool = "blue" }
	set := Node{
		Families: [2]bool{true, true}, Blocks: []Block{block("10.0.0.0/29"), block("10.9.0.0/29", blue), block("fd00::/125")},
		Pods: map[string]Pod{"uid-plain": {}, "uid-blue": {Pools: [2]string{"blue", ""}}, "uid-green": {Pools: [2]string{"", "green"}}, "uid-none": {Refused: "two pools select it"}},
	}
	if err := s.SetNode(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	for _, test := range [][2]string{
		{"plain", "[10.0.0.1 fd00::1] <nil>"},
		{"blue", "[10.9.0.1 fd00::2] <nil>"},
		{"green", "[] no free ipv6 address of Cilium pool green on this node"},
		{"none", "[] two pools select it"},
		{"unseen", "[] " + ErrNotReady.Error()},
	} {
		addrs, err := s.Assign(t.Context(), owner(test[0]))
		if got := fmt.Sprint(addrs, err); got != test[1] {
			t.Errorf("%s: %s, want %s", test[0], got, test[1])
		}
	}
}

// An address is not assigned again before the others of its block have been, and a pod keeps its own.
func TestAddressesTakeTurns(t *testing.T) {
	s := newStore(t, block("10.0.0.0/30"), block("10.9.0.0/30"))
	var got []string
	for n := range 4 {
		o := owner(fmt.Sprint("c", n))
		for range 2 { // a runtime may repeat ADD
			addrs, err := s.Assign(t.Context(), o)
			got = append(got, fmt.Sprint(addrs, err))
		}
		if err := s.Release(t.Context(), o.Attachment); err != nil {
			t.Fatal(err)
		}
	}
	got = slices.Compact(got)
	if want := "[10.0.0.1] <nil>,[10.0.0.2] <nil>,[10.0.0.1] <nil>,[10.0.0.2] <nil>"; strings.Join(got, ",") != want {
		t.Errorf("assigned %v, want %s", got, want)
	}
}

// A store takes over the addresses of running pods, and each stays with its first owner unless that is gone.
func TestAdopt(t *testing.T) {
	s := newStore(t, block("10.0.0.0/29"))
	first, err := s.Assign(t.Context(), owner("c"))
	if err != nil {
		t.Fatal(err)
	}
	old, err := s.Assign(t.Context(), owner("gone"))
	if err != nil {
		t.Fatal(err)
	}
	adopted := map[netip.Addr]Owner{
		first[0]: {Pod: "default/other", UID: "uid-other"}, old[0]: {Pod: "default/new", UID: "uid-new"},
		netip.MustParseAddr("10.0.0.3"): {Pod: "default/web", UID: "uid"},
	}
	isGone := func(o Owner) bool { return o == owner("gone") }
	for range 2 {
		if err := s.Adopt(t.Context(), adopted, isGone); err != nil {
			t.Fatal(err)
		}
	}
	taken, err := s.Assignments()
	if err != nil || len(taken) != 3 || taken[first[0]] != owner("c") || taken[old[0]].UID != "uid-new" || taken[netip.MustParseAddr("10.0.0.3")].UID != "uid" {
		t.Errorf("%v, %v", taken, err)
	}
	if got := assignAll(t, s); got != "10.0.0.4 10.0.0.5 10.0.0.6" {
		t.Errorf("assigned %s beside the adopted ones", got)
	}
}

// A pod has no adopted address any more once its sandbox ends, or it gets another one. A DEL without a network namespace may
// be of an older sandbox.
func TestAdoptedAddressesEnd(t *testing.T) {
	netns := t.TempDir()
	adopted := map[netip.Addr]Owner{netip.MustParseAddr("10.0.0.5"): {Pod: "default/c", UID: "uid-c"}}
	del := func(pod, netns string) func(s *Store) error {
		return func(s *Store) error {
			o := owner(pod)
			o.Netns = netns
			return s.ReleasePod(t.Context(), o)
		}
	}
	for name, test := range map[string]struct {
		end   func(s *Store) error
		stays bool
	}{
		"ADD": {end: func(s *Store) error {
			addrs, err := s.Assign(t.Context(), owner("c"))
			if fmt.Sprint(addrs) != "[10.0.0.1]" {
				t.Errorf("assigned %v", addrs)
			}
			return errors.Join(err, s.Release(t.Context(), owner("c").Attachment))
		}},
		"DEL":                         {end: del("c", netns)},
		"DEL of another pod":          {end: del("other", netns), stays: true},
		"DEL without a netns":         {end: del("c", ""), stays: true},
		"DEL of a netns that is gone": {end: del("c", filepath.Join(netns, "gone")), stays: true},
	} {
		s := newStore(t, block("10.0.0.0/29"))
		err := errors.Join(s.Adopt(t.Context(), adopted, func(Owner) bool { return false }), test.end(s))
		left, _ := s.Assignments()
		if err != nil || len(left) > 0 != test.stays {
			t.Errorf("%s: left %v, %v", name, left, err)
		}
	}
}

// A pod gets its last sandbox's address again if the runtime has forgotten that one: else the pod might wait for its own
// address.
func TestForgottenSandbox(t *testing.T) {
	s := newStore(t, block("10.0.0.4/32"))
	forgotten := owner("c")
	forgotten.Netns = filepath.Join(t.TempDir(), "gone")
	next := owner("c")
	next.Container = "c-again"
	other := owner("other")
	for i, test := range []struct {
		owner Owner
		want  string
	}{{forgotten, "[10.0.0.4]"}, {other, "[]"}, {next, "[10.0.0.4]"}} {
		addrs, _ := s.Assign(t.Context(), test.owner)
		if got := fmt.Sprint(addrs); got != test.want {
			t.Errorf("ADD %d: %s, want %s", i, got, test.want)
		}
	}
	if taken, err := s.Assignments(); err != nil || taken[netip.MustParseAddr("10.0.0.4")] != next {
		t.Errorf("%v, %v", taken, err)
	}
}

// One node agent works on a store at a time, as long as its process lives.
func TestLockAgent(t *testing.T) {
	s := newStore(t)
	if err := s.LockAgent(t.Context()); err != nil {
		t.Fatal(err)
	}
	runtime.GC() // it closes files without a reference
	runtime.GC()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	other := &Store{dir: s.dir}
	if err := other.LockAgent(ctx); err == nil {
		t.Error("a second node agent has the lock")
	}
	runtime.KeepAlive(s)
}

// After the machine's start, pods wait until the node agent has read the CiliumNode again.
func TestAnotherBoot(t *testing.T) {
	s := newStore(t, block("10.0.0.0/29"))
	s.Boot = "another"
	if _, err := s.Assign(t.Context(), owner("c")); !errors.Is(err, ErrNotReady) {
		t.Errorf("error %v, want %v", err, ErrNotReady)
	}
}

// No error leaves an address behind, or gives one twice.
func TestFailedAssign(t *testing.T) {
	for name, test := range map[string]struct {
		prepare func(t *testing.T, s *Store)
		want    string
	}{
		"no file of the node": {func(t *testing.T, s *Store) { remove(t, s.path("node.json")) }, "has not seen this node"},
		"one that is cut off": {func(t *testing.T, s *Store) { write(t, s.path("node.json"), `{"blo`) },
			"has not seen this node, or this pod, yet: reading"},
		"the second family is exhausted": {func(t *testing.T, s *Store) { write(t, s.path("addresses/fd00::"), "") }, "no free ipv6 address"},
		"no directory":                   {func(t *testing.T, s *Store) { remove(t, s.dir) }, "has not seen this node"},
		"the lock is held": {func(t *testing.T, s *Store) {
			file, err := s.lock(t.Context(), "lock")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = file.Close() })
		}, "another process holds the lock"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t, block("10.0.0.0/29"), block("fd00::/128"))
			test.prepare(t, s)
			before, _ := s.Assignments()
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			addrs, err := s.Assign(ctx, owner("c"))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("assigned %v, error %v, want %s", addrs, err, test.want)
			}
			if after, _ := s.Assignments(); !maps.Equal(before, after) {
				t.Errorf("has %v, had %v", after, before)
			}
			if drafts, _ := filepath.Glob(s.path(draftPattern)); len(drafts) > 0 {
				t.Errorf("left %v", drafts)
			}
		})
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// While a block closes, pods that start at the same time get an address of it before SetNode returns, or none.
func TestCloseWhileAssigning(t *testing.T) {
	s := newStore(t, block("10.0.0.0/24"))
	var wg sync.WaitGroup
	for n := range 40 {
		wg.Go(func() {
			other, err := Open(s.dir)
			if err != nil {
				t.Error(err)
				return
			}
			_, err = other.Assign(t.Context(), owner(fmt.Sprint("c", n)))
			var none *NoAddressError
			if err != nil && !errors.As(err, &none) {
				t.Error(err)
			}
		})
	}
	closed := Node{Families: [2]bool{ipalloc.IPv4: true}, OnlyDefault: true, Blocks: []Block{block("10.0.0.0/24", func(b *Block) { b.Closed = true })}}
	if err := s.SetNode(t.Context(), closed); err != nil {
		t.Fatal(err)
	}
	then, err := s.Assignments()
	wg.Wait()
	if later, _ := s.Assignments(); err != nil || len(later) != len(then) {
		t.Errorf("%d addresses when it was closed, %d later; %v", len(then), len(later), err)
	}
}
