package whole

import (
	"net/netip"
	"slices"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/test/invariant"
)

// Moment is when something became of a block.
type Moment struct {
	CIDR netip.Prefix
	What Happening
	At   time.Time
}

// Happening is what became of it.
type Happening int

// What becomes of a block.
const (
	IsTold   Happening = iota // a node's agent is told it
	NotTold                   // and told it no more
	IsMade                    // its object was created
	IsUnmade                  // and deleted: anybody may have it
)

func (r *Rules) note(c invariant.Change, cidr netip.Prefix, what Happening) {
	r.moments = append(r.moments, Moment{cidr, what, c.Received})
}

// Timeline is what became of CIDRs since it began.
func (r *Rules) Timeline() []Moment {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.moments)
}
