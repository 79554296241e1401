// Package alloc measures the allocator beside Kubernetes' cidrset and Cilium's
// own, on the same work: claim, release, restore and look-up of conflicts with
// 10³ to 10⁶ blocks held.
//
// The peers' bitmaps know which blocks are taken and no more: theirs is less work.
// Cilium's pool allocator knows which node has them, as ours does, and so does
// Kubernetes' bitmap with a map beside it. None but ours knows blocks
// of unlike sizes in one space, and what overlaps what.
package alloc

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/cilium/cilium/operator/pkg/ipam/allocator/multipool"
	iputil "github.com/cilium/cilium/pkg/ip"
	ciliumcidrset "github.com/cilium/cilium/pkg/ipam/cidrset"
	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	"golang.org/x/sys/unix"
	kubecidrset "k8s.io/kubernetes/pkg/controller/nodeipam/ipam/cidrset"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

const (
	space = "10.0.0.0/8"
	bits  = 29 // 2^21 blocks, so that 10^6 are half of them
	// batch is how many operations are timed between two that put things back.
	batch = 500
)

var sizes = []int{1_000, 10_000, 100_000, 1_000_000}

// allocator is what all of them can do.
type allocator interface {
	// claim takes the next free block, as number k of a batch; giveBack returns it.
	claim(k int)
	giveBack(k int)
	release(netip.Prefix)
	restore(netip.Prefix)
	// ready ends the restore.
	ready()
}

// looker is an allocator that can say whether a block is taken.
type looker interface{ taken(netip.Prefix) bool }

type entrant struct {
	name string
	make func() allocator
	// looks: it is a looker.
	looks bool
}

var entrants = []entrant{
	{"ipalloc", newOurs, true},
	{"kubernetes-cidrset", newKube, false},
	{"kubernetes-cidrset+owners", newOwned, true},
	{"cilium-cidrset", newCilium, true},
	{"cilium-pool", newPool, true},
}

// batchOf is what one batch has claimed.
type batchOf [batch]netip.Prefix

// held are n blocks, dense, in random order.
func held(n int) []netip.Prefix {
	base := netip.MustParsePrefix(space).Addr().As4()
	out := make([]netip.Prefix, n)
	for i := range out {
		v := uint32(base[0])<<24 | uint32(i)<<(32-bits)
		out[i] = netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)}), bits)
	}
	rand.New(rand.NewPCG(1, 2)).Shuffle(n, func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

func each(b *testing.B, entrants []entrant, bench func(b *testing.B, e entrant, blocks []netip.Prefix)) {
	for _, n := range sizes {
		blocks := held(n)
		for _, e := range entrants {
			b.Run(fmt.Sprintf("%d/%s", n, e.name), func(b *testing.B) {
				b.ReportAllocs()
				bench(b, e, blocks)
			})
		}
	}
}

func filled(e entrant, blocks []netip.Prefix) allocator {
	a := e.make()
	for _, cidr := range blocks {
		a.restore(cidr)
	}
	a.ready()
	return a
}

// stopwatch is the timer of b and the CPU time of this process, which is the meaningful
// figure on a machine with other work. It includes the garbage collector's time.
type stopwatch struct {
	b            *testing.B
	spent, since time.Duration
}

func (w *stopwatch) start() {
	w.since = cpuTime()
	w.b.StartTimer()
}

func (w *stopwatch) stop() {
	w.b.StopTimer()
	w.spent += cpuTime() - w.since
}

// report says what each of n operations took.
func (w *stopwatch) report(n int) {
	w.stop()
	w.b.ReportMetric(float64(w.spent.Nanoseconds())/float64(n), "cpu-ns/block")
}

func cpuTime() time.Duration {
	var t unix.Timespec
	must(unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t))
	return time.Duration(t.Nano())
}

func BenchmarkClaim(b *testing.B) {
	each(b, entrants, func(b *testing.B, e entrant, blocks []netip.Prefix) {
		a, k := filled(e, blocks), 0
		w := stopwatch{b: b, since: cpuTime()}
		for b.Loop() {
			if k == batch {
				w.stop()
				for k > 0 {
					k--
					a.giveBack(k)
				}
				w.start()
			}
			a.claim(k)
			k++
		}
		w.report(b.N)
	})
}

