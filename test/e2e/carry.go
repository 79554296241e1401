//go:build linux

package main

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/test/e2e/bed"
)

const (
	firstPods = 20
	morePods  = 50 // reach into the third block
	rapid     = 5 * time.Millisecond
)

// carry runs pings and a TCP stream between pods of two nodes while one of the nodes gets its
// second and third block, and then pings between the new pods and the other node, in both
// directions.
func carry(ctx context.Context, e *env) error {
	n, probe, err := e.pair(ctx)
	if err != nil {
		return err
	}
	first, errs := e.runPods(ctx, n, "first", firstPods, 4)
	if len(errs) > 0 {
		return fmt.Errorf("%d pods failed, the first: %w", len(errs), errs[0])
	}
	there, err := probe.Ping(first[0].Address, rapid)
	if err != nil {
		return err
	}
	back, err := first[1].Ping(probe.Address, rapid)
	if err != nil {
		return err
	}
	stream, err := probe.Stream(first[2], first[2].Address, rapid)
	if err != nil {
		return err
	}
	more, errs := e.runPods(ctx, n, "more", morePods, 4)
	e.check(len(errs) == 0, fmt.Sprintf("failed CNI ADDs of %d", morePods), "%d", len(errs))
	echoes, slowest, err := stream.Stop()
	e.check(err == nil && echoes > 0, "TCP echoes while blocks were added; slowest", "%d; %d ms", echoes, slowest.Milliseconds())
	e.judgePings([]*bed.Pings{there, back}, "packets lost meanwhile, both ways, every 5 ms")
	if err := e.newBlocks(ctx, n, probe, append(first, more...)); err != nil {
		return err
	}
	return e.judgeRules(ctx)
}

// newBlocks pings between the probe and one pod of each block, in both directions and each
// family, for a few seconds.
func (e *env) newBlocks(ctx context.Context, n *bed.Node, probe *bed.Pod, pods []*bed.Pod) error {
	cn, err := e.CiliumNode(ctx, n.Name)
	if err != nil {
		return err
	}
	var talking []*bed.Pod
	blocks := 0
	for _, cidr := range podCIDRs(cn) {
		pod := inBlock(pods, cidr)
		if pod == nil {
			continue // The last block may have no pod yet.
		}
		blocks++
		if !slices.Contains(talking, pod) {
			talking = append(talking, pod)
		}
	}
	e.check(blocks >= 3*len(probe.Addresses), "blocks with a pod that talks to the other node", "%d of %d", blocks, len(cn.Spec.IPAM.PodCIDRs))
	flows, err := flowsBetween(probe, talking, rapid)
	if err != nil {
		return err
	}
	if err := pause(ctx, 3*time.Second); err != nil {
		return err
	}
	e.judgePings(flows, "packets lost between these pods and the other node, both ways")
	return nil
}

// inBlock returns the first of the pods with an address in the block, or nil.
func inBlock(pods []*bed.Pod, cidr string) *bed.Pod {
	prefix, err := netip.ParsePrefix(cidr)
	for _, p := range pods {
		if err == nil && slices.ContainsFunc(p.Addresses, prefix.Contains) {
			return p
		}
	}
	return nil
}
