// Package alloc measures the allocator beside Kubernetes' cidrset and Cilium's
// own, on the same work: claim, release, restore and look-up of conflicts with
// 10³ to 10⁶ blocks held.
//
// The peers' bitmaps know which blocks are taken and no more: theirs is less work.
// Cilium's pool allocator knows which node has them, as ours does, and so does
// Kubernetes' bitmap with a map beside it. None but ours knows blocks
// of unlike sizes in one space, and what overlaps what.
//
// Each block has a node of its own, the same for all, and each allocator is called with
// its own types, made beforehand.
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

// allocator is what all of them can do, with the blocks that it was made for, by their
// number, in the types that it speaks of.
type allocator interface {
	// claim takes the next free block, as number k of a batch; giveBack returns it.
	claim(k int)
	giveBack(k int)
	release(i int)
	restore(i int)
	// ready ends the restore.
	ready()
}

// looker is an allocator that can say whether a block is taken.
type looker interface{ taken(i int) bool }

type entrant struct {
	name string
	// with returns how to make an empty allocator for blocks.
	with func(blocks []netip.Prefix) func() allocator
	// looks: it is a looker.
	looks bool
}

var entrants = []entrant{
	{"ipalloc", withOurs, true},
	{"kubernetes-cidrset", withKube, false},
	{"kubernetes-cidrset+owners", withOwned, true},
	{"cilium-cidrset", withCilium, true},
	{"cilium-pool", withPool, true},
}

// batchOf is what one batch has claimed.
type batchOf [batch]netip.Prefix

// nodeOf is the node of held block i.
func nodeOf(i int) string { return fmt.Sprintf("node-%d", i) }

// claimer is the node of claim k of a batch.
func claimer(k int) string { return fmt.Sprintf("new-%d", k) }

// ownersOf are those of n blocks, and claimers those of a batch.
func ownersOf(n int, node func(i int) string) []ipalloc.Owner {
	out := make([]ipalloc.Owner, n)
	for i := range out {
		out[i] = ipalloc.Owner{Pool: "default", Node: node(i)}
	}
	return out
}

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

func filled(empty func() allocator, n int) allocator {
	a := empty()
	for i := range n {
		a.restore(i)
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
		a, k := filled(e.with(blocks), len(blocks)), 0
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
		a, i := filled(e.with(blocks), len(blocks)), 0
		w := stopwatch{b: b, since: cpuTime()}
		for b.Loop() {
			if i == batch {
				w.stop()
				for i > 0 {
					i--
					a.restore(i)
				}
				w.start()
			}
			a.release(i)
			i++
		}
		w.report(b.N)
	})
}