func BenchmarkRelease(b *testing.B) {
	each(b, entrants, func(b *testing.B, e entrant, blocks []netip.Prefix) {
		a, i := filled(e, blocks), 0
		w := stopwatch{b: b, since: cpuTime()}
		for b.Loop() {
			if i == batch {
				w.stop()
				for _, c := range blocks[:batch] {
					a.restore(c)
				}
				i = 0
				w.start()
			}
			a.release(blocks[i])
			i++
		}
		w.report(b.N)
	})
}

// BenchmarkTaken asks for blocks that are held. Kubernetes' cannot be asked.
func BenchmarkTaken(b *testing.B) {
	able := slices.DeleteFunc(slices.Clone(entrants), func(e entrant) bool { return !e.looks })
	each(b, able, func(b *testing.B, e entrant, blocks []netip.Prefix) {
		a, i := filled(e, blocks).(looker), 0
		w := stopwatch{b: b, since: cpuTime()}
		for b.Loop() {
			if !a.taken(blocks[i]) {
				b.Fatal("not taken")
			}
			i = (i + 1) % len(blocks)
		}
		w.report(b.N)
	})
}

// BenchmarkRestore restores blocks in order of address, which is nearly the order of
// their names, in which an API server lists them.
func BenchmarkRestore(b *testing.B) { restore(b, netip.Prefix.Compare) }

// BenchmarkRestoreShuffled reads them in random order: each misses the caches.
func BenchmarkRestoreShuffled(b *testing.B) { restore(b, nil) }

// restore measures restores, and reports for each allocator how much more a block
// costs among many than among few: about 1 for a linear restore.
func restore(b *testing.B, order func(x, y netip.Prefix) int) {
	few := map[string]float64{}
	each(b, entrants, func(b *testing.B, e entrant, blocks []netip.Prefix) {
		if order != nil {
			blocks = slices.SortedFunc(slices.Values(blocks), order)
		}
		w := stopwatch{b: b, since: cpuTime()}
		for b.Loop() {
			filled(e, blocks)
		}
		n := b.N * len(blocks)
		w.report(n)
		if perBlock := float64(w.spent.Nanoseconds()) / float64(n); len(blocks) == sizes[0] {
			few[e.name] = perBlock
		} else if few[e.name] > 0 {
			b.ReportMetric(perBlock/few[e.name], "x-smallest")
		}
	})
}

// ours is pkg/ipalloc.
type ours struct {
	space   *ipalloc.Space
	cut     ipalloc.Cut
	claimed batchOf
}

func newOurs() allocator {
	cut := ipalloc.Cut{Ranges: []netip.Prefix{netip.MustParsePrefix(space)}, BlockBits: bits}
	return &ours{space: ipalloc.NewSpace(), cut: cut}
}

func (o *ours) owner() ipalloc.Owner   { return ipalloc.Owner{Pool: "default", Node: "node"} }
func (o *ours) ready()                 { o.space.SetReady() }
func (o *ours) release(c netip.Prefix) { o.space.Release(c) }
func (o *ours) giveBack(k int)         { o.space.Release(o.claimed[k]) }
func (o *ours) restore(c netip.Prefix) {
	must(o.space.Restore(ipalloc.Held{CIDR: c, Owner: o.owner()}))
}
func (o *ours) claim(k int) {
	c, err := o.space.Claim(o.cut, o.owner(), nil)
	must(err)
	o.claimed[k] = c
}

func (o *ours) taken(c netip.Prefix) bool {
	_, held := o.space.Owner(c)
	return held && o.space.Overlapping(c) == nil
}

// kube is Kubernetes' cidrset, which speaks of *net.IPNet.
type kube struct {
	set     *kubecidrset.CidrSet
	claimed [batch]*net.IPNet
}

func newKube() allocator {
	_, cidr, err := net.ParseCIDR(space)
	must(err)
	set, err := kubecidrset.NewCIDRSet(cidr, bits)
	must(err)
	return &kube{set: set}
}

func (k *kube) ready()                 {}
func (k *kube) release(c netip.Prefix) { must(k.set.Release(ipNet(c))) }
func (k *kube) giveBack(n int)         { must(k.set.Release(k.claimed[n])) }
func (k *kube) restore(c netip.Prefix) { must(k.set.Occupy(ipNet(c))) }
func (k *kube) claim(n int) {
	c, err := k.set.AllocateNext()
	must(err)
	k.claimed[n] = c
}

