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

// Writes returns how often lists changed, by writer.
func (r *Rules) Writes() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.writes)
}

// Taken returns how many CIDRs were removed from lists whose object stayed.
func (r *Rules) Taken() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.taken
}

// KnowsWriters reports whether the writer of a list is known.
func (r *Rules) KnowsWriters() bool { return r.carrier.KnowsWriters() }

// Asked returns how often agents were asked what they hold.
func (r *Rules) Asked() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asked
}
