package whole

import (
	"maps"
	"slices"

	"github.com/cilium-pool/cilium-pool-operator/test/invariant"
)

// Violations returns all violations so far, oldest first.
func (r *Rules) Violations() []invariant.Violation {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.broken)
}

// Writes returns the number of changes of lists, by writer.
func (r *Rules) Writes() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.writes)
}

// Taken returns the number of CIDRs that were removed from lists of remaining objects.
func (r *Rules) Taken() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.taken
}

// KnowsWriters reports whether the writer of a list is known.
func (r *Rules) KnowsWriters() bool { return r.carrier.KnowsWriters() }

// Asked returns the number of times that agents were asked for their addresses.
func (r *Rules) Asked() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asked
}
