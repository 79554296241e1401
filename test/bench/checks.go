package main

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/bench/bed"
)

// check is a value that a sample must have on every machine.
type check struct {
	value string
	want  float64
	// limit: the value is at most want, plus perSecond for each second measured.
	limit     bool
	perSecond float64
}

func equal(value string, want float64) check { return check{value: value, want: want} }

// wrong returns the difference between a sample's value and the check, "" if there is none.
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
// only these may conflict with another write. Events are about the Lease, and about blocks:
// 100 at once, and 5 a second (blockEventsAtOnce in pkg/controller/event).
func always() []check {
	return []check{{value: "refused writes", want: 2, limit: true, perSecond: 2}, {value: "pool writes", want: 4, limit: true, perSecond: 1},
		{value: "events", want: 102, limit: true, perSecond: 5}}
}

// writes returns checks of counted writes, and of the versions of CiliumNodes that every agent
// receives.
func writes(blocks, nodes, other, versions float64) []check {
	return append(always(), equal("block writes", blocks), equal("node writes", nodes), equal("other writes", other), equal("versions", versions))
}

// served limits the writes until all n nodes have another block: two for each node, and a few conditions Published.
func served(n float64) check {
	return check{value: "writes until served", want: 2.04*n + 2, limit: true}
}

// eventsOfClaims limits the events while n nodes claim a block: one for each node, and two of the Lease.
func eventsOfClaims(n float64) check {
	return check{value: "events", want: n + 2, limit: true}
}

// failures returns the checks of a measure that a sample fails.
func failures(m measure, c contender, s sample) []error {
	var wrong []error
	for _, check := range m.checks(c, float64(s.Nodes)) {
		if text := check.wrong(s.Values); text != "" {
			wrong = append(wrong, fmt.Errorf("%s, %s: %s (%s)", m.name, c.name, text, s.Counts))
		}
	}
	return wrong
}

// allocations checks that claiming and releasing a block allocates no memory when 10,000 blocks
// are held.
func allocations() error {
	cut := ipalloc.Cut{Ranges: []netip.Prefix{netip.MustParsePrefix(bed.PoolCIDR)}, BlockBits: bed.BlockBits}
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