func ipNet(c netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: c.Addr().AsSlice(), Mask: net.CIDRMask(c.Bits(), 32)}
}

// owned is Kubernetes' cidrset and the least that makes it do the same work: a
// map of who holds what.
type owned struct {
	kube
	owners map[netip.Prefix]ipalloc.Owner
}

func newOwned() allocator {
	return &owned{*newKube().(*kube), map[netip.Prefix]ipalloc.Owner{}}
}

func (o *owned) owner() ipalloc.Owner { return ipalloc.Owner{Pool: "default", Node: "node"} }
func (o *owned) release(c netip.Prefix) {
	o.kube.release(c)
	delete(o.owners, c)
}

func (o *owned) restore(c netip.Prefix) {
	o.kube.restore(c)
	o.owners[c] = o.owner()
}

func (o *owned) claim(k int) {
	o.kube.claim(k)
	o.owners[prefixOf(o.claimed[k])] = o.owner()
}

func (o *owned) giveBack(k int) {
	o.kube.giveBack(k)
	delete(o.owners, prefixOf(o.claimed[k]))
}

func (o *owned) taken(c netip.Prefix) bool {
	_, held := o.owners[c]
	return held
}

func prefixOf(c *net.IPNet) netip.Prefix {
	addr, _ := netip.AddrFromSlice(c.IP.To4())
	return netip.PrefixFrom(addr, bits)
}

// cilium is the bitmap below Cilium's pools.
type cilium struct {
	set     *ciliumcidrset.CidrSet
	claimed batchOf
}

func newCilium() allocator {
	set, err := ciliumcidrset.NewCIDRSet(netip.MustParsePrefix(space), bits)
	must(err)
	return &cilium{set: set}
}

func (c *cilium) ready()                    {}
func (c *cilium) release(cidr netip.Prefix) { must(c.set.Release(cidr)) }
func (c *cilium) giveBack(k int)            { must(c.set.Release(c.claimed[k])) }
func (c *cilium) restore(cidr netip.Prefix) { must(c.set.Occupy(cidr)) }
func (c *cilium) claim(k int) {
	cidr, err := c.set.AllocateNext()
	must(err)
	c.claimed[k] = cidr
}

func (c *cilium) taken(cidr netip.Prefix) bool {
	taken, err := c.set.IsAllocated(cidr)
	must(err)
	return taken
}

// pool is Cilium's multi-pool allocator, which knows the node of each block. It
// is asked as its controller asks it: with what a node wants and has.
type pool struct {
	*multipool.PoolAllocator
	names [batch]string
	want  ipamtypes.IPAMPoolSpec
}

func newPool() allocator {
	p := &pool{PoolAllocator: multipool.NewPoolAllocator(slog.New(slog.DiscardHandler), true, false)}
	must(p.UpsertPool("default", []string{space}, bits, nil, 0))
	for k := range p.names {
		p.names[k] = fmt.Sprintf("new-%d", k)
	}
	p.want.Requested = []ipamtypes.IPAMPoolRequest{{Pool: "default", Needed: ipamtypes.IPAMPoolDemand{IPv4Addrs: 1}}}
	return p
}

func (p *pool) ready()                 { p.RestoreFinished() }
func (p *pool) release(c netip.Prefix) { must(p.AllocateToNode(nodeOf(c), ipamtypes.IPAMPoolSpec{})) }
func (p *pool) claim(k int)            { must(p.AllocateToNode(p.names[k], p.want)) }
func (p *pool) giveBack(k int)         { must(p.AllocateToNode(p.names[k], ipamtypes.IPAMPoolSpec{})) }
func (p *pool) restore(c netip.Prefix) {
	err := p.AllocateToNode(nodeOf(c), ipamtypes.IPAMPoolSpec{Allocated: []ipamtypes.IPAMPoolAllocation{
		{Pool: "default", CIDRs: []iputil.Prefix{iputil.PrefixFrom(c)}},
	}})
	if err != nil && err != multipool.ErrAllocatorNotReady {
		panic(err)
	}
}

func (p *pool) taken(c netip.Prefix) bool { return len(p.AllocatedPools(nodeOf(c))) == 1 }

func nodeOf(c netip.Prefix) string { return c.Addr().String() }

func must(err error) {
	if err != nil {
		panic(err)
	}
}
