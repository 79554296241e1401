package truth

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	iputil "github.com/cilium/cilium/pkg/ip"
	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/agent/multipool"
	"github.com/cilium-pool/cilium-pool-operator/test/truth/wire"
)

// The test runs the same random life of an agent in multi-pool mode on both sides, and
// compares every answer, and every CiliumNode at the moment it is written.
func TestPoolsSameAnswers(t *testing.T) {
	for seed := range 2 * *seeds {
		t.Run(fmt.Sprintf("seed-%d", seed), func(t *testing.T) {
			t.Parallel()
			if l := newPoolLife(t, seed); !l.run(4 * *steps) {
				t.Fatalf("%s\nsteps:\n%s", l.differs, strings.Join(l.log, "\n"))
			}
		})
	}
}

// Until its watch has shown everything, an agent writes the list as it read it.
func TestPoolsBeforeSync(t *testing.T) {
	for _, synced := range []bool{false, true} {
		l := newPoolLife(t, 0)
		cn := l.light.api.Node.DeepCopy()
		cn.Spec.IPAM.Pools.Allocated = []ipamtypes.IPAMPoolAllocation{entryOf("default", "10.0.0.4/30", "10.0.0.0/30")}
		l.write(cn)
		l.start(map[string]int{"default": 8}, false, synced)
		l.see(true)
		if !synced {
			l.sync()
		}
		l.advance(poolRefresh)
		if l.differs != "" {
			t.Fatal(l.differs)
		}
	}
}

// An agent does not start until each pool that it keeps a reserve of has an address of each family that it
// runs.
func TestPoolsReserves(t *testing.T) {
	const v4, v6 = "10.0.0.0/28", "fd00::/120"
	for name, test := range map[string]struct {
		reserve map[string]int
		ipv6    bool
		entries []ipamtypes.IPAMPoolAllocation
		starts  bool
	}{
		"default alone":        {reserve: map[string]int{"default": 8}, entries: []ipamtypes.IPAMPoolAllocation{entryOf("default", v4)}, starts: true},
		"none of blue":         {reserve: map[string]int{"default": 8, "blue": 0}, entries: []ipamtypes.IPAMPoolAllocation{entryOf("default", v4)}, starts: true},
		"blue is missing":      {reserve: map[string]int{"default": 8, "blue": 8}, entries: []ipamtypes.IPAMPoolAllocation{entryOf("default", v4)}},
		"blue has one family":  {reserve: map[string]int{"default": 8, "blue": 8}, ipv6: true, entries: []ipamtypes.IPAMPoolAllocation{entryOf("blue", "10.1.0.0/28"), entryOf("default", v4, v6)}},
		"blue has both of two": {reserve: map[string]int{"default": 8, "blue": 8}, ipv6: true, entries: []ipamtypes.IPAMPoolAllocation{entryOf("blue", "10.1.0.0/28", "fd01::/120"), entryOf("default", v4, v6)}, starts: true},
	} {
		t.Run(name, func(t *testing.T) {
			l := newPoolLife(t, 0)
			cn := l.light.api.Node.DeepCopy()
			cn.Spec.IPAM.Pools.Allocated = test.entries
			l.write(cn)
			l.ipv6 = test.ipv6
			l.start(test.reserve, test.ipv6, true)
			l.see(true)
			for range 24 {
				l.advance(time.Hour)
			}
			if starts := l.real.readState().Ready; starts != test.starts || l.differs != "" {
				t.Errorf("starts: %t, want %t; %s", starts, test.starts, l.differs)
			}
		})
	}
}

