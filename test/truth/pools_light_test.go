package truth

import (
	"net/netip"
	"slices"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/agent/multipool"
	"github.com/cilium-pool/cilium-pool-operator/test/truth/wire"
)

// Times of an agent in multi-pool mode (multipool_manager.go).
const (
	poolRate     = 15 * time.Second // --ipam-cilium-node-update-rate
	poolRefresh  = time.Minute      // refreshPoolInterval
	poolPatience = 5 * time.Minute  // pendingAllocationTTL
)

// lightPools is an agent in multi-pool mode as this repository models it, multipool.Pools, with the
// simulator's clock, watch and writes around it, but at Cilium's own moments.
type lightPools struct {
	api   wire.Store
	known map[string]bool // CiliumPodIPPools
	now   time.Duration

	model  *multipool.Pools // nil: the agent is down
	seen   *ciliumv2.CiliumNode
	synced bool
	tick   time.Duration // when it next writes on its own
	wrote  time.Duration
	fresh  bool // it has not tried to write yet
	// filled means that it has had an address of each pool with a reserve; written that a
	// write is done.
	filled, written bool
	waits           map[waiting]time.Duration // until when they count
}

// waiting is an owner that waits for an address.
type waiting struct {
	pool   string
	family ipalloc.Family
	owner  string
}

func (l *lightPools) start(reserve map[string]int, ipv6 bool) {
	l.api.Restart()
	l.model = &multipool.Pools{Reserve: reserve, IPv6: ipv6}
	l.seen, l.synced, l.filled, l.written, l.fresh = nil, false, false, false, true
	l.tick, l.waits = l.now+poolRefresh, map[waiting]time.Duration{}
}

func (l *lightPools) crash() { l.model = nil }

// ready reports whether the agent has its allocators (newMultiPoolAllocators).
func (l *lightPools) ready() bool { return l.model != nil && l.filled && l.written }

// see processes the next event of the watch (multiPoolManager.ciliumNodeUpdated).
func (l *lightPools) see(last bool) {
	v, any := l.api.See(last)
	if !any || v.Deleted || l.model == nil {
		return
	}
	cn := v.Node.DeepCopy()
	l.model.SeesAll(cn)
	l.filled = l.filled || l.model.Ready()
	first := l.seen == nil
	l.seen = cn
	if first {
		l.trigger()
	}
}

// seeAgain processes an event of the version that it saw last.
func (l *lightPools) seeAgain() {
	if l.api.Shown != nil && l.model != nil {
		l.model.SeesAll(l.api.Shown.DeepCopy())
		l.filled = l.filled || l.model.Ready()
	}
}

// advance lets time pass.
func (l *lightPools) advance(d time.Duration) {
	end := l.now + d
	for l.model != nil && l.tick <= end {
		l.now = l.tick
		l.tick += poolRefresh
		l.update()
	}
	l.now = end
}

// trigger requests a write: it happens now, or not at all if there was one within the update
// rate (hive/job, WithDebounce).
func (l *lightPools) trigger() {
	if l.fresh || l.now-l.wrote >= poolRate {
		l.update()
	}
}

// update models multiPoolManager.updateLocalNode.
func (l *lightPools) update() {
	l.wrote, l.fresh = l.now, false
	if l.seen == nil {
		return
	}
	for w, until := range l.waits {
		if l.now > until {
			l.model.Forget(w.pool, w.family, w.owner)
			delete(l.waits, w)
		}
	}
	spec := multipool.Spec(l.model.Update())
	if !l.synced {
		spec.Allocated = l.seen.Spec.IPAM.Pools.Allocated
	}
	cn := l.seen.DeepCopy()
	cn.Spec.IPAM.Pools = spec
	if !spec.DeepEqual(&l.seen.Spec.IPAM.Pools) {
		stored, err := l.api.Write(cn, false)
		if err != nil {
			return
		}
		cn = stored
	}
	if len(cn.Status.IPAM.Used) > 0 {
		cn.Status.IPAM.Used = nil
		if _, err := l.api.Write(cn, true); err != nil {
			return
		}
	}
	l.written = true
}

// next allocates an address of a family. Cilium takes any address of its current CIDR; the model
// takes the lowest, and then Cilium's choice.
func (l *lightPools) next(pool string, f ipalloc.Family, owner string, took netip.Addr, quietly bool) (netip.Addr, error) {
	if !quietly {
		defer l.trigger()
	}
	if !l.known[pool] {
		l.wait(pool, f, owner)
		return netip.Addr{}, multipool.ErrExhausted
	}
	addr, err := l.model.Allocate(pool, f, owner)
	if err != nil {
		l.wait(pool, f, owner)
		return addr, err
	}
	delete(l.waits, waiting{pool, f, owner})
	same := func(c netip.Prefix) bool { return took.IsValid() && c.Contains(addr) && c.Contains(took) }
	if addr != took && slices.ContainsFunc(l.model.CIDRs(), same) {
		l.model.Release(addr)
		if err := l.model.Restore(pool, took, owner); err != nil {
			return addr, err
		}
		addr = took
	}
	return addr, nil
}

func (l *lightPools) wait(pool string, f ipalloc.Family, owner string) {
	l.model.Wait(pool, f, owner)
	l.waits[waiting{pool, f, owner}] = l.now + poolPatience
}

func (l *lightPools) restore(pool string, addr netip.Addr, owner string) error {
	w := waiting{pool, ipalloc.FamilyOf(addr), owner}
	if w.family == ipalloc.IPv6 && !l.model.IPv6 {
		return multipool.ErrNotInPool
	}
	err := l.model.Restore(pool, addr, owner)
	if delete(l.waits, w); err != nil {
		l.waits[w] = l.now + poolPatience
	}
	return err
}

func (l *lightPools) release(addr netip.Addr) {
	l.model.Release(addr)
	l.trigger()
}

func (l *lightPools) restored() {
	l.model.Restored()
	l.trigger()
}

// allocated returns the addresses in use as in Cilium's dump: with their pool if it is not default.
func (l *lightPools) allocated() []string {
	var out []string
	for pool := range l.known {
		prefix := pool + "/"
		if pool == "default" {
			prefix = ""
		}
		for _, f := range ipalloc.Families() {
			for addr := range l.model.Live(pool, f) {
				out = append(out, prefix+addr.String())
			}
		}
	}
	slices.Sort(out)
	return out
}

// held reports whether the agent holds a CIDR for another pool that pods request.
func (l *lightPools) held(c netip.Prefix, pool string) bool {
	for _, other := range []string{"default", "blue"} {
		if other != pool && l.model != nil && slices.Contains(l.model.CIDRsOf(other), c) {
			return true
		}
	}
	return false
}