// BenchmarkTaken asks for blocks that are held. Kubernetes' cannot be asked.
func BenchmarkTaken(b *testing.B) {
	able := slices.DeleteFunc(slices.Clone(entrants), func(e entrant) bool { return !e.looks })
	each(b, able, func(b *testing.B, e entrant, blocks []netip.Prefix) {
		a, i := filled(e.with(blocks), len(blocks)).(looker), 0
		w := stopwatch{b: b, since: cpuTime()}
		for b.Loop() {
			if !a.taken(i) {
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
		empty := e.with(blocks)
		w := stopwatch{b: b, since: cpuTime()}
		for b.Loop() {
			filled(empty, len(blocks))
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
	space            *ipalloc.Space
	cut              ipalloc.Cut
	blocks           []netip.Prefix
	owners, claimers []ipalloc.Owner
	claimed          batchOf
}

func withOurs(blocks []netip.Prefix) func() allocator {
	cut := ipalloc.Cut{Ranges: []netip.Prefix{netip.MustParsePrefix(space)}, BlockBits: bits}
	owners, claimers := ownersOf(len(blocks), nodeOf), ownersOf(batch, claimer)
	return func() allocator {
		return &ours{space: ipalloc.NewSpace(), cut: cut, blocks: blocks, owners: owners, claimers: claimers}
	}
}

func (o *ours) ready()         { o.space.SetReady() }
func (o *ours) release(i int)  { o.space.Release(o.blocks[i]) }
func (o *ours) giveBack(k int) { o.space.Release(o.claimed[k]) }
func (o *ours) restore(i int) {
	must(o.space.Restore(ipalloc.Held{CIDR: o.blocks[i], Owner: o.owners[i]}))
}
func (o *ours) claim(k int) {
	c, err := o.space.Claim(o.cut, o.claimers[k], nil)
	must(err)
	o.claimed[k] = c
}

func (o *ours) taken(i int) bool {
	_, held := o.space.Owner(o.blocks[i])
	return held && o.space.Overlapping(o.blocks[i]) == nil
}

// kube is Kubernetes' cidrset, which speaks of *net.IPNet.
type kube struct {
	set     *kubecidrset.CidrSet
	blocks  []*net.IPNet
	claimed [batch]*net.IPNet
}

func withKube(blocks []netip.Prefix) func() allocator {
	nets := ipNets(blocks)
	return func() allocator { return newKube(nets) }
}

func newKube(blocks []*net.IPNet) *kube {
	_, cidr, err := net.ParseCIDR(space)
	must(err)
	set, err := kubecidrset.NewCIDRSet(cidr, bits)
	must(err)
	return &kube{set: set, blocks: blocks}
}

func (k *kube) ready()         {}
func (k *kube) release(i int)  { must(k.set.Release(k.blocks[i])) }
func (k *kube) giveBack(n int) { must(k.set.Release(k.claimed[n])) }
func (k *kube) restore(i int)  { must(k.set.Occupy(k.blocks[i])) }
func (k *kube) claim(n int) {
	c, err := k.set.AllocateNext()
	must(err)
	k.claimed[n] = c
}

func ipNets(blocks []netip.Prefix) []*net.IPNet {
	out := make([]*net.IPNet, len(blocks))
	for i, c := range blocks {
		out[i] = &net.IPNet{IP: c.Addr().AsSlice(), Mask: net.CIDRMask(c.Bits(), 32)}
	}
	return out
}

// owned is Kubernetes' cidrset and the least that makes it do the same work: a
// map of who holds what, by the bytes of the first address.
type owned struct {
	kube
	held             map[[4]byte]ipalloc.Owner
	owners, claimers []ipalloc.Owner
}

func withOwned(blocks []netip.Prefix) func() allocator {
	nets, owners, claimers := ipNets(blocks), ownersOf(len(blocks), nodeOf), ownersOf(batch, claimer)
	return func() allocator {
		return &owned{kube: *newKube(nets), held: map[[4]byte]ipalloc.Owner{}, owners: owners, claimers: claimers}
	}
}

// key is a block's; its IPNets have 4 bytes.
func key(c *net.IPNet) [4]byte { return [4]byte(c.IP) }

func (o *owned) release(i int) {
	o.kube.release(i)
	delete(o.held, key(o.blocks[i]))
}

func (o *owned) restore(i int) {
	o.kube.restore(i)
	o.held[key(o.blocks[i])] = o.owners[i]
}

func (o *owned) claim(k int) {
	o.kube.claim(k)
	o.held[key(o.claimed[k])] = o.claimers[k]
}

func (o *owned) giveBack(k int) {
	o.kube.giveBack(k)
	delete(o.held, key(o.claimed[k]))
}

func (o *owned) taken(i int) bool {
	_, held := o.held[key(o.blocks[i])]
	return held
}

// cilium is the bitmap below Cilium's pools.
type cilium struct {
	set     *ciliumcidrset.CidrSet
	blocks  []netip.Prefix
	claimed batchOf
}

func withCilium(blocks []netip.Prefix) func() allocator {
	return func() allocator {
		set, err := ciliumcidrset.NewCIDRSet(netip.MustParsePrefix(space), bits)
		must(err)
		return &cilium{set: set, blocks: blocks}
	}
}

func (c *cilium) ready()         {}
func (c *cilium) release(i int)  { must(c.set.Release(c.blocks[i])) }
func (c *cilium) giveBack(k int) { must(c.set.Release(c.claimed[k])) }
func (c *cilium) restore(i int)  { must(c.set.Occupy(c.blocks[i])) }
func (c *cilium) claim(k int) {
	cidr, err := c.set.AllocateNext()
	must(err)
	c.claimed[k] = cidr
}

func (c *cilium) taken(i int) bool {
	taken, err := c.set.IsAllocated(c.blocks[i])
	must(err)
	return taken
}

// pool is Cilium's multi-pool allocator, which knows the node of each block. It
// is asked as its controller asks it: with what a node wants and has.
type pool struct {
	*multipool.PoolAllocator
	nodes, claimers []string
	has             []ipamtypes.IPAMPoolSpec
	want            ipamtypes.IPAMPoolSpec
}

func withPool(blocks []netip.Prefix) func() allocator {
	nodes, claimers, has := make([]string, len(blocks)), make([]string, batch), make([]ipamtypes.IPAMPoolSpec, len(blocks))
	for i, c := range blocks {
		nodes[i] = nodeOf(i)
		has[i].Allocated = []ipamtypes.IPAMPoolAllocation{{Pool: "default", CIDRs: []iputil.Prefix{iputil.PrefixFrom(c)}}}
	}
	for k := range claimers {
		claimers[k] = claimer(k)
	}
	want := ipamtypes.IPAMPoolSpec{Requested: []ipamtypes.IPAMPoolRequest{{Pool: "default", Needed: ipamtypes.IPAMPoolDemand{IPv4Addrs: 1}}}}
	return func() allocator {
		p := &pool{PoolAllocator: multipool.NewPoolAllocator(slog.New(slog.DiscardHandler), true, false)}
		must(p.UpsertPool("default", []string{space}, bits, nil, 0))
		p.nodes, p.claimers, p.has, p.want = nodes, claimers, has, want
		return p
	}
}

func (p *pool) ready()         { p.RestoreFinished() }
func (p *pool) release(i int)  { must(p.AllocateToNode(p.nodes[i], ipamtypes.IPAMPoolSpec{})) }
func (p *pool) claim(k int)    { must(p.AllocateToNode(p.claimers[k], p.want)) }
func (p *pool) giveBack(k int) { must(p.AllocateToNode(p.claimers[k], ipamtypes.IPAMPoolSpec{})) }
func (p *pool) restore(i int) {
	if err := p.AllocateToNode(p.nodes[i], p.has[i]); err != nil && err != multipool.ErrAllocatorNotReady {
		panic(err)
	}
}

func (p *pool) taken(i int) bool { return len(p.AllocatedPools(p.nodes[i])) == 1 }

func must(err error) {
	if err != nil {
		panic(err)
	}
}
