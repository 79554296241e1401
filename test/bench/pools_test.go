package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
)

func blockEvent(kind, name string, phase v1alpha1.BlockPhase) []byte {
	return fmt.Appendf(nil, `{"type":%q,"object":{"metadata":{"name":%q},"spec":{"poolName":"p"},"status":{"phase":%q}}}`, kind, name, phase)
}

func poolEvent(inService, draining, coolingDown int) []byte {
	return fmt.Appendf(nil, `{"type":"MODIFIED","object":{"metadata":{"name":"p"},"status":{"nodes":1,"ipv4":{"blocks":{"inService":%d,"draining":%d,"coolingDown":%d}}}}}`,
		inService, draining, coolingDown)
}

// A change is counted once its pool's status counts as many, and each delay begins at the
// event of its own change.
func TestStatuses(t *testing.T) {
	type event struct {
		block, pool []byte
		at          int // ms
	}
	const in, drain, cool = v1alpha1.PhaseInService, v1alpha1.PhaseDraining, v1alpha1.PhaseCoolingDown
	tests := map[string]struct {
		events    []event
		want      []float64
		uncounted int
		wrong     string
	}{
		"nothing": {},
		"claims, counted together": {
			events: []event{{block: blockEvent("ADDED", "a", ""), at: 10}, {block: blockEvent("ADDED", "b", in), at: 30}, {pool: poolEvent(7, 0, 0), at: 110}},
			want:   []float64{80, 100},
		},
		"a status that counts one of two": {
			events: []event{{block: blockEvent("ADDED", "a", in), at: 10}, {block: blockEvent("ADDED", "b", in), at: 30}, {pool: poolEvent(6, 0, 0), at: 50}},
			want:   []float64{40}, uncounted: 1,
		},
		"a status ahead of the watch of blocks": {
			events: []event{{pool: poolEvent(6, 0, 0), at: 5}, {block: blockEvent("ADDED", "a", in), at: 10}},
			want:   []float64{0},
		},
		"every step of a return": {
			events: []event{
				{block: blockEvent("MODIFIED", "a", drain), at: 10}, {pool: poolEvent(4, 1, 0), at: 20},
				{block: blockEvent("MODIFIED", "a", drain), at: 25}, // another change of the block
				{block: blockEvent("MODIFIED", "a", cool), at: 30}, {block: blockEvent("DELETED", "a", cool), at: 40}, {pool: poolEvent(4, 0, 0), at: 70},
			},
			want: []float64{10, 30, 40},
		},
		"a deletion that no status counts": {
			events:    []event{{block: blockEvent("DELETED", "a", cool), at: 10}, {pool: poolEvent(4, 0, 1), at: 20}},
			want:      []float64{10, 10},
			uncounted: 1,
		},
		"an edit of the block alone": {events: []event{{block: blockEvent("MODIFIED", "a", in), at: 10}}},
		"claims among returns": {
			events: []event{{block: blockEvent("ADDED", "a", in), at: 10}, {block: blockEvent("DELETED", "b", in), at: 20}},
			wrong:  "blocks came while others went",
		},
		"a drain that is undone": {
			events: []event{{block: blockEvent("MODIFIED", "a", drain), at: 10}, {block: blockEvent("MODIFIED", "a", in), at: 20}},
			wrong:  "went from phase",
		},
		"a pool without a status": {events: []event{{pool: []byte(`{"type":"MODIFIED","object":{"metadata":{"name":"p"}}}`)}}, wrong: "no status of IPv4"},
		"no event at all":         {events: []event{{block: []byte("?")}}, wrong: "an event of a block"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			start := time.Unix(0, 0)
			s := &statuses{last: map[string]v1alpha1.StateCounts{"p": {InService: 5}}, phase: map[string]v1alpha1.BlockPhase{}}
			s.begin()
			var err error
			for _, e := range test.events {
				take, data := s.takeBlock, e.block
				if data == nil {
					take, data = s.takePool, e.pool
				}
				if err = take(data, start.Add(time.Duration(e.at)*time.Millisecond)); err != nil {
					break
				}
			}
			var got []float64
			uncounted := 0
			if err == nil {
				got, uncounted, err = statusDelays(s.base, s.changes, s.seen)
			}
			if (err != nil) != (test.wrong != "") || err != nil && !strings.Contains(err.Error(), test.wrong) {
				t.Fatalf("error %v, want %q", err, test.wrong)
			}
			if diff := cmp.Diff(test.want, got); diff != "" || uncounted != test.uncounted {
				t.Errorf("%d uncounted, want %d; delays in ms (-want +got):\n%s", uncounted, test.uncounted, diff)
			}
		})
	}
}

// The next burst begins with what the previous one left.
func TestStatusesBeginAgain(t *testing.T) {
	s := &statuses{last: map[string]v1alpha1.StateCounts{"p": {InService: 5}}, phase: map[string]v1alpha1.BlockPhase{}}
	for _, step := range [][][]byte{
		{blockEvent("ADDED", "a", v1alpha1.PhaseInService), poolEvent(6, 0, 0)},
		{blockEvent("MODIFIED", "a", v1alpha1.PhaseDraining), poolEvent(5, 1, 0)},
	} {
		s.begin()
		if err := s.takeBlock(step[0], time.Unix(1, 0)); err != nil {
			t.Fatal(err)
		}
		if err := s.takePool(step[1], time.Unix(2, 0)); err != nil {
			t.Fatal(err)
		}
		got, err := s.wait(t.Context())
		if err != nil || !slices.Equal(got, []float64{1000}) {
			t.Errorf("got %v, %v", got, err)
		}
	}
}

// The table has a column for each size, and marks what grows faster than the blocks.
func TestPoolsTable(t *testing.T) {
	if got := poolsTable(keep(nil)); got != "" {
		t.Errorf("without results: %s", got)
	}
	of := func(nodes int, claims, worst float64) sample {
		return sample{Measure: "pools", Contender: oursUnpaced, Nodes: nodes, Values: map[string]float64{
			"pools": 3, "blocks": float64(nodes * blocksPerNode), "claims s": claims, "claims status max ms": worst}}
	}
	got := poolsTable(keep([]results{{Commit: "abc", Samples: []sample{of(10, 2, 900), of(20, 4, 2000), of(40, 16, 5000)}}}))
	for _, want := range []string{
		"3 pools, each", "Commit abc.", "| blocks | 160 | 320 | 640 |\n",
		"| a block more for each node: time, s | 2 | 4 | 16, **2×** |\n", "| worst, ms | 900 | 2000 | 5000 |\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the table lacks %q:\n%s", want, got)
		}
	}
}

func TestManyPoolsMustFit(t *testing.T) {
	for name, b := range map[string]*bench{"no pool": {blocks: 640}, "no node": {blocks: 48, pools: 1}, "no room": {blocks: 1_000_000, pools: 2}} {
		t.Run(name, func(t *testing.T) {
			if err := b.manyPools(context.Background()); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("-blocks=%d", b.blocks)) {
				t.Errorf("got %v", err)
			}
		})
	}
	if got := poolSizes(fullBlocks); !slices.Equal(got, []int{781, 1562, 3125}) {
		t.Errorf("sizes in nodes are %v", got)
	}
}
