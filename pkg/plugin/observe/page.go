package observe

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cli"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/list"
	"github.com/cilium-pool/cilium-pool-operator/pkg/suggest"
)

// mostNodes is the number of nodes that the page names.
const mostNodes = 20

// section is a part of the page.
type section struct {
	Title string
	Lines []string
	Head  []string
	Rows  [][]any
}

func (s *section) line(format string, args ...any) {
	s.Lines = append(s.Lines, fmt.Sprintf(format, args...))
}

// sections are the page.
func (r *report) sections() []section {
	now := section{Title: "Now"}
	now.line("%s", r.assigner())
	now.line("%s have %s, each a route.", suggest.Count(r.Nodes, "node"), suggest.Count(r.Routes, r.unit()))
	r.each(func(f ipalloc.Family) {
		addresses := r.Held.of(f)
		used := r.Used.of(f)
		now.line("%s: nodes hold %d addresses, %d are in use (%s), %d are idle.", f, addresses, used, cli.Percent(used, addresses), addresses-used)
	})
	pools := section{Title: "Ranges", Head: []string{"Name", "Family", "CIDRs", "Nodes", "Held", "Free", "Full", "Used"}}
	for _, p := range r.Pools {
		free := cli.Many(uint64(p.Free))
		full := fmt.Sprintf("%d%%", p.Full)
		if isRestUnknown(p) {
			free = "-"
			full = "-"
		}
		pools.Rows = append(pools.Rows, []any{
			p.Pool, p.Family, suggest.Few(p.CIDRs), p.Nodes, fmt.Sprintf("%d/%s", p.Blocks.Held(), cli.Many(uint64(p.Assignable))),
			free, full, cli.Fraction(p.Used, p.Addresses),
		})
	}
	full := section{Title: "Nodes with less than a tenth of their addresses free", Head: []string{"Node", "Family", "Used", "Held"}}
	for _, n := range r.NearlyFull[:min(len(r.NearlyFull), mostNodes)] {
		full.Rows = append(full.Rows, []any{n.Node, n.Family, n.Used, n.Held})
	}
	rest := len(r.NearlyFull) - len(full.Rows)
	if rest > 0 {
		full.line("The fullest, and %d more.", rest)
	} else if len(full.Rows) == 0 {
		full.line("None.")
	}
	parts := []section{now, pools, full}
	if r.WhatIf != nil {
		parts = append(parts, r.then())
	}
	return append(parts, r.way())
}

// way is the part about how to come to this operator.
func (r *report) way() section {
	if r.Served {
		return r.present()
	}
	return r.move()
}

func (r *report) assigner() string {
	if r.Served {
		return fmt.Sprintf("cilium-pool-operator assigns addresses, in %s mode.", r.Mode)
	}
	return fmt.Sprintf("Cilium assigns addresses in %s mode, as %s says.", r.Mode, r.ModeBy)
}

// unit names a CIDR of a node.
func (r *report) unit() string {
	if r.Served {
		return "block"
	}
	return "range"
}

// isRestUnknown reports whether a range is made of what nodes hold: its free part is not known.
func isRestUnknown(p list.PoolRow) bool {
	return p.Free == 0 && !slices.ContainsFunc(p.CIDRs, func(c string) bool { return !strings.HasSuffix(c, "(cordoned)") })
}

// each calls visit for each family that nodes have.
func (r *report) each(visit func(ipalloc.Family)) {
	for _, f := range ipalloc.Families() {
		if r.Held.of(f) > 0 {
			visit(f)
		}
	}
}

func (r *report) thenTitle() string {
	if r.Served {
		return "With these pools, for the same pods"
	}
	return "With cilium-pool-operator, for the same pods"
}

// then is the part about this operator, or other pools of it.
func (r *report) then() section {
	s := section{Title: r.thenTitle()}
	r.each(func(f ipalloc.Family) {
		current := r.WhatIf.Replaced.of(f)
		would := r.WhatIf.Held.of(f)
		if current == 0 {
			return
		}
		if would <= current {
			s.line("%s: nodes would hold %d addresses: %d come free (%s).", f, would, current-would, cli.Percent(current-would, current))
		} else {
			s.line("%s: nodes would hold %d addresses, %d more than now.", f, would, would-current)
		}
	})
	r.WhatIf.describe(&s)
	return s
}

// describe adds notes on the numbers of addresses.
func (w *whatIf) describe(s *section) {
	for _, p := range w.Pools {
		s.line("Pool %s: blocks of %s.", p.Name, p.Blocks)
	}
	s.line("%s.", suggest.Plural(w.Routes, "block, a route each", "blocks, a route each"))
	if len(w.TooSmall) > 0 {
		s.line("Too few blocks in pool %s.", suggest.Few(w.TooSmall))
	}
	if len(w.Unserved) > 0 {
		s.line("Not served, and left out of these numbers: %s.", suggest.Few(w.Unserved))
	}
}

// present is the part about an operator that is already there.
func (r *report) present() section {
	s := section{Title: "cilium-pool-operator serves this cluster already"}
	var blocks list.PhaseCount
	for _, p := range r.Pools {
		blocks.InService += p.Blocks.InService
		blocks.Draining += p.Blocks.Draining
		blocks.CoolingDown += p.Blocks.CoolingDown
	}
	s.line("There is nothing to move. %s in service, %d draining, %d cooling down.", suggest.Count(blocks.InService, "block"), blocks.Draining, blocks.CoolingDown)
	if r.WhatIf == nil {
		s.line("--what-if compares its pools with others.")
	}
	s.line("More: kubectl cilium-pool status.")
	return s
}

// move is the part about a migration.
func (r *report) move() section {
	s := section{Title: "A migration"}
	if r.Mode == ciliumnode.MultiPool.String() {
		s.line("In place, no agent and no pod restarts. Each node keeps its ranges, %s. Keep the sizes that they have: docs/migration.md, In multi-pool mode already.",
			suggest.Count(r.Routes, "block"))
		return s
	}
	s.line("%s would restart, no pod. Each node keeps its ranges at first: %s.", suggest.Count(r.Nodes, "agent"), suggest.Count(r.Routes, "block"))
	if n := len(r.Migration.TooLarge); n > 0 {
		s.line("Too large for a block in crd mode, so these need multi-pool mode, or nodes with smaller ranges: %s.", suggest.Few(r.Migration.TooLarge))
	}
	s.line("Obstacles, and the way: kubectl cilium-pool migrate plan.")
	return s
}

func (r *report) title() string { return "Pod addresses, " + r.Time.UTC().Format(time.RFC3339) }

func (r *report) text(t *cli.Text) {
	t.Line("%s", r.title())
	for _, s := range r.sections() {
		t.Line("")
		t.Line("%s", s.Title)
		for _, line := range s.Lines {
			t.Line("  %s", line)
		}
		if len(s.Rows) > 0 {
			t.Table(&cli.Output{}, cli.TableOf("rows", s.Rows, func(row *[]any) []any { return *row }, s.Head...))
		}
	}
}
