package truth

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/cilium-pool/cilium-pool-operator/test/agent"
	"github.com/cilium-pool/cilium-pool-operator/test/controlplane/cptest"
)

var shared cptest.Shared

func TestMain(m *testing.M) { os.Exit(shared.Main(m)) }

var (
	seeds = flag.Uint64("seeds", 6, "random lives to compare")
	steps = flag.Int("steps", 80, "steps of each life")
)

// nodeIP is excluded from allocation, but sometimes in the pool.
var nodeIP = netip.MustParseAddr("10.0.0.9")

// addresses are the keys that are added to and removed from the pool and the handshake. The
// last ones are IPv4-mapped, not canonical, and not an address at all.
var addresses = []string{
	"10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6", "10.0.0.9",
	"fd00::1", "fd00::2", "fd00::3", "fd00::4", "fd00::5", "fd00::6",
	"::ffff:10.0.0.1", "fd00:0::2", "junk",
}

var owners = []string{"default/a", "default/b", "default/c", "default/d", ""}

var states = []string{
	"marked-for-release", "marked-for-release", "marked-for-release", "released", "released", "ready-for-release", "do-not-release",
}

// The test runs the same random life on both sides.
func TestSameAnswers(t *testing.T) {
	cluster := shared.Cluster(t)
	for seed := range *seeds {
		t.Run(fmt.Sprintf("seed-%d", seed), func(t *testing.T) {
			t.Parallel()
			l := &life{pair: newPair(t, cluster), random: rand.New(rand.NewPCG(seed, 1))}
			l.create(map[string]string{"10.0.0.1": "", "10.0.0.2": "", "10.0.0.3": "", "fd00::1": "", "fd00::2": "", "fd00::3": ""})
			l.boot()
			for range *steps {
				l.act()
				l.settle()
				l.compareAllocated()
			}
		})
	}
}

// life is a pair with the state that the test remembers.
type life struct {
	*pair
	random *rand.Rand
}

type endpoint struct {
	addr  netip.Addr
	owner string
}

func one[T any](l *life, of []T) T { return of[l.random.IntN(len(of))] }

// action is a step of a life, taken as often as its weight says.
type action struct {
	weight int
	do     func()
}

// act performs a random one of actions.
func act(random *rand.Rand, actions []action) {
	total := 0
	for _, a := range actions {
		total += a.weight
	}
	n := random.IntN(total)
	for _, a := range actions {
		if n -= a.weight; n < 0 {
			a.do()
			return
		}
	}
}

// act performs one random step.
func (l *life) act() {
	act(l.random, []action{
		{20, l.addToPool}, {10, l.removeFromPool}, {2, l.losePool},
		{24, l.mark}, {6, l.clearMark}, {4, l.relabel}, {3, l.limit},
		{14, func() { l.next(one(l, owners)) }}, {8, l.allocateOne}, {12, l.releaseOne},
		{4, l.closedGate}, {2, l.recreate}, {6, l.restart},
	})
}

func (l *life) edit(status bool, format string, args ...any) {
	l.t.Helper()
	l.note("patch "+format, args...)
	l.patch(status, format, args...)
}

func (l *life) addToPool() {
	pool := map[string]string{}
	for range 1 + l.random.IntN(4) {
		key, owner := one(l, addresses), ""
		// Cilium never returns from an ADD if its own entry is the node's IP.
		if l.random.IntN(6) == 0 && key != nodeIP.String() {
			owner = one(l, owners)
		}
		pool[key] = owner
	}
	l.edit(false, `{"spec":{"ipam":{"pool":%s}}}`, poolJSON(pool))
}

func (l *life) removeFromPool() {
	l.edit(false, `{"spec":{"ipam":{"pool":{%q:null,%q:null}}}}`, one(l, addresses), one(l, addresses))
}

