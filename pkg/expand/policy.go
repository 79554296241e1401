// Package expand decides what one node needs: another block, one fewer, or the
// next step of a handshake. Decide is a pure function from what is known to a
// Plan that somebody else carries out.
//
// It never talks to Kubernetes, reads a clock, logs, or picks an address range.
package expand

import "time"

// Policy is how a node grows and shrinks, for one address family.
type Policy struct {
	// ExpandPercent of capacity in use, above which the node gets another
	// block. 1 to 100.
	ExpandPercent int
	// MinFree is how many addresses the node keeps free at least.
	MinFree int
	// MaxBlocks caps the blocks that are not draining. At least 1.
	MaxBlocks int
	// MaxAddresses caps the published addresses, so that the CiliumNode stays
	// well under etcd's limit for one object. At least 1.
	MaxAddresses int

	// ReclaimDisabled keeps every block until asked for by hand.
	ReclaimDisabled bool
	// ReclaimPercent of the remaining capacity in use, at or below which a
	// block can go. Below ExpandPercent.
	ReclaimPercent int
	// IdleFor is how long that must hold on end.
	IdleFor time.Duration

	// AckHold is how long an address acked by the agent waits before it leaves
	// the pool, as an agent can ack before it has restored its pods.
	AckHold time.Duration
	// AckTimeout is how long a mark waits for the agent's answer before it is
	// withdrawn and set again, as an agent can forget its answer. Well above
	// the agent's update rate.
	AckTimeout time.Duration
}

// DefaultPolicy is the policy where nobody says otherwise.
func DefaultPolicy() Policy {
	return Policy{
		ExpandPercent:  80,
		MinFree:        4,
		MaxBlocks:      16,
		MaxAddresses:   4096,
		ReclaimPercent: 50,
		IdleFor:        10 * time.Minute,
		AckHold:        30 * time.Second,
		AckTimeout:     2 * time.Minute,
	}
}
