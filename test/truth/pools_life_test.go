package truth

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	iputil "github.com/cilium/cilium/pkg/ip"
	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/test/truth/wire"
)

// poolCIDRs are added to and removed from the list of a node; none overlaps another. One is
// not in canonical form.
var poolCIDRs = []string{
	"10.0.0.0/30", "10.0.0.4/30", "10.0.0.8/29", "10.0.0.16/31", "10.0.0.20/32", "10.0.0.33/28", "10.0.0.64/30",
	"fd00::/126", "fd00::4/126", "fd00::8/125", "fd00::10/127", "fd00::20/124", "fd00::40/128",
}

func pick[T any](l *poolLife, of ...T) T { return of[l.random.IntN(len(of))] }

// run takes random steps, and reports whether both sides agree to the end.
func (l *poolLife) run(steps int) bool {
	l.boot()
	for range steps {
		if l.differs != "" {
			return false
		}
		l.act()
	}
	l.real.kill()
	return l.differs == ""
}

func (l *poolLife) act() {
	act(l.random, []action{
		{20, func() { l.next(pick(l, "default", "default", "blue"), l.pod(), l.random.IntN(8) == 0) }},
		{12, l.releaseOne}, {6, func() { l.next("default", "default/again", false) }},
		{14, l.assign}, {5, l.unassign}, {5, l.park}, {1, l.loseList}, {2, l.disturb}, {2, l.relabel},
		{24, func() { l.see(l.random.IntN(3) > 0) }}, {4, l.seeAgain}, {18, l.passSome},
		{4, func() { l.refuse(pick(l, "conflict", "error")) }}, {4, l.fill}, {4, l.releaseMost},
		{3, l.restart}, {2, l.forgetPool}, {1, l.recreate},
	})
}

// pod returns the name of a new pod.
func (l *poolLife) pod() string {
	l.pods++
	return fmt.Sprintf("default/pod-%d", l.pods)
}

func (l *poolLife) passSome() {
	l.advance(pick(l, time.Second, 5*time.Second, poolRate, 20*time.Second, poolRefresh, 90*time.Second, 4*time.Minute))
}

// fill creates pods until there may be no address left.
func (l *poolLife) fill() {
	pool := pick(l, "default", "blue")
	for range 1 + l.random.IntN(8) {
		l.next(pool, l.pod(), false)
	}
}

// releaseMost deletes most pods, so that CIDRs are returned.
func (l *poolLife) releaseMost() {
	for range len(l.has) * 3 / 4 {
		l.releaseOne()
	}
}

func (l *poolLife) releaseOne() {
	if len(l.has) == 0 {
		return
	}
	owner := pick(l, l.has...).owner
	l.has = slices.DeleteFunc(l.has, func(e poolEndpoint) bool {
		if e.owner == owner {
			l.release(e)
		}
		return e.owner == owner
	})
}

// edit changes the CiliumNode as any client but the agent would.
func (l *poolLife) edit(do func(cn *ciliumv2.CiliumNode)) {
	if l.light.api.Node == nil {
		return
	}
	cn := l.light.api.Node.DeepCopy()
	do(cn)
	l.write(cn)
}

// assign adds a free CIDR to the list of a pool, at a random position.
func (l *poolLife) assign() { l.assignTo(pick(l, "default", "default", "blue")) }

func (l *poolLife) assignTo(pool string) {
	l.edit(func(cn *ciliumv2.CiliumNode) {
		c := netip.MustParsePrefix(pick(l, poolCIDRs...))
		listed, at := l.list(cn, c)
		if at != "" && at != pool || l.light.held(c.Masked(), pool) {
			return // An address in two pools would belong to another pod.
		}
		if !listed || l.random.IntN(10) == 0 { // also twice
			l.insert(cn, pool, c)
		}
	})
}

// list returns whether a CIDR is listed, and its pool.
func (l *poolLife) list(cn *ciliumv2.CiliumNode, c netip.Prefix) (listed bool, pool string) {
	for _, entry := range cn.Spec.IPAM.Pools.Allocated {
		for _, p := range entry.CIDRs {
			if p.Masked() == c.Masked() {
				return true, entry.Pool
			}
		}
	}
	return false, ""
}

func (l *poolLife) insert(cn *ciliumv2.CiliumNode, pool string, c netip.Prefix) {
	pools := &cn.Spec.IPAM.Pools
	i := slices.IndexFunc(pools.Allocated, func(e ipamtypes.IPAMPoolAllocation) bool { return e.Pool == pool })
	if i < 0 {
		i = l.random.IntN(len(pools.Allocated) + 1)
		pools.Allocated = slices.Insert(pools.Allocated, i, ipamtypes.IPAMPoolAllocation{Pool: pool})
	}
	entry := &pools.Allocated[i]
	entry.CIDRs = slices.Insert(entry.CIDRs, l.random.IntN(len(entry.CIDRs)+1), iputil.PrefixFrom(c))
}

