package invariant

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	ipamoption "github.com/cilium/cilium/pkg/ipam/option"
)

// Stats are counters since Watch.
type Stats struct {
	// Versions observed, by kind.
	Versions map[Kind]int
	// Claims are created blocks; Expansions are the claims of nodes that already had a block of the
	// same family.
	Claims, Expansions int
	// Drains that began; Undrains are drains that ended with the block in service again, Reclaims
	// drains that ended with its object deleted.
	Drains, Undrains, Reclaims int
	// Addresses that were added to pools, removed from them, and marked for release.
	Published, Removed, Marked int
	// AgentChecks is the number of times that agents were asked for their addresses.
	AgentChecks int
	// Gaps is the number of times that versions were missed: an API server that has just started
	// reports no earlier ones, and writes before the watch is back are missed. The state after that
	// is judged, the changes that led to it are not.
	Gaps int
}

// Stats returns the counts so far.
func (c *Checker) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.stats
	s.Versions = maps.Clone(s.Versions)
	return s
}

// String returns the versions observed.
func (s Stats) String() string {
	total := 0
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(s.Versions)) {
		total += s.Versions[k]
		parts = append(parts, fmt.Sprintf("%d of %ss", s.Versions[k], k))
	}
	out := fmt.Sprintf("%d versions seen", total)
	if total > 0 {
		out += ": " + strings.Join(parts, ", ")
	}
	if s.Gaps > 0 {
		out += fmt.Sprintf("; %d gaps", s.Gaps)
	}
	return out
}

// count counts a change; the model is the state before it.
func (s *Stats) count(m *model, c Change) {
	switch c.Kind {
	case KindBlock:
		s.countBlock(m, blockOf(c.Old), blockOf(c.New))
	case KindCiliumNode:
		old, now := m.views[c.Name], newView(c)
		s.Published += len(without(now, old))
		s.Removed += len(without(old, now))
		if now == nil {
			return
		}
		for addr, state := range now.release {
			if state == ipamoption.IPAMMarkForRelease && (old == nil || old.release[addr] != state) {
				s.Marked++
			}
		}
	}
}

func (s *Stats) countBlock(m *model, old, now *block) {
	switch {
	case now == nil && old != nil:
		s.Reclaims++
	case old == nil && now != nil:
		s.Claims++
		if m.holds[holder{now.node, now.cidr.Addr().Is4()}] > 0 {
			s.Expansions++
		}
	case old != nil && now != nil:
		switch {
		case !old.draining && now.draining:
			s.Drains++
		case old.draining && !now.draining && !now.cooling:
			s.Undrains++
		}
	}
}
