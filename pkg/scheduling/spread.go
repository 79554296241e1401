// Package scheduling is the operator's part in scheduling, so that the scheduler binds pods only
// where an address is left for them: the offers of Nodes, pods that no node has addresses for, the
// nodes that should have room for these, the blocks that others return, and the shortage taint. It
// does not run where no family is offered.
//
// It decides on the state of pkg/state, as pkg/expand does for one node. It calls no API server,
// reads no clock, and does not log.
package scheduling

import (
	"cmp"
	"container/heap"
	"slices"

	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// together is the number of pods that a node that grows for unscheduled pods gets before the next
// node grows: a block has addresses for more than one.
const together = 8

// PodGroup are pods that are yet to be scheduled and are alike.
type PodGroup struct {
	Pods int
	// Requests is the number of addresses of each family that each of them requests.
	Requests [2]int
	// Suits are the nodes that they can be scheduled to if these have addresses: indexes
	// of the candidates, ascending.
	Suits []int
}

// Candidate is a node that unscheduled pods can be scheduled to.
type Candidate struct {
	Node string
	// CiliumPools are the Cilium pools, by family, of its room.
	CiliumPools [2]string
	// Returns: its agent returns blocks that stay unused, so it gets none of one family for pods that
	// wait for the other.
	Returns bool
	// Pods is the number of pods that its kubelet still admits.
	Pods int
	// Room is its room of each family.
	Room [2]expand.Room
	// Pools are the pools that it claims blocks from, best first.
	Pools [2][]string
	// PerBlock is the number of addresses in one of its blocks.
	PerBlock [2]int
}

// candidateKey identifies a candidate.
type candidateKey struct {
	node        string
	ciliumPools [2]string
}

func (c *Candidate) key() candidateKey { return candidateKey{c.Node, c.CiliumPools} }

// HasFree reports whether the node has the addresses that a pod requests.
func (c *Candidate) HasFree(requests [2]int) bool {
	for _, f := range ipalloc.Families() {
		if requests[f] > 0 && c.Room[f].Free < requests[f] {
			return false
		}
	}
	return true
}

// FreeBlocks are the free blocks of pools, by name, for each family.
type FreeBlocks [2]map[string]uint64

// SpreadResult assigns unscheduled pods to the nodes that should have room for them.
type SpreadResult struct {
	// Expected is the number of addresses that the pods of each candidate request.
	Expected [][2]int
	// Missing is the number of blocks of each family that the pools of each candidate lack for the
	// pods that are Short.
	Missing [][2]int
	// Offered pods find free addresses, Growing ones find addresses that nodes will get, and Short
	// ones none, as the pools of the nodes that may grow have no free block. The rest suits no node
	// that may grow.
	Offered, Growing, Short int
}

// Spread assigns unscheduled pods to nodes: first free and returning addresses, so that no block is
// claimed for pods that can be scheduled as it is; then addresses that nodes can claim; and last,
// so that these wait for a block, addresses that nodes could claim if their pools had one. Each pod
// counts once. Of the nodes that can grow, the ones with the fewest such pods come first, then the
// ones that admit the most pods. It is a pure function of its inputs.
func Spread(pods []PodGroup, nodes []Candidate, free FreeBlocks) SpreadResult {
	s := spreader{free: FreeBlocks{}, slots: make([]slot, len(nodes))}
	for _, f := range ipalloc.Families() {
		s.free[f] = make(map[string]uint64, len(free[f]))
		for pool, n := range free[f] {
			s.free[f][pool] = n
		}
	}
	for i := range nodes {
		n := &nodes[i]
		s.slots[i] = slot{Candidate: n, admits: n.Pods, room: n.Room}
	}
	// Pods that suit few nodes come first.
	order := slices.Clone(pods)
	slices.SortStableFunc(order, func(a, b PodGroup) int { return cmp.Compare(len(a.Suits), len(b.Suits)) })
	out := SpreadResult{}
	for _, stage := range []struct {
		step  step
		count *int
	}{{asOffered, &out.Offered}, {growing, &out.Growing}, {waiting, &out.Short}} {
		for i := range order {
			n := s.assign(&order[i], stage.step)
			order[i].Pods -= n
			*stage.count += n
		}
	}
	for i := range s.slots {
		out.Expected = append(out.Expected, s.slots[i].expected)
		out.Missing = append(out.Missing, s.slots[i].missing)
	}
	return out
}

// step is the kind of addresses that may be assigned to pods.
type step int

const (
	asOffered step = iota // free addresses
	growing               // addresses that can be taken back or claimed, too
	waiting               // addresses that could be claimed if pools had free blocks, too
)

// spreader is one call of Spread.
type spreader struct {
	free  FreeBlocks
	slots []slot
}

// slot is a candidate, and the rest of its room.
type slot struct {
	*Candidate
	admits, pods int
	room         [2]expand.Room
	expected     [2]int
	missing      [2]int // blocks that no pool has
}

// assign assigns pods to slots, and returns their number. Free addresses go to the slots in order.
// A slot that does not fit does not fit later either: its reach only shrinks.
func (s *spreader) assign(u *PodGroup, step step) int {
	q := slotHeap{}
	for _, i := range u.Suits {
		if p := &s.slots[i]; s.fits(p, u, step) {
			q = append(q, p)
		}
	}
	most := together
	if step == asOffered {
		most = u.Pods
	} else {
		heap.Init(&q)
	}
	rest := u.Pods
	for rest > 0 && len(q) > 0 {
		p := q[0]
		for n := min(rest, most); n > 0 && s.fits(p, u, step); n-- {
			s.take(p, u, step)
			rest--
		}
		switch {
		case step == asOffered:
			q = q[1:]
		case s.fits(p, u, step):
			heap.Fix(&q, 0)
		default:
			heap.Pop(&q)
		}
	}
	return u.Pods - rest
}

// slotHeap is a heap of the slots that pods can be assigned to, the best first.
type slotHeap []*slot

func (q slotHeap) Len() int { return len(q) }
func (q slotHeap) Less(i, j int) bool {
	a := q[i]
	b := q[j]
	return cmp.Or(cmp.Compare(a.pods, b.pods), cmp.Compare(b.admits, a.admits), cmp.Compare(a.Node, b.Node)) < 0
}
func (q slotHeap) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *slotHeap) Push(p any)   { *q = append(*q, p.(*slot)) }
func (q *slotHeap) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}

