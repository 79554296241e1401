package main

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// exactPods returns as many addresses as pods: 1,000 for the default number of nodes.
func TestExactPods(t *testing.T) {
	if pods := exactPods(10); pods != 1000 {
		t.Errorf("%d addresses for pods, want 1000", pods)
	}
	for _, n := range []int{1, 28, 34, 136} {
		blocks := 0
		for _, cidr := range (&people{}).nextBlocks(n) {
			blocks += 1 << (blockBits - cidr.Bits())
			if cidr != cidr.Masked() {
				t.Errorf("%s is no CIDR", cidr)
			}
		}
		if blocks != n {
			t.Errorf("%d blocks, want %d", blocks, n)
		}
	}
}

// Blocks that nodes return count from the creation of pods until all run.
func TestHandshakes(t *testing.T) {
	var s story
	leaves := func(name string, drains, cools, gone bool) {
		s.add(change{name: name, gone: gone, block: &blockSeen{cidr: netip.MustParsePrefix("10.0.0.0/27"), drains: drains, cools: cools}})
	}
	leaves("early", true, false, false) // at 1 s
	leaves("early", false, false, true)
	leaves("a", true, false, false) // at 3 s
	leaves("b", true, false, false)
	leaves("a", false, true, false) // at 5 s
	leaves("b", false, true, false)
	leaves("a", false, true, true) // at 7 s
	leaves("b", false, true, true)
	leaves("late", true, false, false) // at 9 s
	s.pass(5 * time.Second)
	var got handshakes
	got.count(s, 2*time.Second, 10*time.Second)
	want := handshakes{blocks: 2, draining: (3 + 1) * time.Second, cooling: 3 * time.Second}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(handshakes{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestExactFindings(t *testing.T) {
	second := func(n int) time.Duration { return time.Duration(n) * time.Second }
	good := []burst{
		{name: plentyName, took: second(30)}, {name: exactName, took: second(29)},
		{name: plentyName, took: second(20)}, {name: exactName, took: second(24)},
		{name: elsewhereName, took: second(90), handshakes: handshakes{blocks: 24}},
	}
	tests := map[string]struct {
		edit func([]burst)
		want int
	}{
		"good":                  {func([]burst) {}, 0},
		"too slow":              {func(b []burst) { b[3].took = second(25) }, 1},
		"an ADD failed":         {func(b []burst) { b[0].failed = 1 }, 1},
		"nothing was elsewhere": {func(b []burst) { b[4].blocks = 0 }, 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := &exactReport{append([]burst(nil), good...), 1.2}
			test.edit(r.bursts)
			if found := r.findings(); len(found) != test.want {
				t.Errorf("found %q, want %d findings", found, test.want)
			}
		})
	}
}
