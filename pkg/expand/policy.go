// Package expand decides the next step of one node: another block, one fewer, or the next step of a
// handshake. Decide is a pure function from a State to a Plan that the node controller carries out.
//
// It never talks to Kubernetes, reads a clock, logs, or picks an address range.
package expand

import "time"

// Policy is how a node grows and shrinks, for one address family.
type Policy struct {
	// ExpandPercent of capacity in use, above which the node gets another block. 1 to 100.
	ExpandPercent int
	// MinFree is the least number of addresses the node keeps free.
	MinFree int
	// MaxBlocks caps the blocks that are not draining. At least 1.
	MaxBlocks int
	// MaxAddresses caps the published addresses, so that the CiliumNode stays
	// well under etcd's limit for one object. 1 to MostAddresses.
	MaxAddresses int

	// ReclaimDisabled keeps every block until a person requests its return.
	ReclaimDisabled bool
	// ReclaimPercent of the remaining capacity in use, at or below which a
	// block can go. Below ExpandPercent.
	ReclaimPercent int
	// IdleFor is the time that this must hold without interruption, while the pool is not under
	// pressure.
	IdleFor time.Duration
	// PressurePercent: IdleFor shrinks once this share of a pool's blocks is taken: see IdleUnder.
	// 1 to 100; 0: it never does.
	PressurePercent int

	// AckHold is the time that an address acked by the agent waits before it leaves the pool, as an
	// agent can ack before it has restored its pods.
	AckHold time.Duration
	// AckTimeout is the time that a mark waits for the agent's answer before it is withdrawn and
	// set again, as an agent can forget its answer. Well above the agent's update rate.
	AckTimeout time.Duration
}

// MostAddresses bounds Policy.MaxAddresses. etcd refuses a CiliumNode with some 24,000
// addresses; it may have twice MaxAddresses while blocks are replaced, or in two families.
const MostAddresses = 8192

// DefaultPolicy is the policy without flags or pool overrides.
func DefaultPolicy() Policy {
	return Policy{
		ExpandPercent:   80,
		MinFree:         4,
		MaxBlocks:       16,
		MaxAddresses:    4096,
		ReclaimPercent:  50,
		IdleFor:         10 * time.Minute,
		PressurePercent: 90,
		AckHold:         30 * time.Second,
		AckTimeout:      2 * time.Minute,
	}
}

// leastIdle is the share of IdleFor that is left of it in a full pool.
const leastIdle = 10

// IdleUnder is the least idle time of a block to reclaim when taken percent of its pool are taken:
// IdleFor, and above PressurePercent less of it the fuller the pool, down to a tenth. On a cordoned
// node it drops to that tenth at once, as no new pod can need the block again.
//
// It affects when a block leaves, never whether it may: ReclaimPercent and the target
// decide that, and the node still meets them afterwards.
func (p Policy) IdleUnder(taken int, cordoned bool) time.Duration {
	if p.PressurePercent == 0 || taken < p.PressurePercent {
		return p.IdleFor
	}
	least := p.IdleFor / leastIdle
	if free := 100 - taken; free > 0 && !cordoned {
		return max(least, p.IdleFor/time.Duration(100-p.PressurePercent)*time.Duration(free))
	}
	return least
}