// fits reports whether a slot has, or can get, the addresses that one more pod requests.
func (s *spreader) fits(p *slot, u *PodGroup, step step) bool {
	if p.admits <= 0 {
		return false
	}
	for _, f := range ipalloc.Families() {
		if u.Requests[f] > 0 && s.reach(p, f, step) < u.Requests[f] {
			return false
		}
	}
	return true
}

// reach is the number of addresses of a family that a slot has or can get.
func (s *spreader) reach(p *slot, f ipalloc.Family, step step) int {
	room := &p.room[f]
	if step == asOffered {
		return room.Free
	}
	blocks := room.Blocks
	if len(p.Pools[f]) == 0 {
		blocks = 0
	} else if step == growing {
		blocks = s.freeFor(p, f, blocks)
	}
	return room.Free + room.Back + min(blocks*p.PerBlock[f], room.Addresses)
}

// freeFor is the number of free blocks in the pools of a slot, up to most.
func (s *spreader) freeFor(p *slot, f ipalloc.Family, most int) int {
	n := uint64(0)
	for _, pool := range p.Pools[f] {
		if n += min(s.free[f][pool], uint64(most)); n >= uint64(most) {
			return most
		}
	}
	return int(n)
}

// take assigns one pod to a slot, and claims for it if needed: it fits.
func (s *spreader) take(p *slot, u *PodGroup, step step) {
	p.admits--
	p.pods++
	for _, f := range ipalloc.Families() {
		room := &p.room[f]
		for u.Requests[f] > 0 && room.Free < u.Requests[f] {
			s.addBlock(p, f)
		}
		room.Free -= u.Requests[f]
		if step != waiting || !p.Returns {
			p.expected[f] += u.Requests[f]
		}
	}
}

// addBlock adds to a slot the blocks that come back to it, or one more.
func (s *spreader) addBlock(p *slot, f ipalloc.Family) {
	room := &p.room[f]
	if room.Back > 0 {
		room.Free += room.Back
		room.Back = 0
		return
	}
	i := slices.IndexFunc(p.Pools[f], func(pool string) bool { return s.free[f][pool] > 0 })
	if i < 0 {
		p.missing[f]++
	} else {
		s.free[f][p.Pools[f][i]]--
	}
	n := min(p.PerBlock[f], room.Addresses)
	room.Free += n
	room.Addresses -= n
	room.Blocks--
}
