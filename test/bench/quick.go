package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

const (
	quickBursts   = 10
	quickSpacing  = 50 * time.Millisecond
	quickRate     = 100
	quickReports  = 5 // per node
	writesPerMove = 2 // a block and a patch
	// reclaimWrites per block: the block drains, cools down, loses its finalizer
	// and is deleted; the CiliumNode gets marks, loses addresses, loses entries.
	reclaimWrites = 7
)

// check is what a sample of ours must show, whatever the machine.
type check struct {
	value string
	want  float64
}

// quick runs small sizes and fails where counted work is not what it must be:
// writes, reads of everything, allocations. Times are shown and mean nothing.
func (b *bench) quick(ctx context.Context) error {
	b.peers, b.rounds, b.settle = false, 1, time.Second
	if err := b.clear(); err != nil {
		return err
	}
	n := float64(b.nodes)
	lists := []check{{"lists of nodes", 1}, {"lists of ciliumnodes", 1}, {"lists of podipblocks", 1}, {"lists of podippools", 1},
		{"lists of pods", 2}} // those that need an address, and the agents'
	steps := []struct {
		m      measure
		checks []check
	}{
		{cold(false), []check{{"block writes", n}, {"node writes", n}, {"other writes", 0}, {"versions", n}}},
		{join(), []check{{"block writes", n}, {"node writes", 2 * n}, {"other writes", 0}, {"versions", 2 * n}}},
		{restart(false), append(lists, check{"writes", 0})},
		{storm(), []check{{"block writes", n}, {"node writes", n}, {"other writes", 0}, {"versions", n}}},
		{reclaim(), []check{{"own writes", reclaimWrites * n}, {"other writes", 0}}},
		{react(30, quickBursts, quickSpacing), []check{{"writes per burst", writesPerMove}}},
		{rest(false, quickRate, quickReports), []check{{"own writes", 0}}},
		// The other write is the CiliumPodIPPool that agents look for.
		{modes(false, quickBursts, quickSpacing), []check{{"block writes", n}, {"node writes", n}, {"other writes", 1}, {"versions", n}}},
	}
	var wrong []error
	for _, s := range steps {
		if !slices.Contains(strings.Split(b.measures, ","), strings.Fields(s.m.name)[0]) {
			continue
		}
		if err := b.all(ctx, s.m, b.nodes); err != nil {
			return err
		}
		last := b.results.Samples[len(b.results.Samples)-1]
		for _, c := range s.checks {
			if got := last.Values[c.value]; got != c.want {
				wrong = append(wrong, fmt.Errorf("%s: %s is %s, not %s (%s)", s.m.name, c.value, number(got), number(c.want), last.Counts))
			}
		}
	}
	wrong = append(wrong, allocations())
	return errors.Join(wrong...)
}

// allocations sees that claiming and giving up a block allocates nothing, beside
// 10,000 that are held.
func allocations() error {
	cut := ipalloc.Cut{Ranges: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, BlockBits: 27}
	owner := ipalloc.Owner{Pool: "pool", Node: "node"}
	space := ipalloc.NewSpace()
	space.SetReady()
	for range 10_000 {
		if _, err := space.Claim(cut, owner, nil); err != nil {
			return err
		}
	}
	per := testing.AllocsPerRun(1000, func() {
		if cidr, err := space.Claim(cut, owner, nil); err == nil {
			space.Release(cidr)
		}
	})
	if per != 0 {
		return fmt.Errorf("allocator: a claim and a release allocate %v times, not 0", per)
	}
	return nil
}
