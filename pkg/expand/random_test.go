package expand

import (
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// dice returns a number from 0 to n-1. Random tests use random ones, the fuzzer its bytes.
type dice func(n int) int

func seeded(seed uint64) dice {
	r := rand.New(rand.NewPCG(seed, 0))
	return r.IntN
}

func bytesDice(data []byte) dice {
	return func(n int) int {
		if len(data) == 0 || n < 2 {
			return 0
		}
		b := int(data[0])
		data = data[1:]
		return b % n
	}
}

// percent returns true in p of 100 cases.
func (d dice) percent(p int) bool { return d(100) < p }

func oneOf[T any](d dice, of ...T) T { return of[d(len(of))] }

func (d dice) seconds(n int) time.Duration { return time.Duration(d(n)) * time.Second }

// policy returns a random valid policy.
func (d dice) policy() Policy {
	expand := 1 + d(100)
	if d.percent(70) {
		expand = 50 + d(51)
	}
	p := Policy{
		ExpandPercent:   expand,
		ReclaimPercent:  d(expand),
		MinFree:         d(6),
		MaxBlocks:       1 + d(8),
		MaxAddresses:    oneOf(d, 8+d(40), 4096),
		ReclaimDisabled: d.percent(5),
		IdleFor:         d.seconds(60),
		AckHold:         d.seconds(30),
		AckTimeout:      10*time.Second + d.seconds(60),
	}
	return p
}

func (d dice) limits() Limits {
	var l Limits
	if d.percent(15) {
		l.MinAllocate = d(30)
	}
	if d.percent(15) {
		l.PreAllocate = d(12)
	}
	if d.percent(15) {
		l.MaxAllocate = d(40)
	}
	if d.percent(15) {
		l.MaxAboveWatermark = d(10)
	}
	return l
}

var (
	grid4    = netip.MustParseAddr("10.0.0.0")
	grid6    = netip.MustParseAddr("fd00::")
	requests = []Reason{Deleted, DrainRequested, CIDRDraining, PoolDeleted, NodeUnselected}
	statuses = []ReleaseStatus{Marked, Ready, DoNotRelease, Released}
)

// slot returns the i-th place for a block on the grid, 16 addresses apart.
func slot(f ipalloc.Family, i int) netip.Addr {
	if f == ipalloc.IPv6 {
		raw := grid6.As16()
		raw[14], raw[15] = byte(i>>4), byte(i<<4)
		return netip.AddrFrom16(raw)
	}
	raw := grid4.As4()
	raw[2], raw[3] = byte(i>>4), byte(i<<4)
	return netip.AddrFrom4(raw)
}

// allOf returns all addresses of a block.
func allOf(c netip.Prefix) []netip.Addr {
	var out []netip.Addr
	for a := c.Addr(); c.Contains(a); a = a.Next() {
		out = append(out, a)
	}
	return out
}

// newBlock returns a block of 4, 8 or 16 addresses at the i-th place.
func (d dice) newBlock(f ipalloc.Family, i int) Block {
	c := netip.PrefixFrom(slot(f, i), f.Bits()-2-d(3))
	b := Block{CIDR: c, Usable: allOf(c)}
	if d.percent(70) {
		b.Usable = inner(c)
	}
	if d.percent(10) {
		b.Usable = slices.DeleteFunc(b.Usable, func(netip.Addr) bool { return d.percent(30) })
	}
	return b
}

// block returns a random block in any phase.
func (d dice) block(f ipalloc.Family, i int) Block {
	b := d.newBlock(f, i)
	b.Phase = oneOf(d, ipalloc.InService, ipalloc.InService, ipalloc.InService, ipalloc.Draining, ipalloc.CoolingDown)
	switch b.Phase {
	case ipalloc.Draining:
		b.Reason = oneOf(d, Reclaim, Reclaim, Deleted, CIDRDraining)
	case ipalloc.CoolingDown:
		b.Reason = oneOf(d, Returned, NodeGone)
		b.CooldownUntil = noon.Add(d.seconds(120) - time.Minute)
	}
	if d.percent(15) {
		b.Request = oneOf(d, requests...)
	}
	b.Conflict, b.Pinned = d.percent(4), d.percent(5)
	b.Frozen = d.percent(4)
	b.Unwritable = d.percent(6)
	b.Undone = b.Phase == ipalloc.CoolingDown && d.percent(20)
	return b
}

// state returns an arbitrary state within State's contract, and a budget for it.
func (d dice) state() (State, Budget) {
	s := State{
		Node: "n1", Family: oneOf(d, ipalloc.IPv4, ipalloc.IPv4, ipalloc.IPv6), Gone: d.percent(3),
		Pool: map[netip.Addr]string{}, Used: map[netip.Addr]string{}, Release: map[netip.Addr]ReleaseStatus{},
		AgentSettled: !d.percent(20),
	}
	budget := Budget{Reclaims: d(4)}
	s.AgentReady = s.AgentSettled || d.percent(50)
	s.Limits = d.limits()
	s.Pins = oneOf(d, 0, 0, 0, 0, d(3))
	var addrs []netip.Addr
	for i := range d(8) {
		if d.percent(20) {
			continue
		}
		b := d.block(s.Family, i)
		addrs = append(addrs, allOf(b.CIDR)...)
		d.fill(&s, &b)
		s.Blocks = append(s.Blocks, b)
		if d.percent(3) { // an inner block with an overlap, younger or older
			nested := d.block(s.Family, i)
			oneOf(d, &nested, &s.Blocks[len(s.Blocks)-1]).Conflict = true
			nested.CIDR = netip.PrefixFrom(b.CIDR.Addr(), b.CIDR.Bits()+1)
			nested.Usable = slices.DeleteFunc(nested.Usable, func(a netip.Addr) bool { return !nested.CIDR.Contains(a) })
			s.Blocks = append(s.Blocks, nested)
		}
	}
	foreign := allOf(netip.PrefixFrom(slot(s.Family, 99), s.Family.Bits()-2))
	for _, a := range foreign {
		if d.percent(10) {
			s.Pool[a] = ""
		}
	}
	addrs = append(addrs, foreign...)
	d.occupy(&s, addrs)
	if d.percent(30) {
		d.offer(&s)
	}
	s.EntriesUnwritable = len(s.Blocks) > 0 && s.Blocks[0].Unwritable
	return s, budget
}

// offer makes the Node offer its addresses: bound pods request some, and others are still to be
// scheduled there.
func (d dice) offer(s *State) {
	s.Offers, s.Expected, s.Scarce = true, oneOf(d, 0, d(4), d(40)), d.percent(30)
	for i := range s.Blocks {
		if d.percent(20) {
			s.Recall = append(s.Recall, s.Blocks[i].CIDR)
		}
	}
	for i := range s.Pods {
		s.Pods[i].Requests[s.Family] = uint16(oneOf(d, 0, 1, 1, 1))
		if len(s.Pods[i].IPs) > 0 { // a pod that requests several counts as that many once it has one
			s.Pods[i].Requests[s.Family] += uint16(oneOf(d, 0, 0, 0, 2))
		}
	}
}

// fill publishes addresses of b: all, some or none.
func (d dice) fill(s *State, b *Block) {
	share := oneOf(d, 0, 50, 100)
	for _, a := range allOf(b.CIDR) {
		_, usable := slices.BinarySearchFunc(b.Usable, a, netip.Addr.Compare)
		if usable && d.percent(share) || !usable && d.percent(2) {
			s.Pool[a] = oneOf(d, "", "", "", "", "", "", "", "", "", "default/kept")
			b.Listed = true
		}
	}
	b.Listed = b.Listed || d.percent(5)
}

// occupy assigns users and entries to addresses.
func (d dice) occupy(s *State, addrs []netip.Addr) {
	busy, entries := oneOf(d, 0, 10, 50, 90), oneOf(d, 0, 0, 20, 60)
	for i, a := range addrs {
		if _, published := s.Pool[a]; d.percent(busy) && (published || d.percent(5)) {
			name := "default/pod-" + string(rune('a'+i%26))
			switch d(8) {
			case 0:
				s.Used[a] = oneOf(d, "router", "health", "ingress [restored]", "")
			case 1:
				s.Used[a] = name + restored
			case 2:
				s.Pods = append(s.Pods, Pod{Name: name, IPs: []netip.Addr{a}})
			case 3:
				s.Own = append(s.Own, a)
			default:
				s.Used[a] = name
				s.Pods = append(s.Pods, Pod{Name: name, IPs: []netip.Addr{a}})
			}
		}
		if d.percent(entries) {
			s.Release[a] = oneOf(d, statuses...)
		}
	}
	for range d(12) {
		s.Pods = append(s.Pods, Pod{Name: "default/waiting-" + string(rune('a'+d(26))), Seen: noon.Add(-time.Duration(d(300)) * time.Second)})
	}
}

// memory returns an arbitrary memory from before noon.
func (d dice) memory(s State) Memory {
	var m Memory
	for range d(4) {
		m.IdleSince = append(m.IdleSince, noon.Add(-d.seconds(120)))
	}
	slices.SortFunc(m.IdleSince, time.Time.Compare)
	for _, a := range slices.SortedFunc(maps.Keys(s.Release), netip.Addr.Compare) {
		if d.percent(30) {
			continue
		}
		if m.MarkedSince == nil {
			m.MarkedSince, m.AckedSince = map[netip.Addr]time.Time{}, map[netip.Addr]time.Time{}
		}
		oneOf(d, m.MarkedSince, m.AckedSince)[a] = noon.Add(-d.seconds(120))
	}
	for _, b := range s.Blocks {
		if d.percent(10) {
			remember(&m.AwaitingPodsSince, b.CIDR, noon.Add(-d.seconds(900)))
		}
	}
	return m
}

func copyState(s State) State {
	s.Blocks = slices.Clone(s.Blocks)
	for i := range s.Blocks {
		s.Blocks[i].Usable = slices.Clone(s.Blocks[i].Usable)
	}
	s.Pool, s.Used, s.Release = maps.Clone(s.Pool), maps.Clone(s.Used), maps.Clone(s.Release)
	s.Own, s.Pods = slices.Clone(s.Own), slices.Clone(s.Pods)
	for i := range s.Pods {
		s.Pods[i].IPs = slices.Clone(s.Pods[i].IPs)
	}
	if s.BlockAssignment != nil {
		whole := *s.BlockAssignment
		whole.Assigned = slices.Clone(whole.Assigned)
		s.BlockAssignment = &whole
	}
	return s
}

func copyMemory(m Memory) Memory {
	return Memory{
		IdleSince:         slices.Clone(m.IdleSince),
		MarkedSince:       maps.Clone(m.MarkedSince),
		AckedSince:        maps.Clone(m.AckedSince),
		AwaitingPodsSince: maps.Clone(m.AwaitingPodsSince),
	}
}
