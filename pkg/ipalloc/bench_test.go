package ipalloc

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"testing"
)

// big are pools with room for 2^20 blocks and more: a /8 cut into /28 and a /48 cut into /122.
var big = map[Family]Cut{
	IPv4: {Ranges: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, BlockBits: 28},
	IPv6: {Ranges: []netip.Prefix{netip.MustParsePrefix("2001:db8::/48")}, BlockBits: 122},
}

// perFamilyAndSize runs bench for 10^3 to 10^6 blocks of each family, adjacent if dense, or
// else anywhere in the pool.
func perFamilyAndSize(b *testing.B, dense bool, bench func(b *testing.B, f Family, blocks []Held)) {
	for _, f := range Families() {
		for _, n := range []int{1_000, 10_000, 100_000, 1_000_000} {
			b.Run(fmt.Sprintf("%s/%d", f, n), func(b *testing.B) {
				b.ReportAllocs()
				bench(b, f, someBlocks(f, n, dense))
			})
		}
	}
}

// someBlocks returns n blocks of the family's big pool in random order.
func someBlocks(f Family, n int, dense bool) []Held {
	rnd := rand.New(rand.NewPCG(1, 2))
	_, base := split(big[f].Ranges[0])
	blocks := make([]Held, n)
	for i := range blocks {
		p := base
		for bits := big[f].BlockBits; int(p.bits) < bits; {
			side := uint8(0)
			if left := bits - int(p.bits) - 1; dense && left < 20 {
				side = uint8(i>>left) & 1
			} else if !dense {
				side = uint8(rnd.Uint32()) & 1
			}
			p = p.extend(1, side)
		}
		blocks[i] = Held{p.cidr(f), Owner{"pool", fmt.Sprintf("node-%d", i/16), InService}}
	}
	rnd.Shuffle(n, func(i, j int) { blocks[i], blocks[j] = blocks[j], blocks[i] })
	return blocks
}

func restored(blocks []Held) *Space {
	s := NewSpace()
	for _, h := range blocks {
		_ = s.Restore(h)
	}
	s.SetReady()
	return s
}

// batch is the number of operations that are timed before the state is restored.
const batch = 1000

// BenchmarkClaim claims batches beside n held blocks. IPv4's last size almost fills its pool.
func BenchmarkClaim(b *testing.B) {
	perFamilyAndSize(b, true, func(b *testing.B, f Family, blocks []Held) {
		s, claimed := restored(blocks), make([]netip.Prefix, 0, batch)
		for b.Loop() {
			if len(claimed) == batch {
				b.StopTimer()
				for _, c := range claimed {
					s.Release(c)
				}
				claimed = claimed[:0]
				b.StartTimer()
			}
			c, err := s.Claim(big[f], Owner{"pool", "node", InService}, nil)
			if err != nil {
				b.Fatal(err)
			}
			claimed = append(claimed, c)
		}
	})
}

// BenchmarkRelease releases random blocks among n held ones.
func BenchmarkRelease(b *testing.B) {
	perFamilyAndSize(b, true, func(b *testing.B, _ Family, blocks []Held) {
		s, i := restored(blocks), 0
		for b.Loop() {
			if i == batch {
				b.StopTimer()
				for _, h := range blocks[:batch] {
					_ = s.Restore(h)
				}
				i = 0
				b.StartTimer()
			}
			s.Release(blocks[i].CIDR)
			i++
		}
	})
}

// BenchmarkRestore restores n blocks in random order into an empty Space, and
// reports the time and the memory kept for each.
func BenchmarkRestore(b *testing.B) {
	for name, dense := range map[string]bool{"dense": true, "scattered": false} {
		b.Run(name, func(b *testing.B) {
			perFamilyAndSize(b, dense, func(b *testing.B, _ Family, blocks []Held) {
				var s *Space
				before := heap()
				for b.Loop() {
					s = restored(blocks)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(blocks)), "ns/block")
				b.ReportMetric(float64(heap()-before)/float64(len(blocks)), "kept-B/block")
				runtime.KeepAlive(s)
				runtime.KeepAlive(blocks)
			})
		})
	}
}

// heap returns the bytes in use after a collection.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// BenchmarkOverlapping looks up blocks that overlap a held one; there are none.
func BenchmarkOverlapping(b *testing.B) {
	perFamilyAndSize(b, true, func(b *testing.B, _ Family, blocks []Held) {
		s, i := restored(blocks), 0
		for b.Loop() {
			if s.Overlapping(blocks[i].CIDR) != nil {
				b.Fatal("overlap")
			}
			i = (i + 1) % len(blocks)
		}
	})
}

// BenchmarkFree counts in a pool with n scattered blocks, the slow case.
func BenchmarkFree(b *testing.B) {
	perFamilyAndSize(b, false, func(b *testing.B, f Family, blocks []Held) {
		s := restored(blocks)
		for b.Loop() {
			s.Free(big[f])
		}
	})
}
