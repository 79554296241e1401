package expand

import (
	"net/netip"
	"time"
)

// Budget is what a node may begin at this moment, beside the windows in its State. Nodes share it, and so do
// the families and Cilium pools of a node. The zero Budget allows no reclaim, and holds back nothing else.
type Budget struct {
	// Reclaims is the number of reclaims that may start.
	Reclaims int
	// ReclaimDelay delays reclaims, also within that number.
	ReclaimDelay Obstacle
	// Delays postpone the requests of blocks in service.
	Delays map[netip.Prefix]Obstacle
	// Unrequested are the draining blocks with a request that does not count: they drain as idle ones do.
	Unrequested map[netip.Prefix]bool
	// OtherDrains: a block of another family or Cilium pool of the node drains. OtherParks: this
	// decision is one of several for the node, and an earlier one parks a block.
	OtherDrains, OtherParks bool
}

// Postpone delays the request of a block in service.
func (b *Budget) Postpone(block netip.Prefix, delay Obstacle) { remember(&b.Delays, block, delay) }

// Unrequest keeps the request of a draining block from counting.
func (b *Budget) Unrequest(block netip.Prefix) { remember(&b.Unrequested, block, true) }

// limit returns a block as the budget allows it to leave.
func (b *Budget) limit(block *Block) *Block {
	delay, delayed := b.Delays[block.CIDR]
	if !delayed && !b.Unrequested[block.CIDR] {
		return block
	}
	limited := *block
	if delayed {
		limited.Delay = delay
	}
	if b.Unrequested[block.CIDR] {
		limited.Request = None
	}
	return &limited
}

// MostReclaims bounds the number of reclaims that Decide starts with any Budget.
func MostReclaims(now time.Time, p Policy, s *State, m Memory) int {
	if p.ReclaimDisabled {
		return 0
	}
	idleFor := p.IdleUnder(s.PoolTaken, s.Cordoned)
	if idleFor <= 0 {
		return len(s.Blocks)
	}
	due := len(s.Recall)
	for _, begin := range m.IdleSince {
		if now.Sub(begin) >= idleFor {
			due++
		}
	}
	return min(due, len(s.Blocks))
}
