package exclude

import (
	"cmp"
	"net/netip"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// Ask is the addresses that an object asks for, and need not get.
type Ask struct {
	By Claimant
	// Since is the creation of the object.
	Since time.Time
	// CIDRs are sorted and unique, without host bits.
	CIDRs []netip.Prefix
}

// Compare sorts asks by the age of their objects, the oldest first.
func (a Ask) Compare(other Ask) int {
	return cmp.Or(a.Since.Compare(other.Since), a.By.compare(other.By))
}

// askedPart is the part of the blocks of a pool's CIDR that all asks together may withhold: one of
// so many.
const askedPart = 4

// Granted returns the objects that withhold the addresses they ask for from a CIDR of a pool. The requests
// are sorted. Together these objects take at most a quarter of the blocks: anybody may create a Service,
// and must not take a pool from all nodes. An object that asks for more blocks than older ones
// leave withholds none of the CIDR.
func Granted(cidr netip.Prefix, blockBits int, requests []Ask) map[Claimant]bool {
	granted := map[Claimant]bool{}
	taken := ipalloc.NewSpace()
	room := ipalloc.Cut{Ranges: []netip.Prefix{cidr}, BlockBits: blockBits}.Total() / askedPart
	for _, ask := range requests {
		if room == 0 {
			break
		}
		if n, fits := take(taken, blocksOf(ask.CIDRs, cidr, blockBits), blockBits, room); fits {
			granted[ask.By] = true
			room -= n
		}
	}
	return granted
}

// blocksOf returns the parts of a pool's CIDR that share addresses with cidrs, widened to blocks.
func blocksOf(cidrs []netip.Prefix, cidr netip.Prefix, blockBits int) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range cidrs {
		if p.Overlaps(cidr) {
			p = ipalloc.Narrower(p, cidr)
			out = append(out, netip.PrefixFrom(p.Addr(), min(p.Bits(), blockBits)).Masked())
		}
	}
	return out
}

// take reserves the parts of a pool that are not taken yet, if they have at most room blocks. It
// returns their number.
func take(taken *ipalloc.Space, parts []netip.Prefix, blockBits int, room uint64) (blocks uint64, fits bool) {
	for i, p := range parts {
		blocks += taken.Free(ipalloc.Cut{Ranges: []netip.Prefix{p}, BlockBits: blockBits})
		if blocks > room {
			for _, undone := range parts[:i] {
				taken.Unreserve(undone)
			}
			return 0, false
		}
		taken.Reserve(p)
	}
	return blocks, true
}
