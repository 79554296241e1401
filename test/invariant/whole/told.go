package whole

import (
	"maps"
	"slices"

	"github.com/cilium-pool/cilium-pool-operator/test/invariant"
)

// Violations are all rules seen broken so far, oldest first.
func (r *Rules) Violations() []invariant.Violation {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.broken)
}

// Writes are how often lists changed, by who wrote.
func (r *Rules) Writes() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.writes)
}

// Taken is how many CIDRs were taken off lists whose object stayed.
func (r *Rules) Taken() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.taken
}

// KnowsWriters says whether it can be told who wrote a list.
func (r *Rules) KnowsWriters() bool { return r.carrier.KnowsWriters() }

// Asked is how often agents were asked what they hold.
func (r *Rules) Asked() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asked
}
