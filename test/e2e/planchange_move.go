//go:build linux

package main

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/test/e2e/bed"
)

// vacate waits until a node's blocks in some ranges have no free address, replaces
// each of their pods, and repeats this until the blocks are gone.
func (p *planMover) vacate(ctx context.Context, over string, i int, ranges ...string) error {
	began, turns := time.Now(), 0
	within := func() (n int) {
		for _, r := range ranges {
			n += countIn(p.pods[i], r)
		}
		return n
	}
	for ; within() > 0 && turns < moveTurns; turns++ {
		if err := p.Eventually(ctx, "nothing is left there but what is used", func(ctx context.Context) error { return p.leftIn(ctx, i, ranges...) }); err != nil {
			return err
		}
		among := func(a netip.Addr) bool {
			return slices.ContainsFunc(ranges, func(r string) bool { return netip.MustParsePrefix(r).Contains(a) })
		}
		if err := p.succeed(ctx, i, fmt.Sprintf("%s-%d", over, turns), among); err != nil {
			return err
		}
	}
	moved := time.Since(began)
	err := p.Eventually(ctx, "its blocks have gone", func(ctx context.Context) error {
		blocks, err := p.blocksOf(ctx, p.nodes[i].Name)
		for _, b := range blocks {
			if slices.ContainsFunc(ranges, func(r string) bool { return netip.MustParsePrefix(r).Contains(b.Addr()) }) {
				err = fmt.Errorf("%s is there", b)
			}
		}
		return err
	})
	p.check(err == nil && within() == 0, fmt.Sprintf("%s: turns to move all pods off %v; until the blocks had gone", over, ranges), "%d, %.0f s; %.0f s",
		turns, moved.Seconds(), time.Since(began).Seconds())
	return err
}

// leftIn returns an error while unused addresses of the ranges are published.
func (p *planMover) leftIn(ctx context.Context, i int, ranges ...string) error {
	cn, err := p.CiliumNode(ctx, p.nodes[i].Name)
	if err != nil {
		return err
	}
	for _, r := range ranges {
		if published, used, err := count(cn, r); err != nil || published > used {
			return fmt.Errorf("%d addresses of %s published, %d used: %w", published, r, used, err)
		}
	}
	return nil
}

// addresses returns the addresses of all pods, by name.
func (p *planMover) addresses() map[string]netip.Addr {
	out := map[string]netip.Addr{}
	for _, pods := range p.pods {
		for _, pod := range pods {
			out[pod.Name] = pod.Address
		}
	}
	return out
}

// noteStayed records how many pods a step has not moved. The step itself checks that the
// agents have each pod at its address.
func (p *planMover) noteStayed(before map[string]netip.Addr, over string) {
	stayed := 0
	for name, a := range p.addresses() {
		if was, known := before[name]; known && was == a {
			stayed++
		}
	}
	p.note(over+": pods that stayed", "%d", stayed)
}

// blockNames returns the CIDRs of all blocks.
func (p *planMover) blockNames(ctx context.Context) ([]string, error) {
	names := map[string]bool{}
	for _, n := range p.nodes {
		blocks, err := p.blocksOf(ctx, n.Name)
		if err != nil {
			return nil, err
		}
		for _, b := range blocks {
			names[b.String()] = true
		}
	}
	return slices.Sorted(maps.Keys(names)), nil
}

// checkRoutesOf checks that each node routes to the blocks of the other one.
func (p *planMover) checkRoutesOf(ctx context.Context) {
	for i, n := range p.nodes {
		other := p.nodes[1-i]
		var lacks []netip.Prefix
		err := p.Eventually(ctx, "the routes follow", func(ctx context.Context) error {
			cn, err := p.CiliumNode(ctx, n.Name)
			if err != nil {
				return err
			}
			routes, err := other.Routes(ctx)
			if err != nil {
				return err
			}
			lacks = slices.DeleteFunc(prefixesOf(cn), func(cidr netip.Prefix) bool {
				return slices.ContainsFunc(routes, func(r bed.Route) bool { return r.To == cidr && p.leads(r, n) })
			})
			if len(lacks) > 0 {
				return fmt.Errorf("no route to %v", lacks)
			}
			return nil
		})
		if err != nil {
			p.Logf("%v", err)
		}
		p.check(err == nil, "blocks of "+n.Name+" that the other node has no route to", "%d", len(lacks))
	}
}