// An agent that has returned the last CIDR of a pool, and sees the version before once more, allocates from that CIDR
// for up to a minute, also after it has seen its own write: unless an entry of the pool, even an empty one, says
// that it is gone.
func TestReturnedCIDRSeenAgain(t *testing.T) {
	for _, cured := range []bool{false, true} {
		l := newPoolLife(t, 0)
		write := func(entries ...ipamtypes.IPAMPoolAllocation) {
			cn := l.light.api.Node.DeepCopy()
			cn.Spec.IPAM.Pools.Allocated = entries
			l.write(cn)
			l.see(true)
		}
		write(entryOf("blue", "10.0.0.20/32"), entryOf("default", "10.0.0.0/28"))
		l.start(map[string]int{"default": 8}, false, true)
		l.see(true)
		_ = l.play(wire.Request{Do: "restored"}, done(l.light.restored))
		l.see(true)
		l.advance(poolRefresh)
		if listed, _ := l.list(l.light.api.Node, netip.MustParsePrefix("10.0.0.20/32")); listed {
			t.Fatalf("the agent has not returned the CIDR; %s", l.differs)
		}
		l.seeAgain()
		l.see(true)
		if cured {
			write(entryOf("blue"), entryOf("default", "10.0.0.0/28"))
		}
		l.advance(poolRefresh - time.Second)
		l.next("blue", "default/late", false)
		if got := len(l.has) > 0; got == cured || l.differs != "" {
			t.Errorf("with an empty entry %t: a pod gets the address: %t; %s", cured, got, l.differs)
		}
	}
}

// poolLife performs the same steps on a node with Cilium's agent and on one with the light
// agent, each with its own API server.
type poolLife struct {
	t      *testing.T
	random *rand.Rand
	real   *real
	light  *lightPools
	log    []string
	// differs describes the first difference.
	differs string

	ipv6 bool
	has  []poolEndpoint // across restarts
	pods int
}

type poolEndpoint struct {
	pool, owner string
	addr        netip.Addr
}

func newPoolLife(t *testing.T, seed uint64) *poolLife {
	l := &poolLife{
		t: t, random: rand.New(rand.NewPCG(seed, 2)), real: startReal(t, wire.MultiPool),
		light: &lightPools{known: map[string]bool{}},
	}
	for _, pool := range []string{"default", "blue", "parked"} {
		l.know(pool, true)
	}
	l.write(&ciliumv2.CiliumNode{ObjectMeta: metav1.ObjectMeta{Name: "node"}})
	return l
}

// play makes both take the same step, and compares their states.
func (l *poolLife) play(req wire.Request, light func(resp wire.Response) error) error {
	if l.differs != "" {
		return errDiffers
	}
	resp := l.real.call(req)
	want, got := poolKindOf(resp.Err), light(resp)
	l.log = append(l.log, strings.TrimSpace(fmt.Sprintf("%3d  %s: %s %s", len(l.log), brief(req), took(resp), resp.Err)))
	switch {
	case want == nil && got != nil || !errors.Is(got, want):
		l.differ("the light one says %v, Cilium's %q", got, resp.Err)
	case resp.Ready != l.light.ready():
		l.differ("ready: the light one %v, Cilium's %v", l.light.ready(), resp.Ready)
	case resp.Ready && !slices.Equal(resp.Allocated, l.light.allocated()):
		l.differ("allocated (-Cilium's +light):\n%s", cmp.Diff(resp.Allocated, l.light.allocated()))
	}
	if diff := cmp.Diff(asMap(l.t, resp.Node), asMap(l.t, l.light.api.Node)); diff != "" {
		l.differ("the CiliumNode (-Cilium's +light):\n%s", diff)
	}
	return want
}

// took returns the address that Cilium's next allocated, if any.
func took(resp wire.Response) (addr netip.Addr) {
	if len(resp.Got) > 0 {
		addr = resp.Got[0]
	}
	return addr
}

var errDiffers = errors.New("they differ already")

func (l *poolLife) differ(format string, args ...any) {
	if l.differs == "" {
		l.differs = fmt.Sprintf("after step %d: ", len(l.log)-1) + fmt.Sprintf(format, args...)
	}
}

func brief(req wire.Request) string {
	if req.Node == nil {
		text, _ := json.Marshal(req) // It was marshaled to be sent.
		return string(text)
	}
	text, _ := json.Marshal(req.Node.Spec.IPAM.Pools)
	return req.Do + " " + string(text)
}

