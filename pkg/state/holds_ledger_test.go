package state_test

import (
	"fmt"
	"maps"
	"net/netip"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/exclude"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/harness/holds"
)

func (f *largeFleet) ledgerCalls() map[string]holds.Call {
	calls := f.ledgerReads()
	maps.Copy(calls, f.ledgerChanges())
	return calls
}

func (f *largeFleet) ledgerReads() map[string]holds.Call {
	cuts := f.cuts
	return map[string]holds.Call{
		"Ready":                          f.each(func(int) { f.Ready() }),
		"SetReady":                       f.each(func(int) { f.SetReady() }),
		"Shown":                          f.each(func(i int) { f.Shown(f.block(i).UID) }),
		"Block":                          f.each(func(i int) { f.Block(f.block(i).CIDR) }),
		"NodeBlocks":                     f.each(func(i int) { f.NodeBlocks(f.node(i)) }),
		"CIDRs":                          f.few(func(int) { f.CIDRs() }),
		"CiliumNodes":                    f.few(func(int) { f.CiliumNodes() }),
		"Nodes":                          f.few(func(int) { f.Nodes() }),
		"Size":                           f.each(func(i int) { f.Size(poolName(i % len(cuts))) }),
		"MovingOff":                      f.each(func(i int) { f.MovingOff(poolName(i % len(cuts))) }),
		"MovesOff":                       f.each(func(i int) { f.MovesOff(f.node(i), poolName(i%len(cuts))) }),
		"Free":                           f.each(func(i int) { f.Free(cuts[i%len(cuts)]) }),
		"Overlaps":                       f.each(func(i int) { f.Overlaps(f.block(i).CIDR) }),
		"Overlaps a pool":                f.each(func(i int) { f.Overlaps(cuts[i%len(cuts)].Ranges[0]) }),
		"UnknownClaims":                  f.each(func(i int) { f.UnknownClaims(f.node(i)) }),
		"Facts":                          f.each(func(i int) { f.Facts(f.node(i)) }),
		"Turnover":                       f.each(func(int) { f.Turnover() }),
		"PoolBlocks":                     {N: len(cuts), Hold: f.longestPart},
		"NotRunning":                     f.few(func(int) { f.part.NotRunning(ipalloc.IPv6, poolName(0)) }),
		"CiliumNode":                     f.each(func(i int) { f.CiliumNode(f.node(i)) }),
		"CiliumNodeAt":                   f.each(func(i int) { f.CiliumNodeAt(f.object(i)) }),
		"LastCiliumNode":                 f.each(func(i int) { f.LastCiliumNode(f.node(i)) }),
		"Fenced":                         f.each(func(i int) { f.Fenced(f.block(i)) }),
		"NamedElsewhere":                 f.each(func(i int) { f.NamedElsewhere(f.block(i).Node, f.block(i).CIDR) }),
		"ListedFor":                      f.few(func(int) { f.ListedFor("default") }),
		"HeldElsewhere":                  f.each(func(i int) { f.HeldElsewhere(f.node(i), []netip.Prefix{f.block(i).CIDR}) }),
		"Excluded":                       f.each(func(i int) { f.Excluded(f.block(i).CIDR) }),
		"Excluded of all":                f.few(func(int) { f.Excluded(netip.MustParsePrefix("192.168.0.0/16")) }),
		"ExcludedFrom":                   f.each(func(i int) { f.ExcludedFrom(f.pool(i)) }),
		"SharedWith":                     f.each(func(i int) { f.SharedWith(f.pool(i)) }),
		"HeldIn":                         f.each(func(i int) { f.HeldIn(f.block(i).CIDR) }),
		"HolderOf":                       f.each(func(i int) { f.HolderOf(exclude.Range{CIDR: f.block(i).CIDR}) }),
		"MissingCiliumNodes":             f.few(func(int) { f.part.MissingCiliumNodes(f.listed, f.next()) }),
		"Withholders":                    f.few(func(int) { f.part.Withholders(f.cuts[0]) }),
		"NamedElsewhere of another node": f.few(func(i int) { f.part.NamedElsewhere("another", f.part.block(i).CIDR) }),
	}
}

