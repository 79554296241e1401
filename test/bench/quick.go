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
	quickRequests = 10
	quickAsking   = 20 // requests per second
	quickRate     = 100
	quickReports  = 5 // per node
	writesPerMove = 2 // a block and a patch
	// reclaimWrites per block: the block drains, cools down, loses its finalizer and is
	// deleted; the CiliumNode gets marks, loses addresses, loses entries.
	reclaimWrites = 7
)

// check is what a sample of this operator must show, whatever the machine.
type check struct {
	value string
	want  float64
	// limit: the value is at most want, plus perSecond for each second measured.
	limit     bool
	perSecond float64
}

// wrong describes what is wrong with a sample's value; "" if nothing is.
func (c check) wrong(values map[string]float64) string {
	got, want := values[c.value], c.want+c.perSecond*values["measured s"]
	switch {
	case c.limit && got > want:
		return fmt.Sprintf("%s is %s, more than %s", c.value, number(got), number(want))
	case !c.limit && got != want:
		return fmt.Sprintf("%s is %s, not %s", c.value, number(got), number(want))
	}
	return ""
}

// always returns checks that hold for every measure: writes of objects other than blocks
// and CiliumNodes are limited by time, not by nodes. A pool's status is written once a second
// at most (minStatusDelay in pkg/controller/informer), in addition to the writes at start, and
// only these may conflict with another write. Events are those of the Lease, and of blocks:
// 100 at once, and 5 a second (blockEventsAtOnce in pkg/controller/event).
func always() []check {
	return []check{{value: "refused writes", want: 2, limit: true, perSecond: 2}, {value: "pool writes", want: 4, limit: true, perSecond: 1},
		{value: "events", want: 102, limit: true, perSecond: 5}}
}

// step is a measure and what it must show.
type step struct {
	m      measure
	checks []check
}

// flag returns the name of the step's measure in -measures.
func (s step) flag() string {
	return strings.FieldsFunc(s.m.name, func(r rune) bool { return strings.ContainsRune(separator, r) })[0]
}

func quickSteps(nodes int) []step {
	n := float64(nodes)
	equal := func(value string, want float64) check { return check{value: value, want: want} }
	writes := func(blocks, nodes, other, versions float64) []check {
		return append(always(), equal("block writes", blocks), equal("node writes", nodes), equal("other writes", other), equal("versions", versions))
	}
	return []step{
		{cold(false), writes(n, n, 0, n)},
		{join(), writes(n, 2*n, 0, 2*n)},
		{restart(false), append(always(), equal("lists of nodes", 1), equal("lists of ciliumnodes", 1), equal("lists of podipblocks", 1),
			equal("lists of podippools", 1), equal("lists of pods", 2), equal("writes", 0))}, // pods that need an address, and the agents'
		{storm(), writes(n, n, 0, n)},
		{stormInMultiPool(false), writes(n, n, 0, n)},
		{reclaim(), append(always(), equal("own writes", reclaimWrites*n), equal("other writes", 0))},
		{react(30, reactSeconds), append(always(), equal("writes per burst", writesPerMove))},
		{react(1000, reactSeconds), append(always(), equal("writes per burst", writesPerMove))},
		{rest(false, quickRate, quickReports), append(always(), equal("own writes", 0), equal("pool writes", 0))},
		// The other write is the CiliumPodIPPool that agents need.
		{modes(false, quickRequests, quickAsking), writes(n, n, 1, n)},
	}
}

// quick runs small sizes and fails if counted work is not as expected: writes, refused
// requests, events, full lists, allocations. It prints times, but they mean nothing.
func (b *bench) quick(ctx context.Context) error {
	b.peers, b.rounds, b.settle = false, 1, time.Second
	if err := b.clear(); err != nil {
		return err
	}
	var wrong []error
	for _, s := range quickSteps(b.nodes) {
		if !slices.Contains(strings.Split(b.measures, ","), s.flag()) {
			continue
		}
		s.m = b.adapted(s.m)
		if err := b.all(ctx, s.m, b.nodes); err != nil {
			return err
		}
		wrong = append(wrong, b.wrong(s)...)
	}
	wrong = append(wrong, allocations())
	return errors.Join(wrong...)
}

// wrong checks the samples of this operator, whose names all begin alike.
func (b *bench) wrong(s step) []error {
	var wrong []error
	for _, sample := range b.results.Samples {
		if sample.Measure != s.m.name || !strings.HasPrefix(sample.Contender, ours) {
			continue
		}
		for _, c := range s.checks {
			if text := c.wrong(sample.Values); text != "" {
				wrong = append(wrong, fmt.Errorf("%s, %s: %s (%s)", s.m.name, sample.Contender, text, sample.Counts))
			}
		}
	}
	return wrong
}

// allocations checks that claiming and releasing a block allocates nothing when 10,000
// blocks are held.
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