func (l *life) losePool() {
	if l.random.IntN(2) == 0 {
		l.edit(false, `{"spec":{"ipam":{"pool":null}}}`)
		return
	}
	nothing := strings.Join(addresses, `":null,"`)
	l.edit(false, `{"spec":{"ipam":{"pool":{"%s":null}}}}`, nothing)
}

func (l *life) mark() {
	l.edit(true, `{"status":{"ipam":{"release-ips":{%q:%q,%q:%q}}}}`,
		one(l, addresses), one(l, states), one(l, addresses), one(l, states))
}

func (l *life) clearMark() {
	if l.random.IntN(3) == 0 {
		l.edit(true, `{"status":{"ipam":{"release-ips":null}}}`)
		return
	}
	l.edit(true, `{"status":{"ipam":{"release-ips":{%q:null}}}}`, one(l, addresses))
}

func (l *life) relabel() {
	l.edit(false, `{"metadata":{"labels":{"n":"%d"}}}`, l.random.Uint32())
}

func (l *life) limit() {
	l.edit(false, `{"spec":{"ipam":{%q:%d}}}`, one(l, []string{"min-allocate", "pre-allocate"}), l.random.IntN(10))
}

func (l *life) allocateOne() {
	if addr, err := netip.ParseAddr(one(l, addresses)); err == nil {
		l.allocate(addr, one(l, owners))
	}
}

func (l *life) releaseOne() {
	if addr, err := netip.ParseAddr(one(l, addresses)); err == nil {
		l.release(addr)
	}
}

// closedGate runs a few actions while no status write gets through: answers cross changes, and
// writes fail and are retried.
func (l *life) closedGate() {
	mode := one(l, []string{"block", "fail"})
	l.rest()
	l.note("gate: %s", mode)
	l.setGate(mode)
	for range 1 + l.random.IntN(3) {
		one(l, []func(){l.mark, l.mark, l.relabel, l.addToPool, l.removeFromPool, func() { l.next(one(l, owners)) }, l.releaseOne})()
		l.settle()
	}
	l.note("gate: open")
	l.setGate("open")
}

func (l *life) recreate() {
	l.rest()
	l.note("delete CiliumNode")
	l.remove()
	l.settle()
	l.next(one(l, owners))
	l.releaseOne()
	l.rest()
	l.note("create CiliumNode")
	l.create(map[string]string{one(l, addresses): "", one(l, addresses): "", one(l, addresses): ""})
}

// restart crashes both agents and makes them restore their endpoints; edits fall into each gap.
func (l *life) restart() {
	l.rest()
	l.note("crash")
	var had []endpoint
	for addr, owner := range l.light.Store.Allocated() {
		had = append(had, endpoint{addr, owner})
	}
	l.crash()
	if l.random.IntN(2) == 0 {
		l.removeFromPool()
		l.mark()
	}
	l.boot(had...)
}

// boot starts both agents and makes them restore their endpoints. At first it keeps them waiting
// for their pool, because the time of the read by Cilium's agent is unknown.
func (l *life) boot(had ...endpoint) {
	l.t.Helper()
	l.edit(false, `{"spec":{"ipam":{"min-allocate":100}}}`)
	l.note("start")
	l.start()
	l.rest()
	for range l.random.IntN(3) {
		l.mark() // There are no allocators yet.
		l.settle()
	}
	l.addToPool()
	l.rest()
	if l.real.readState().Ready || l.light.Store.MinimumReached() {
		l.t.Fatal("an agent starts with a pool that does not suffice")
	}
	l.edit(false, `{"spec":{"ipam":{"min-allocate":0,"pre-allocate":1}}}`)
	l.open()
	if l.random.IntN(3) == 0 {
		l.mark() // The agent answers, and has not restored its pods yet.
		l.settle()
	}
	for _, e := range had {
		l.restore(e.addr, strings.TrimSuffix(e.owner, " [restored]")+" [restored]")
	}
	l.exclude(nodeIP)
	l.infra(agent.IPv4, "router")
	l.infra(agent.IPv6, "router")
	l.restored()
	l.settle()
	l.compareAllocated()
}