func asMap(t *testing.T, cn *ciliumv2.CiliumNode) (out map[string]any) {
	if cn != nil {
		if err := json.Unmarshal([]byte(wire.JSON(cn)), &out); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// poolKindOf translates Cilium's error texts (multipool.go, multipool_manager.go, pool.go,
// service/ipallocator/allocator.go).
func poolKindOf(text string) error {
	for _, kind := range []struct {
		says string
		err  error
	}{
		{"unable to allocate from pool", multipool.ErrExhausted},
		{"all CIDR ranges are exhausted", multipool.ErrExhausted},
		{"unable to reserve IP", multipool.ErrNotInPool},
		{"not in range of any CIDR", multipool.ErrNotInPool},
		{"provided IP is not in the valid range", multipool.ErrNotInPool},
		{"IPv6 allocation disabled", multipool.ErrNotInPool},
		{"provided IP is already allocated", multipool.ErrInUse},
		{"not found in stateDB table", multipool.ErrExhausted},
	} {
		if strings.Contains(text, kind.says) {
			return kind.err
		}
	}
	if text != "" {
		return fmt.Errorf("%w: %s", errUnknown, text)
	}
	return nil
}

func done(do func()) func(wire.Response) error {
	return func(wire.Response) error { do(); return nil }
}

func (l *poolLife) write(cn *ciliumv2.CiliumNode) {
	_ = l.play(wire.Request{Do: "put", Node: cn}, done(func() { l.light.api.Put(cn) }))
}

func (l *poolLife) know(pool string, known bool) {
	_ = l.play(wire.Request{Do: "know", Pool: pool, Known: known}, done(func() { l.light.known[pool] = known }))
}

func (l *poolLife) see(last bool) {
	_ = l.play(wire.Request{Do: "see", Last: last}, done(func() { l.light.see(last) }))
}

func (l *poolLife) seeAgain() {
	_ = l.play(wire.Request{Do: "see-again"}, done(func() { l.light.seeAgain() }))
}

func (l *poolLife) sync() {
	_ = l.play(wire.Request{Do: "sync"}, done(func() { l.light.synced = true }))
}

func (l *poolLife) advance(d time.Duration) {
	_ = l.play(wire.Request{Do: "pass", For: d}, done(func() { l.light.advance(d) }))
}

func (l *poolLife) refuse(how string) {
	_ = l.play(wire.Request{Do: "refuse", Refuse: how}, done(func() { l.light.api.Refuse = how }))
}

func (l *poolLife) start(reserve map[string]int, ipv6, synced bool) {
	texts := map[string]string{}
	for pool, n := range reserve {
		texts[pool] = strconv.Itoa(n)
	}
	l.ipv6 = ipv6
	_ = l.play(wire.Request{Do: "start", Reserve: texts, IPv6: ipv6, Rate: poolRate}, done(func() { l.light.start(reserve, ipv6) }))
	if synced {
		l.sync()
	}
}

// families returns the families that the agent runs, in its order of allocation
// (pkg/ipam/allocator.go, AllocateNext).
func (l *poolLife) families() []ipalloc.Family {
	if l.ipv6 {
		return []ipalloc.Family{ipalloc.IPv6, ipalloc.IPv4}
	}
	return []ipalloc.Family{ipalloc.IPv4}
}

// next runs a CNI ADD: an address of each family, or none. Cilium's AllocateNext makes the
// same calls, between which a write may or may not begin.
func (l *poolLife) next(pool, owner string, quietly bool) {
	var got []poolEndpoint
	for _, f := range l.families() {
		var addr netip.Addr
		req := wire.Request{Do: "next", Pool: pool, Owner: owner, Quietly: quietly, Family: f.String()}
		err := l.play(req, func(resp wire.Response) error {
			var err error
			addr, err = l.light.next(pool, f, owner, took(resp), quietly)
			return err
		})
		if err != nil {
			for _, e := range got {
				l.release(e)
			}
			return
		}
		got = append(got, poolEndpoint{pool, owner, addr})
	}
	l.has = append(l.has, got...)
}

func (l *poolLife) release(e poolEndpoint) {
	_ = l.play(wire.Request{Do: "release", Pool: e.pool, IP: e.addr}, done(func() { l.light.release(e.addr) }))
}

func (l *poolLife) restore(e poolEndpoint) error {
	req := wire.Request{Do: "restore", Pool: e.pool, IP: e.addr, Owner: e.owner}
	return l.play(req, func(wire.Response) error { return l.light.restore(e.pool, e.addr, e.owner) })
}

func entryOf(pool string, cidrs ...string) ipamtypes.IPAMPoolAllocation {
	entry := ipamtypes.IPAMPoolAllocation{Pool: pool}
	for _, c := range cidrs {
		entry.CIDRs = append(entry.CIDRs, iputil.PrefixFrom(netip.MustParsePrefix(c)))
	}
	return entry
}
