package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/test/sim/world"
)

// Every fault at the claim and publication of a block, and every scenario without one.
func TestPoints(t *testing.T) {
	for _, s := range scenarios() {
		d := play(point{scenario: s}, nil)
		if found := d.findings(); len(found) > 0 {
			t.Errorf("without a fault: %s", found)
		}
		if slices.Contains(d.met.number[:], 0) {
			t.Errorf("%s has no points: %v", s.name, d.met)
		}
	}
	s := scenarios()[1]
	for _, p := range pointsOf(s, faults(), play(point{scenario: s}, nil).met) {
		if p.fault.at == atWrite && p.number > 3 || p.fault.at != atWrite && p.number > 1 {
			continue
		}
		for _, line := range play(p, nil).findings() {
			t.Error(line)
		}
	}
}

// At each write a cache can be as old as any version that existed.
func TestEveryOlderCache(t *testing.T) {
	s := scenarios()[1]
	met := play(point{scenario: s}, nil).met
	old, err := choose("fault", fromOldCache, faults(), func(f fault) string { return f.name })
	if err != nil || len(met.versions) != met.number[atWrite] || !slices.IsSorted(met.versions) || slices.Min(met.versions) < 2 {
		t.Fatalf("%d writes after %v versions (%v)", met.number[atWrite], met.versions, err)
	}
	var got []string
	for _, p := range pointsOf(s, old, places{number: [kindsOfPlaces]int{atWrite: 2}, versions: []int{2, 3}}) {
		got = append(got, p.String())
		if again, err := parsePoint(p.String()); err != nil || again.String() != p.String() || again.ago != p.ago {
			t.Errorf("%s is read as %s (%v)", p, again, err)
		}
	}
	want := []string{"grow/old-cache-1/1", "grow/old-cache-2/1", "grow/old-cache-1/2", "grow/old-cache-2/2", "grow/old-cache-3/2"}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// The same run takes the same course.
func TestCourseIsFixed(t *testing.T) {
	for _, s := range scenarios() {
		var first, second []string
		play(point{scenario: s}, func(line string) { first = append(first, line) })
		play(point{scenario: s}, func(line string) { second = append(second, line) })
		if strings.Join(first, "\n") != strings.Join(second, "\n") {
			t.Errorf("%s takes two courses", s.name)
		}
	}
}

// hurried is the reclaim of a block by operators that let it cool down for only a second, after
// which another node gets it.
func hurried() scenario {
	s := scenarios()[2]
	s.change = func(c *world.Config) {
		c.Upgraded.Defaults.Cooldown = time.Second
		c.Faults |= world.Upgrade
	}
	again := s.steps[2]
	again.do = func(d *driver) {
		d.do(world.UpgradeOp, "op1", "")
		d.do(world.UpgradeOp, "op2", "")
		deletePods(d)
	}
	s.steps = append(s.steps[:2:2], again, step{"pods of the other node have addresses", func(d *driver) {
		d.do(world.PodNew, "n2", "p1")
		d.do(world.PodNew, "n2", "p2")
	}, func(v view) bool { return v.HasAddress("n2", "p1") && v.HasAddress("n2", "p2") }})
	return s
}

// A broken rule is found, and so are a point that is not reached and a step that never completes.
func TestFindings(t *testing.T) {
	if found := play(point{scenario: scenarios()[0], fault: faults()[0], number: 9999}, nil).findings(); len(found) != 1 || !strings.Contains(found[0], "was not reached") {
		t.Errorf("a point that is not reached: %q", found)
	}
	if found := play(point{scenario: hurried()}, nil).findings(); len(found) == 0 || !strings.Contains(found[0], "rule 1") {
		t.Errorf("a block that was freed too early: %q", found)
	}
	s := scenarios()[0]
	s.steps = append(s.steps, step{"a pod that was never created has an address", nil, hasAddress("p1")})
	if found := play(point{scenario: s}, nil).findings(); len(found) != 1 || !strings.Contains(found[0], "did not come about") {
		t.Errorf("a step that does not come about: %q", found)
	}
}

func TestCommand(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		code int
		says string
	}{
		"one fault of one scenario": {[]string{"-scenarios=join", "-faults=not-sent"}, 0, "no finding"},
		"replay":                    {[]string{"-replay=join/killed-after/1"}, 0, "create PodIPBlock"},
		"no such scenario":          {[]string{"-scenarios=joy"}, 2, `no scenario "joy"`},
		"no such fault":             {[]string{"-faults=joy"}, 2, `no fault "joy"`},
		"no point":                  {[]string{"-replay=join/not-sent/9999"}, 2, "SCENARIO/FAULT/POINT"},
		"an old cache":              {[]string{"-replay=join/old-cache-2/1"}, 0, "stale-2"},
		"help":                      {[]string{"--help"}, 2, "Scenarios:"},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			if code := run(test.args, &out); code != test.code || !strings.Contains(out.String(), test.says) {
				t.Errorf("exit code %d, want %d; output:\n%s", code, test.code, out.String())
			}
		})
	}
}