// longestPart returns the longest time from one block of a pool to the next, as the iteration may
// hold the lock for it.
func (f *largeFleet) longestPart(i int) (longest time.Duration) {
	last := time.Now()
	for range f.PoolBlocks(poolName(i)) {
		longest = max(longest, time.Since(last))
		last = time.Now()
	}
	return max(longest, time.Since(last))
}

func (f *largeFleet) ledgerChanges() map[string]holds.Call {
	var claimed netip.Prefix
	claim := func(i int) {
		cidr, _, err := f.Claim(ipalloc.IPv4, f.node(i), "", f.all)
		if err != nil {
			panic(err)
		}
		claimed = cidr
	}
	forget := func(i int) { f.Forget(f.node(i), claimed) }
	// A deleted block cannot come back under its UID.
	back := func(i int) {
		at := i * 7919 % len(f.blocks)
		b := f.blocks[at]
		b.UID, b.ResourceVersion = types.UID("uid-"+f.next()), fmt.Sprint(f.version)
		f.blocks[at] = b
		f.Upsert(b)
	}
	n := min(tried, len(f.nodes))
	stored := func(i int) *ciliumnode.View { return f.nodes[i%len(f.nodes)] }
	return map[string]holds.Call{
		"Upsert": f.each(func(i int) {
			b := f.block(i)
			b.ResourceVersion = f.next()
			f.Upsert(b)
		}),
		"Assume":                 f.each(func(i int) { f.Assume(f.block(i)) }),
		"Assume after an outage": {N: n, Do: func(i int) { f.Assume(f.block(i)) }, Undo: func(i int) { f.MarkUnknown(f.node(i), f.block(i).CIDR) }},
		"Remove":                 {N: n, Do: func(i int) { f.Remove(f.block(i)) }, Undo: back},
		"Claim":                  {N: n, Do: claim, Undo: forget},
		"Forget": {N: n, Hold: func(i int) time.Duration {
			claim(i)
			begin := time.Now()
			forget(i)
			return time.Since(begin)
		}},
		"Refuse":           f.each(func(i int) { f.Refuse(f.node(i), f.address(i + 1)[0]) }),
		"MarkUnknown":      {N: n, Do: func(i int) { f.MarkUnknown(f.node(i), f.block(i).CIDR) }, Undo: func(i int) { f.Forget(f.node(i), f.block(i).CIDR) }},
		"MarkRestored":     f.each(func(i int) { f.MarkRestored(f.node(i), "uid") }),
		"MarkFenced":       f.each(func(i int) { f.MarkFenced(f.block(i)) }),
		"UpsertCiliumNode": f.each(func(i int) { f.UpsertCiliumNode(stored(i).At(f.next())) }),
		"RemoveCiliumNode": {N: n, Do: func(i int) { f.RemoveCiliumNode(stored(i).At(f.next())) }, Undo: func(i int) { f.UpsertCiliumNode(stored(i).At(f.next())) }},
		"ForgetCiliumNode": {N: n, Hold: func(i int) time.Duration {
			f.RemoveCiliumNode(stored(i).At(f.next()))
			begin := time.Now()
			f.ForgetCiliumNode(f.node(i))
			return time.Since(begin)
		}, Undo: func(i int) { f.UpsertCiliumNode(stored(i).At(f.next())) }},
		"Exclude": {N: n, Do: func(i int) {
			f.Exclude(exclude.Claimant{Kind: exclude.Node, Name: f.node(i)}, f.address(i+1+len(f.names)))
		}, Undo: func(i int) { f.Exclude(exclude.Claimant{Kind: exclude.Node, Name: f.node(i)}, f.address(i+1)) }},
		"OfferToServices":   {N: n, Do: func(i int) { f.OfferToServices("lb", f.address(i+1)) }, Undo: func(int) { f.OfferToServices("lb", nil) }},
		"ExcludeCiliumNode": f.each(func(i int) { f.ExcludeCiliumNode(f.node(i)) }),
	}
}
