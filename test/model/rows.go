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

// all returns the rows in the order of the report.
func all() []row {
	return slices.Concat(rules(), progress(), known(), guards())
}

// in sets the section of rows.
func in(section string, rows ...row) []row {
	for i := range rows {
		rows[i].section = section
	}
	return rows
}

func rules() []row {
	return in("Rules: any policy, any timing",
		row{name: "blocks", about: "two nodes, two blocks, two leaders", config: size(2, 2, 1, 2)},
		row{name: "three-leaders", about: "two nodes, two blocks, three leaders", config: size(2, 2, 1, 3)},
		row{name: "four-leaders", about: "two nodes, two blocks, four leaders", config: size(2, 2, 1, 4)},
		row{name: "addresses", about: "two nodes and leaders, a block of two addresses", config: size(2, 1, 2, 2)},
		row{name: "changed", about: "as blocks, with the change to Cilium: every pod is restored", config: changed(size(2, 2, 1, 2))},
		row{name: "entries", about: "two nodes, a block, two leaders; the marks of fences stand", config: entries(size(2, 1, 1, 2))})
}

func progress() []row {
	return in("Progress: leaders go by thresholds, steps are weakly fair, faults come to an end",
		row{name: "need", about: "two nodes, a block, two leaders", config: thresholds(size(2, 1, 1, 2)), progress: true},
		row{name: "drain", about: "a node, two blocks, two leaders", config: thresholds(size(1, 2, 1, 2)), progress: true},
		row{name: "share", about: "two nodes, two blocks, a leader", config: thresholds(size(2, 2, 1, 1)), progress: true})
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
	return in("Known limits: docs/reliability.md",
		row{name: "agent-window", about: "Cilium as shipped: an agent that restarts loses a pod", config: window, expect: string(protocol.Restored)},
		row{name: "agent-restores", about: "an agent that restores pods at marked addresses, but answers before", config: restores, expect: string(protocol.Restored)},
		row{name: "agent-waits", about: "an agent that answers once it has restored, but refuses marked addresses", config: waits, expect: string(protocol.Restored)},
		row{name: "agent-window-closed", about: "both", config: closed},
		row{name: "old-caches", about: "caches older than a release takes: a cooldown cut short", config: old, expect: string(protocol.CooledDown)})
}

// guards returns small instances with one guard off in each.
func guards() []row {
	var out []row
	for _, p := range protocol.Protections() {
		r := row{name: "without-" + p.Name, about: p.What, config: size(2, 1, 1, 2), expect: string(p.Rule)}
		if p.Progress {
			r.config, r.progress = thresholds(size(2, 1, 1, 1)), true
		} else {
			r.config.Rules = []protocol.Rule{p.Rule}
		}
		r.config.Without = []protocol.Guard{p.Guard}
		out = append(out, r)
	}
	return in("Guards switched off, one at a time", out...)
}
