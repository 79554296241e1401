package whole

import (
	"net/netip"
	"slices"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/test/invariant"
)

// Moment is when something happened to a block.
type Moment struct {
	CIDR netip.Prefix
	What Happening
	At   time.Time
}

// Happening is an event of a block.
type Happening int

// Events of a block.
const (
	IsAssigned   Happening = iota // it is assigned to a node's agent
	IsUnassigned                  // it is no longer assigned
	IsCreated                     // its object is created
	IsDeleted                     // its object is deleted: any node may claim it
)

func (r *Rules) note(c invariant.Change, cidr netip.Prefix, what Happening) {
	r.moments = append(r.moments, Moment{cidr, what, c.Received})
}

// Timeline returns the events of CIDRs so far.
func (r *Rules) Timeline() []Moment {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.moments)
}
