package agent

import (
	"errors"
	"net/netip"
	"testing"

	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

type (
	pool    = ipamtypes.AllocationMap
	release = map[string]ipamtypes.IPReleaseStatus
)

func ciliumNode(version string, p pool, r release) *ciliumv2.CiliumNode {
	cn := &ciliumv2.CiliumNode{ObjectMeta: metav1.ObjectMeta{Name: "node-1", ResourceVersion: version}}
	cn.Spec.IPAM.Pool = p
	cn.Status.IPAM.ReleaseIPs = r
	return cn
}

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

// recorder records a Store's reasons for requested writes.
type recorder struct{ reasons []string }

func (r *recorder) trigger(reason string) { r.reasons = append(r.reasons, reason) }

func TestHandshake(t *testing.T) {
	three := pool{"10.0.0.1": {}, "10.0.0.2": {}, "fd00::1": {}}
	tests := map[string]struct {
		pool    pool
		given   release
		closed  bool // the allocators do not exist yet
		used    []string
		want    release
		trigger bool
	}{
		"free":                      {pool: three, given: release{"10.0.0.1": "marked-for-release"}, want: release{"10.0.0.1": "ready-for-release"}, trigger: true},
		"free IPv6":                 {pool: three, given: release{"fd00::1": "marked-for-release"}, want: release{"fd00::1": "ready-for-release"}, trigger: true},
		"in use":                    {pool: three, given: release{"10.0.0.1": "marked-for-release"}, used: []string{"10.0.0.1"}, want: release{"10.0.0.1": "do-not-release"}, trigger: true},
		"not in the pool":           {pool: three, given: release{"10.0.0.9": "marked-for-release"}, want: release{"10.0.0.9": "do-not-release"}, trigger: true},
		"released and gone":         {pool: three, given: release{"10.0.0.9": "released"}, want: release{}, trigger: true},
		"released and still there":  {pool: three, given: release{"10.0.0.1": "released"}, want: release{"10.0.0.1": "released"}},
		"answered before":           {pool: three, given: release{"10.0.0.1": "ready-for-release", "10.0.0.9": "do-not-release"}, want: release{"10.0.0.1": "ready-for-release", "10.0.0.9": "do-not-release"}},
		"no pool":                   {given: release{"10.0.0.1": "marked-for-release", "10.0.0.9": "released"}, want: release{"10.0.0.1": "marked-for-release", "10.0.0.9": "released"}},
		"empty pool":                {pool: pool{}, given: release{"10.0.0.1": "marked-for-release"}, want: release{"10.0.0.1": "do-not-release"}, trigger: true},
		"starting, in the pool":     {pool: three, closed: true, given: release{"10.0.0.1": "marked-for-release"}, want: release{"10.0.0.1": "marked-for-release"}},
		"starting, not in the pool": {pool: three, closed: true, given: release{"10.0.0.9": "marked-for-release"}, want: release{"10.0.0.9": "do-not-release"}, trigger: true},
		"no address":                {pool: pool{"x": {}}, given: release{"x": "marked-for-release"}, want: release{"x": "marked-for-release"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var r recorder
			s := NewStore(StoreOptions{Families: []Family{IPv4, IPv6}, Trigger: r.trigger})
			if !tt.closed {
				s.Open()
			}
			s.Observe(ciliumNode("1", tt.pool, nil))
			for _, ip := range tt.used {
				harness.Must(t, s.Restore(addr(ip), "default/a [restored]"))
			}
			s.Observe(ciliumNode("2", tt.pool, tt.given))
			if diff := cmp.Diff(tt.want, s.Report().Status.IPAM.ReleaseIPs); diff != "" {
				t.Errorf("answers (-want +got):\n%s", diff)
			}
			if got := len(r.reasons) > 0; got != tt.trigger {
				t.Errorf("asked for a status write: %v, want %v", r.reasons, tt.trigger)
			}
		})
	}
}

func TestRestoreAndAllocate(t *testing.T) {
	tests := map[string]struct {
		cn   *ciliumv2.CiliumNode
		ip   string
		want error
	}{
		"free":           {cn: ciliumNode("1", pool{"10.0.0.1": {}}, nil), ip: "10.0.0.1"},
		"do-not-release": {cn: ciliumNode("1", pool{"10.0.0.1": {}}, release{"10.0.0.1": "do-not-release"}), ip: "10.0.0.1"},
		"of another":     {cn: ciliumNode("1", pool{"10.0.0.1": {Owner: "default/b"}}, nil), ip: "10.0.0.1"},
		"marked":         {cn: ciliumNode("1", pool{"10.0.0.1": {}}, release{"10.0.0.1": "released"}), ip: "10.0.0.1", want: ErrReleasing},
		"not in pool":    {cn: ciliumNode("1", pool{"10.0.0.1": {}}, nil), ip: "10.0.0.2", want: ErrNotInPool},
		"other spelling": {cn: ciliumNode("1", pool{"fd00:0::1": {}}, nil), ip: "fd00::1", want: ErrNotInPool},
		"no pool":        {cn: ciliumNode("1", nil, nil), ip: "10.0.0.1", want: ErrNoPool},
		"no CiliumNode":  {ip: "10.0.0.1", want: ErrNoCiliumNode},
		"node's own":     {cn: ciliumNode("1", pool{"192.0.2.1": {}}, nil), ip: "192.0.2.1", want: ErrExcluded},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var r recorder
			s := NewStore(StoreOptions{Families: []Family{IPv4, IPv6}, Trigger: r.trigger})
			s.Open()
			s.Exclude(addr("192.0.2.1"))
			s.Observe(tt.cn)
			if err := s.Restore(addr(tt.ip), "default/a [restored]"); !errors.Is(err, tt.want) {
				t.Fatalf("got %v, want %v", err, tt.want)
			}
			if len(r.reasons) != 0 {
				t.Errorf("asked for a status write: %v", r.reasons)
			}
			if tt.want != nil {
				return
			}
			if err := s.Allocate(addr(tt.ip), "default/c"); !errors.Is(err, ErrInUse) {
				t.Errorf("second allocation: %v", err)
			}
			want := pool{tt.ip: {Owner: "default/a [restored]"}}
			if diff := cmp.Diff(want, s.Report().Status.IPAM.Used); diff != "" {
				t.Errorf("used (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAllocateNext(t *testing.T) {
	both := []Family{IPv4, IPv6}
	tests := map[string]struct {
		families   []Family
		pool       pool
		release    release
		used       []string
		wantV4     string
		wantV6     string
		wantErr    error
		candidates []string // offered to the last Pick
	}{
		"lowest":            {pool: pool{"10.0.0.2": {}, "10.0.0.1": {}}, wantV4: "10.0.0.1", candidates: []string{"10.0.0.1", "10.0.0.2"}},
		"dual stack":        {families: both, pool: pool{"10.0.0.1": {}, "fd00::1": {}}, wantV4: "10.0.0.1", wantV6: "fd00::1", candidates: []string{"10.0.0.1"}},
		"no IPv4 left":      {families: both, pool: pool{"fd00::1": {}}, wantErr: ErrExhausted, candidates: []string{"fd00::1"}},
		"in handshake":      {pool: pool{"10.0.0.1": {}, "10.0.0.2": {}}, release: release{"10.0.0.1": "ready-for-release"}, wantV4: "10.0.0.2", candidates: []string{"10.0.0.2"}},
		"of another":        {pool: pool{"10.0.0.1": {Owner: "default/b"}}, wantErr: ErrExhausted},
		"own":               {pool: pool{"10.0.0.1": {}, "10.0.0.2": {Owner: "default/a"}}, wantV4: "10.0.0.2", candidates: []string{"10.0.0.2"}},
		"own, marked":       {pool: pool{"10.0.0.2": {Owner: "default/a"}}, release: release{"10.0.0.2": "marked-for-release"}, wantV4: "10.0.0.2", candidates: []string{"10.0.0.2"}},
		"own, used already": {pool: pool{"10.0.0.2": {Owner: "default/a"}}, used: []string{"10.0.0.2"}, wantV4: "10.0.0.2", candidates: []string{"10.0.0.2"}},
		"own, no address":   {pool: pool{"10.0.0.1": {}, "x": {Owner: "default/a"}}, wantErr: ErrBadKey, candidates: []string{"x"}},
		"spelt otherwise":   {families: []Family{IPv6}, pool: pool{"fd00:0::1": {}}, used: nil, wantV6: "fd00::1", candidates: []string{"fd00:0::1"}},
		"node's own":        {pool: pool{"192.0.2.1": {}, "192.0.2.2": {}}, wantV4: "192.0.2.2", candidates: []string{"192.0.2.2"}},
		"own is the node's": {pool: pool{"192.0.2.1": {Owner: "default/a"}}, wantErr: ErrExcluded, candidates: []string{"192.0.2.1"}},
		"no pool":           {wantErr: ErrExhausted},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var offered []string
			s := NewStore(StoreOptions{Families: tt.families, Pick: func(candidates []string) string {
				offered = candidates
				return candidates[0]
			}})
			s.Open()
			s.Exclude(addr("192.0.2.1"))
			s.Observe(ciliumNode("1", tt.pool, nil))
			for _, ip := range tt.used {
				harness.Must(t, s.Restore(addr(ip), "default/z"))
			}
			s.Observe(ciliumNode("2", tt.pool, tt.release))
			v4, v6, err := s.AllocateNext("default/a")
			if !errors.Is(err, tt.wantErr) || text(v4) != tt.wantV4 || text(v6) != tt.wantV6 {
				t.Errorf("got %s, %s, %v; want %s, %s, %v", text(v4), text(v6), err, tt.wantV4, tt.wantV6, tt.wantErr)
			}
			if diff := cmp.Diff(tt.candidates, offered, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("candidates (-want +got):\n%s", diff)
			}
			s.Release(addr("192.0.2.1")) // The node's own stays allocated, once it turned up.
			if tt.wantErr != nil && len(s.Allocated()) != len(tt.used) {
				t.Errorf("failed and left %v", s.Allocated())
			}
		})
	}
}

// The owner path returns one address twice; the first release frees it.
func TestOwnerGetsAddressTwice(t *testing.T) {
	s := NewStore(StoreOptions{})
	s.Open()
	s.Observe(ciliumNode("1", pool{"10.0.0.1": {Owner: "default/a"}}, nil))
	for range 2 {
		if v4, _, err := s.AllocateNext("default/a"); err != nil || v4 != addr("10.0.0.1") {
			t.Fatalf("got %s, %v", v4, err)
		}
	}
	s.Release(addr("10.0.0.1"))
	if got := s.Allocated(); len(got) != 0 {
		t.Errorf("still allocated: %v", got)
	}
}

// A key that is not in canonical form is allocated again and again.
func TestSpellingCountsTwice(t *testing.T) {
	s := NewStore(StoreOptions{Families: []Family{IPv6}})
	s.Open()
	s.Observe(ciliumNode("1", pool{"fd00:0::1": {}}, nil))
	for range 2 {
		if _, v6, err := s.AllocateNext("default/a"); err != nil || v6 != addr("fd00::1") {
			t.Fatalf("got %s, %v", v6, err)
		}
	}
}

func TestMinimumReached(t *testing.T) {
	node := func(mutate func(*ciliumv2.CiliumNode)) *ciliumv2.CiliumNode {
		cn := ciliumNode("1", pool{"10.0.0.1": {}, "10.0.0.2": {}}, nil)
		mutate(cn)
		return cn
	}
	tests := map[string]struct {
		cn     *ciliumv2.CiliumNode
		health bool
		want   bool
	}{
		"no CiliumNode": {},
		"no pool":       {cn: ciliumNode("1", nil, nil)},
		"empty pool":    {cn: ciliumNode("1", pool{}, nil)},
		"one":           {cn: ciliumNode("1", pool{"10.0.0.1": {}}, nil), want: true},
		"one, health":   {cn: ciliumNode("1", pool{"10.0.0.1": {}}, nil), health: true},
		"two, health":   {cn: node(func(*ciliumv2.CiliumNode) {}), health: true, want: true},
		"all marked":    {cn: ciliumNode("1", pool{"10.0.0.1": {}}, release{"10.0.0.1": "marked-for-release"}), want: true},
		"min-allocate":  {cn: node(func(cn *ciliumv2.CiliumNode) { cn.Spec.IPAM.MinAllocate = 3; cn.Spec.IPAM.PreAllocate = 1 })},
		"pre-allocate":  {cn: node(func(cn *ciliumv2.CiliumNode) { cn.Spec.IPAM.PreAllocate = 3 })},
		"static IP": {cn: node(func(cn *ciliumv2.CiliumNode) {
			cn.Spec.IPAM.StaticIPTags = map[string]string{"a": "b"}
		})},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := NewStore(StoreOptions{HealthChecking: tt.health})
			s.Observe(tt.cn)
			if got := s.MinimumReached(); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestDeletedCiliumNode(t *testing.T) {
	s := NewStore(StoreOptions{})
	s.Open()
	cn := ciliumNode("1", pool{"10.0.0.1": {}, "10.0.0.2": {}}, nil)
	s.Observe(cn)
	if _, _, err := s.AllocateNext("default/a"); err != nil {
		t.Fatal(err)
	}
	s.Observe(nil)
	if s.Report() != nil {
		t.Error("reports without a CiliumNode")
	}
	if _, _, err := s.AllocateNext("default/b"); !errors.Is(err, ErrNoCiliumNode) {
		t.Errorf("allocates without a CiliumNode: %v", err)
	}
	s.Observe(cn)
	if diff := cmp.Diff(pool{"10.0.0.1": {Owner: "default/a"}}, s.Report().Status.IPAM.Used); diff != "" {
		t.Errorf("used afterwards (-want +got):\n%s", diff)
	}
	if cn.Status.IPAM.Used != nil {
		t.Error("changed what it was given")
	}
}