// take removes a random CIDR from the list. Its pool usually stays listed.
func (l *poolLife) take(cn *ciliumv2.CiliumNode) (pool string, c netip.Prefix, any bool) {
	pools := &cn.Spec.IPAM.Pools
	if len(pools.Allocated) == 0 {
		return "", c, false
	}
	i := l.random.IntN(len(pools.Allocated))
	entry := &pools.Allocated[i]
	if len(entry.CIDRs) == 0 {
		return "", c, false
	}
	j := l.random.IntN(len(entry.CIDRs))
	pool, c = entry.Pool, entry.CIDRs[j].Prefix
	if entry.CIDRs = slices.Delete(entry.CIDRs, j, j+1); len(entry.CIDRs) == 0 && l.random.IntN(4) == 0 {
		pools.Allocated = slices.Delete(pools.Allocated, i, i+1)
	}
	return pool, c, true
}

func (l *poolLife) unassign() {
	l.edit(func(cn *ciliumv2.CiliumNode) { l.take(cn) })
}

// park moves a CIDR to a pool that no pod requests, or back.
func (l *poolLife) park() {
	l.edit(func(cn *ciliumv2.CiliumNode) {
		pool, c, any := l.take(cn)
		switch {
		case !any:
		case pool == "parked":
			if !l.light.held(c.Masked(), "default") {
				l.insert(cn, "default", c)
			}
		default:
			l.insert(cn, "parked", c)
		}
	})
}

func (l *poolLife) loseList() {
	l.edit(func(cn *ciliumv2.CiliumNode) { cn.Spec.IPAM.Pools.Allocated = nil })
}

// disturb writes the fields of agents: the requested addresses, and the report of an agent in crd
// mode.
func (l *poolLife) disturb() {
	l.edit(func(cn *ciliumv2.CiliumNode) {
		if l.random.IntN(2) == 0 {
			cn.Spec.IPAM.Pools.Requested = nil
			return
		}
		cn.Status.IPAM.Used = ipamtypes.AllocationMap{"10.0.0.1": {Owner: "default/old"}}
	})
}

func (l *poolLife) relabel() {
	l.edit(func(cn *ciliumv2.CiliumNode) { cn.Labels = map[string]string{"n": fmt.Sprint(l.random.Uint32())} })
}

// forgetPool deletes a CiliumPodIPPool for a while.
func (l *poolLife) forgetPool() {
	pool := pick(l, "default", "blue")
	l.know(pool, !l.light.known[pool])
}

func (l *poolLife) recreate() {
	_ = l.play(wire.Request{Do: "delete"}, done(func() { l.light.api.Delete() }))
	for range l.random.IntN(3) {
		pick(l, l.passSome, func() { l.see(false) }, func() { l.next("default", l.pod(), false) })()
	}
	l.write(&ciliumv2.CiliumNode{ObjectMeta: metav1.ObjectMeta{Name: "node"}})
}

// restart crashes both agents, and makes them restore their endpoints.
func (l *poolLife) restart() {
	_ = l.play(wire.Request{Do: "crash"}, done(l.light.crash))
	for range l.random.IntN(4) {
		pick(l, l.unassign, l.park, l.assign, l.passSome)()
	}
	l.boot()
}

// boot starts both agents. While they wait for their pools, CIDRs are only added: the order of a
// map decides whether an agent has counted one before another is removed.
func (l *poolLife) boot() {
	for _, pool := range []string{"default", "blue", "parked"} {
		l.know(pool, true)
	}
	reserve := map[string]int{"default": pick(l, 0, 1, 2, 3, 8)}
	if l.random.IntN(3) == 0 {
		reserve["blue"] = pick(l, 0, 2)
	}
	l.start(reserve, l.random.IntN(3) > 0, true)
	for n := 0; !l.light.ready() && l.differs == ""; n++ {
		pick(l, l.passSome, l.relabel, func() { l.see(true) }, func() { l.see(true) },
			func() { l.assignTo("default") }, func() { l.assignTo("blue") }, func() { l.refuse("conflict") })()
		if n > 100 { // Pools without a reserve have the addresses that the others wait for.
			_ = l.play(wire.Request{Do: "crash"}, done(l.light.crash))
			l.loseList()
			l.boot()
			return
		}
	}
	l.restoreAll()
	l.next("default", "router", true)
	_ = l.play(wire.Request{Do: "restored"}, done(l.light.restored))
}

func (l *poolLife) restoreAll() {
	had := l.has
	l.has = nil
	for _, e := range had {
		if l.random.IntN(6) == 0 {
			pick(l, l.passSome, func() { l.see(true) }, l.assign)()
		}
		if l.random.IntN(20) == 0 { // an address that no pod can have, or a pod with two sandboxes
			_ = l.restore(poolEndpoint{e.pool, "default/wrong", pick(l, e.addr, e.addr.Next(), e.addr.Prev())})
		}
		if e.owner != "router" && l.restore(e) == nil {
			l.has = append(l.has, e)
		}
	}
}
