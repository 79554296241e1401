package main

import (
	"slices"

	"github.com/cilium-pool/cilium-pool-operator/test/model/protocol"
)

// row is one exploration.
type row struct {
	section     string // the title of its part of the report
	name, about string
	config      protocol.Config
	// progress means that goals are checked as well, not only rules.
	progress bool
	// expect is the rule or the goal that must be found broken; "": none.
	expect string
}

// size returns an instance with that many nodes, blocks, addresses per block, and leaders.
func size(nodes, blocks, addresses, leaders int) protocol.Config {
	return protocol.Config{Nodes: nodes, Blocks: blocks, Addresses: addresses, Leaders: leaders, Cilium: protocol.AsShipped()}
}

func changed(c protocol.Config) protocol.Config {
	c.Cilium = protocol.Cilium{}
	return restored(c)
}

// restored adds the rule that agents restore every pod.
func restored(c protocol.Config) protocol.Config {
	c.Rules = append(protocol.Promised(), protocol.Restored)
	return c
}

func entries(c protocol.Config) protocol.Config {
	c.FenceMarks = true
	return c
}

func thresholds(c protocol.Config) protocol.Config {
	c.Thresholds = true
	return c
}

func whole(c protocol.Config) protocol.Config {
	c.Whole = true
	return c
}

// allRows returns the rows in the order of the report.
func allRows() []row {
	return slices.Concat(rules(), progress(), known(), guards())
}

// inSection sets the section of rows.
func inSection(section string, rows ...row) []row {
	for i := range rows {
		rows[i].section = section
	}
	return rows
}

func rules() []row {
	return inSection("Rules: any policy, any timing",
		row{name: "blocks", about: "two nodes, two blocks, two leaders", config: size(2, 2, 1, 2)},
		row{name: "three-leaders", about: "two nodes, two blocks, three leaders", config: size(2, 2, 1, 3)},
		row{name: "four-leaders", about: "two nodes, two blocks, four leaders", config: size(2, 2, 1, 4)},
		row{name: "addresses", about: "two nodes and leaders, a block of two addresses", config: size(2, 1, 2, 2)},
		row{name: "changed", about: "as blocks, with the change to Cilium: every pod is restored", config: changed(size(2, 2, 1, 2))},
		row{name: "entries", about: "two nodes, a block, two leaders; the marks of fences stand", config: entries(size(2, 1, 1, 2))},
		row{name: "whole-blocks", about: "two nodes, two whole blocks, two leaders: every pod is restored", config: restored(whole(size(2, 2, 1, 2)))},
		row{name: "whole-three-leaders", about: "the same, three leaders", config: restored(whole(size(2, 2, 1, 3)))},
		row{name: "whole-four-leaders", about: "the same, four leaders", config: restored(whole(size(2, 2, 1, 4)))},
		row{name: "whole-entries", about: "two nodes, a whole block, two leaders; the marks of fences stand", config: restored(whole(entries(size(2, 1, 1, 2))))})
}

func progress() []row {
	return inSection("Progress: leaders go by thresholds, steps are weakly fair, faults come to an end",
		row{name: "need", about: "two nodes, a block, two leaders", config: thresholds(size(2, 1, 1, 2)), progress: true},
		row{name: "drain", about: "a node, two blocks, two leaders", config: thresholds(size(1, 2, 1, 2)), progress: true},
		row{name: "share", about: "two nodes, two blocks, a leader", config: thresholds(size(2, 2, 1, 1)), progress: true},
		row{name: "whole-need", about: "two nodes, a whole block, two leaders", config: whole(thresholds(size(2, 1, 1, 2))), progress: true},
		row{name: "whole-drain", about: "a node, two whole blocks, two leaders", config: whole(thresholds(size(1, 2, 1, 2))), progress: true},
		row{name: "whole-share", about: "two nodes, two whole blocks, a leader", config: whole(thresholds(size(2, 2, 1, 1))), progress: true})
}

func known() []row {
	window := size(1, 1, 1, 1)
	window.CarefulMarks = true
	window.Rules = []protocol.Rule{protocol.Restored}
	closed, restores, waits := window, window, window
	closed.Cilium = protocol.Cilium{}
	restores.Cilium.RefusesMarked = false
	waits.Cilium.AnswersEarly = false
	old := size(1, 1, 1, 2)
	old.OldCaches = true
	return inSection("Known limits: docs/reliability.md",
		row{name: "agent-window", about: "Cilium as shipped: an agent that restarts loses a pod", config: window, expect: string(protocol.Restored)},
		row{name: "agent-restores", about: "an agent that restores pods at marked addresses, but answers before", config: restores, expect: string(protocol.Restored)},
		row{name: "agent-waits", about: "an agent that answers once it has restored, but refuses marked addresses", config: waits, expect: string(protocol.Restored)},
		row{name: "agent-window-closed", about: "both", config: closed},
		row{name: "old-caches", about: "caches older than a release takes: a cooldown cut short", config: old, expect: string(protocol.CooledDown)},
		row{name: "whole-old-caches", about: "the same, of whole blocks", config: whole(old), expect: string(protocol.CooledDown)})
}

// guards returns small instances with one guard off in each.
func guards() []row {
	var out, wholes []row
	for _, p := range protocol.Protections() {
		out = append(out, without("without-"+p.Name, p, p.Rule, p.Progress))
		if rule, progress := p.Whole(); rule != "" {
			r := without("whole-without-"+p.Name, p, rule, progress)
			r.config = whole(r.config)
			wholes = append(wholes, r)
		}
	}
	return inSection("Guards switched off, one at a time", append(out, wholes...)...)
}

// without returns a small instance without a guard.
func without(name string, p protocol.Protection, rule protocol.Rule, progress bool) row {
	r := row{name: name, about: p.What, config: size(2, 1, 1, 2), expect: string(rule)}
	if progress {
		r.config, r.progress = thresholds(size(2, 1, 1, 1)), true
	} else {
		r.config.Rules = []protocol.Rule{rule}
	}
	r.config.Without = []protocol.Guard{p.Guard}
	return r
}
