package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/sim/changes/schema"
)

func kindsOf(t *testing.T) *kinds {
	t.Helper()
	k, err := readKinds()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// A few changes of each state, on every path.
func TestChanges(t *testing.T) {
	var out strings.Builder
	if code := run([]string{"-part=60"}, &out); code != 0 || !strings.Contains(out.String(), "no finding") {
		t.Errorf("exit code %d:\n%s", code, out.String())
	}
}

// Every field has a change in every state, and one of them is accepted; if a field can be
// wrong, a change is rejected or reported.
func TestEveryFieldChanges(t *testing.T) {
	k := kindsOf(t)
	accepted := map[string]bool{}
	for _, s := range states() {
		trials, err := k.of(&s)
		if err != nil {
			t.Fatal(err)
		}
		changed := map[string]bool{}
		for _, trial := range trials {
			changed[trial.Field] = true
			if !accepted[trial.Field] && !trial.Wrong && len(refusal(k.pools, trial.to(), nil)) == 0 {
				accepted[trial.Field] = true
			}
		}
		for _, field := range k.pools.Fields() {
			if !changed[field] {
				t.Errorf("%s: %s has no change", s.name, field)
			}
		}
	}
	dual := schema.PoolExample()
	delete(dual, "reserved") // which keeps each range
	changes, err := k.pools.Changes(dual, schema.PoolExample(), schema.PoolValues())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range changes {
		if !accepted[c.Field] && !c.Wrong && len(refusal(k.pools, c.Apply(dual), nil)) == 0 {
			accepted[c.Field] = true
		}
	}
	for _, field := range k.pools.Fields() {
		if !accepted[field] {
			t.Errorf("no change of %s is ever accepted", field)
		}
	}
	for _, field := range k.blocks.Fields() {
		changed := false
		for _, c := range k.ofBlock {
			changed = changed || c.Field == field
		}
		if !changed {
			t.Errorf("%s has no change", field)
		}
	}
}

// stateCalled returns a state and its trial of a change.
func stateCalled(t *testing.T, name, change string) (*state, trial) {
	t.Helper()
	k := kindsOf(t)
	for _, s := range states() {
		if s.name != name {
			continue
		}
		trials, err := k.of(&s)
		if err != nil {
			t.Fatal(err)
		}
		for _, trial := range trials {
			if trial.String() == change {
				return &s, trial
			}
		}
	}
	t.Fatalf("no change %q in state %q", change, name)
	return nil, trial{}
}

// What Changes is for is found: a wrong value that is accepted silently, one that no message
// names, a way back that ends elsewhere, and a panic.
func TestFindings(t *testing.T) {
	k := kindsOf(t)
	s, right := stateCalled(t, "grown", "spec.expand.minFree: 2")
	still := s.play(k.pools, s.first, []stop{{spec: s.from()}, {spec: s.from()}}, nil)

	silent := right
	silent.Wrong = true
	_, refused := stateCalled(t, "grown", `spec.cooldown: "1d"`)
	refused.At = "spec.another"
	elsewhere := *s
	elsewhere.base, elsewhere.first = s.first, right.to() // as if the operator kept minFree
	kept := right
	kept.state = &elsewhere
	panics := right
	panics.state = &state{name: "panics", first: s.first, pods: []string{"none-such"}}
	for name, test := range map[string]struct {
		trial trial
		says  string
	}{
		"nothing is wrong":            {right, ""},
		"accepted silently":           {silent, "accepted silently"},
		"refused without the field":   {refused, "no message names the field"},
		"the way back ends elsewhere": {kept, "ends otherwise than without the change"},
		"a panic":                     {panics, "panic"},
	} {
		t.Run(name, func(t *testing.T) {
			still := still
			if name == "the way back ends elsewhere" {
				other, _ := stateCalled(t, "full", "spec.paused: true")
				still = other.play(k.pools, other.first, []stop{{spec: other.from()}, {spec: other.from()}}, nil)
			}
			found := strings.Join(test.trial.try(k.pools, still).findings, "\n")
			if (found == "") != (test.says == "") || !strings.Contains(found, test.says) {
				t.Errorf("found %q, want %q", found, test.says)
			}
		})
	}
}

// Two views that differ in any part are reported, unless there is a reason for the difference.
func TestDiffers(t *testing.T) {
	of := func(change func(*view)) *view {
		v := &view{always: map[string]string{"a": "1"}, held: map[string]string{"b": "1"}, counted: map[string]string{"c": "1"}}
		change(v)
		return v
	}
	plain := of(func(*view) {})
	for name, test := range map[string]struct {
		other *view
		kept  bool
		want  int
	}{
		"the same":                   {of(func(*view) {}), false, 0},
		"wrong otherwise, kept":      {of(func(v *view) { v.always["a"] = "2" }), true, 1},
		"held otherwise":             {of(func(v *view) { v.held["b"] = "2" }), false, 1},
		"held otherwise, kept":       {of(func(v *view) { v.held["b"] = "2" }), true, 0},
		"held otherwise, exhausted":  {of(func(v *view) { v.held["b"] = "2"; v.exhausted = true }), false, 0},
		"held otherwise, leaving":    {of(func(v *view) { v.held["b"] = "2"; v.leaving = true }), false, 1},
		"counted otherwise":          {of(func(v *view) { v.counted["c"] = "2" }), false, 1},
		"counted otherwise, leaving": {of(func(v *view) { v.counted["c"] = "2"; v.leaving = true }), false, 0},
		"something is missing":       {of(func(v *view) { delete(v.held, "b") }), false, 1},
	} {
		if got := plain.differs(test.other, test.kept); len(got) != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// A spec keeps what nodes have only by the fields that say so.
func TestKeeps(t *testing.T) {
	for change, want := range map[string]string{
		"spec.paused: true":                             "[paused]",
		"spec.paused: false":                            "",
		`spec.ipv4.cidrs[0].allocationPolicy: "Cordon"`: "ipv4.cidrs[].allocationPolicy",
		`spec.ipv4.cidrs[0].allocationPolicy: "Drain"`:  "",
		`spec.reclaim.idleFor: "168h"`:                  "reclaim.idleFor",
		"spec.expand.minFree: 4096, the maximum":        "",
		"spec.ipv4.allowFirstIP: true":                  "",
	} {
		s, trial := stateCalled(t, "grown", change)
		if got := s.keeps(trial.to()); got != want {
			t.Errorf("%s: %q, want %q", change, got, want)
		}
	}
}

// A block that overlaps another without a condition that says so is found.
func TestPinnedSilently(t *testing.T) {
	s, _ := stateCalled(t, "grown", "spec.paused: true")
	k := kindsOf(t)
	overlapping := &v1alpha1.PodIPBlock{Spec: v1alpha1.PodIPBlockSpec{CIDR: "10.0.0.0/29", NodeName: "n2", PoolName: poolName}}
	overlapping.Name = "10.0.0.0-29"
	out := s.play(k.pools, s.first, []stop{{spec: s.from(), pins: overlapping, steps: 1}, {spec: s.from(), pins: overlapping}}, nil)
	if len(out.findings) > 0 {
		t.Errorf("an overlapping block: %v", out.findings)
	}
}

func TestCommand(t *testing.T) {
	s, _ := stateCalled(t, "fresh", "spec.paused: true")
	k := kindsOf(t)
	trials, err := k.of(s)
	if err != nil {
		t.Fatal(err)
	}
	firstBlock := len(trials) + 1 + slices.IndexFunc(k.ofBlock, func(c schema.Change) bool { return c.Field == "spec.cidr" && !c.Wrong })
	for name, test := range map[string]struct {
		args []string
		code int
		says string
	}{
		"a part of one state": {[]string{"-states=fresh", "-part=200"}, 0, "no finding"},
		"replay":              {[]string{"-replay=grown/1/back"}, 0, "stored PodIPPool"},
		"replay of a block":   {[]string{fmt.Sprintf("-replay=fresh/%d/pinned", firstBlock)}, 0, "spec.cidr"},
		"no such run":         {[]string{"-replay=grown/none/back"}, 2, "STATE/CHANGE/PATH"},
		"no such state":       {[]string{"-states=joy"}, 2, `no state "joy"`},
		"no part":             {[]string{"-part=0"}, 2, "1 or more"},
		"help":                {[]string{"--help"}, 2, "States:"},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			if code := run(test.args, &out); code != test.code || !strings.Contains(out.String(), test.says) {
				t.Errorf("exit code %d, want %d; output:\n%s", code, test.code, out.String())
			}
		})
	}
}
