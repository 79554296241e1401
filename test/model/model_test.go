package main

import (
	"strings"
	"testing"

	"github.com/cilium-pool/cilium-pool-operator/test/model/protocol"
)

// TestSmall explores the rows that take seconds: the known limits, and each guard switched off, must
// be found broken exactly as the row says.
func TestSmall(t *testing.T) {
	for _, r := range append(known(), guards()...) {
		if x := explored(r, 1_000_000); !x.asExpected() {
			var story strings.Builder
			x.tell(&story)
			t.Errorf("%s\nexpected %q; found %q%s", x, r.expect, x.found(), story.String())
		}
	}
}

// TestHolds explores a small instance of the rules, and one of progress, without a
// finding.
func TestHolds(t *testing.T) {
	for _, r := range []row{
		{name: "rules", config: size(2, 1, 1, 2)},
		{name: "changed", config: changed(size(2, 1, 1, 2))},
		{name: "entries", config: entries(size(2, 1, 1, 2))},
		{name: "progress", config: thresholds(size(2, 1, 1, 1)), progress: true},
		{name: "whole", config: restored(whole(size(2, 1, 1, 2)))},
		{name: "whole entries", config: restored(whole(entries(size(2, 1, 1, 2))))},
		{name: "whole progress", config: whole(thresholds(size(2, 1, 1, 1))), progress: true},
	} {
		if x := explored(r, 5_000_000); !x.asExpected() {
			var story strings.Builder
			x.tell(&story)
			t.Errorf("%s%s", x, story.String())
		}
	}
}

// TestOldCaches checks that caches of any age shorten only the cooldown.
func TestOldCaches(t *testing.T) {
	old := size(2, 1, 1, 2)
	old.OldCaches = true
	for _, config := range []protocol.Config{old, whole(old)} {
		for _, rule := range protocol.Promised() {
			r := row{name: string(rule), config: config}
			r.config.Rules = []protocol.Rule{rule}
			if rule == protocol.CooledDown {
				r.expect = string(rule)
			}
			if x := explored(r, 5_000_000); !x.asExpected() {
				t.Error(x)
			}
		}
	}
}

// TestEveryStepHappens checks that each step is taken in some instance, so that the model has
// no unreachable step.
func TestEveryStepHappens(t *testing.T) {
	happened := map[protocol.Verb]bool{}
	for _, c := range []protocol.Config{
		size(1, 1, 1, 2), thresholds(size(1, 1, 1, 1)), whole(size(1, 1, 1, 1)),
		{Nodes: 1, Blocks: 1, Addresses: 1, Leaders: 1, Without: []protocol.Guard{protocol.PatchIsConditional}, Rules: []protocol.Rule{}},
	} {
		m, err := protocol.New(c)
		if err != nil {
			t.Fatal(err)
		}
		sys := m.System(false)
		known := map[protocol.Key]bool{sys.Start: true}
		for queue := []protocol.Key{sys.Start}; len(queue) > 0; queue = queue[1:] {
			sys.Next(queue[0], func(a protocol.Action, next protocol.Key, _ string) {
				happened[a.Verb] = true
				if !known[next] {
					known[next] = true
					queue = append(queue, next)
				}
			})
		}
	}
	for _, s := range protocol.Steps() {
		if !happened[s.Verb] {
			t.Errorf("%s never happens", s.Verb)
		}
	}
}

// TestFindingsAreReported checks that a row fails, and prints the story, unless it expects the
// finding.
func TestFindingsAreReported(t *testing.T) {
	wrong := size(1, 1, 1, 1)
	wrong.Rules = []protocol.Rule{protocol.Restored}
	for name, r := range map[string]row{
		"nothing is expected":      {name: "row", config: wrong},
		"another rule is expected": {name: "row", config: wrong, expect: string(protocol.InUse)},
		"it is not found":          {name: "row", config: changed(size(1, 1, 1, 1)), expect: string(protocol.Restored)},
	} {
		var out strings.Builder
		if code := report([]row{r}, false, &out); code != 1 || !strings.Contains(out.String(), "FAILED: 1 findings") {
			t.Errorf("%s: exit code %d:\n%s", name, code, out.String())
		}
	}
}
