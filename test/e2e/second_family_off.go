//go:build linux

package main

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
)

// takeOut drains the IPv6 range of agents that once ran IPv6 and still name their router's
// address in it, and removes it from the pool.
func (s *secondFamilies) takeOut(ctx context.Context) error {
	var err error
	if s.left, err = s.routers6(ctx); err != nil {
		return err
	}
	s.check(len(s.left) == len(s.nodes), "agents without IPv6 that name their old IPv6 router address", "%d of %d", len(s.left), len(s.nodes))
	began := time.Now()
	err = s.editPool(ctx, "all", func(p *v1alpha1.PodIPPool) {
		p.Spec.IPv6.CIDRs[0].AllocationPolicy = v1alpha1.AllocationDrain
	})
	if err != nil {
		return err
	}
	err = s.Eventually(ctx, "no node has anything of IPv6", s.nothingOfIPv6)
	s.check(err == nil, "IPv6 blocks, pool entries and podCIDRs are gone, after the edit", "%t; %.0f s", err == nil, time.Since(began).Seconds())
	if err != nil {
		return err
	}
	err = s.Eventually(ctx, "the pool can do without IPv6", func(ctx context.Context) error {
		return s.editPool(ctx, "all", func(p *v1alpha1.PodIPPool) { p.Spec.IPv6 = nil })
	})
	s.check(err == nil, "ipv6 is taken out of the pool", "%t", err == nil)
	more, errs := s.runPods(ctx, s.nodes[0], "without", 2, 1)
	s.checkNone(errs, "ADDs that fail without IPv6 in the pool")
	s.old = append(s.old, more...)
	return err
}

// nothingOfIPv6 returns an error while a block, a pool or podCIDRs have anything of IPv6.
func (s *secondFamilies) nothingOfIPv6(ctx context.Context) error {
	blocks := &v1alpha1.PodIPBlockList{}
	if err := s.Client.List(ctx, blocks); err != nil {
		return err
	}
	for i := range blocks.Items {
		if strings.Contains(blocks.Items[i].Spec.CIDR, ":") {
			return fmt.Errorf("block %s is there: %v", blocks.Items[i].Name, blocks.Items[i].Status.Conditions)
		}
	}
	for _, n := range s.nodes {
		cn, err := s.CiliumNode(ctx, n.Name)
		if err != nil {
			return err
		}
		named := podCIDRs(cn)
		for key := range cn.Spec.IPAM.Pool {
			named = append(named, key)
		}
		if i := slices.IndexFunc(named, func(name string) bool { return strings.Contains(name, ":") }); i >= 0 {
			return fmt.Errorf("%s has %s", n.Name, named[i])
		}
	}
	return nil
}

// routers6 returns the IPv6 addresses of routers that the CiliumNodes name, by node.
func (s *secondFamilies) routers6(ctx context.Context) (map[string]string, error) {
	out := map[string]string{}
	for _, n := range s.nodes {
		cn, err := s.CiliumNode(ctx, n.Name)
		if err != nil {
			return nil, err
		}
		for _, a := range cn.Spec.Addresses {
			if addr, err := netip.ParseAddr(a.IP); err == nil && addr.Is6() && a.Type == "CiliumInternalIP" {
				out[n.Name] = a.IP
			}
		}
	}
	return out, nil
}

// switchOnAgain adds IPv6 again: agents that name an address which is no longer theirs take
// another.
func (s *secondFamilies) switchOnAgain(ctx context.Context) error {
	if err := s.editPool(ctx, "all", addIPv6); err != nil {
		return err
	}
	if err := s.EditConfig(ctx, s.MovedConfig()); err != nil {
		return err
	}
	for _, n := range s.nodes {
		began := time.Now()
		starts, err := n.RestartAgentUntilHealthy(ctx)
		if err != nil {
			return err
		}
		s.check(starts <= 2, "starts of the agent of "+n.Name+" until it is healthy with IPv6 again; after", "%d; %.0f s", starts, time.Since(began).Seconds())
	}
	routers, err := s.routers6(ctx)
	if err != nil {
		return err
	}
	others := 0
	for _, n := range s.nodes {
		if routers[n.Name] != s.left[n.Name] {
			others++
		}
	}
	s.check(others == len(s.nodes), "routers with another IPv6 address than the one that was left", "%d of %d", others, len(s.nodes))
	both, errs := s.runPods(ctx, s.nodes[0], "again", 2, 1)
	s.checkNone(errs, "ADDs that fail with IPv6 on again")
	for _, p := range both {
		s.check(len(p.Addresses) == 2, "addresses of "+p.Name, "%v", p.Addresses)
	}
	s.checkKept(ctx, s.nodes[0], append(s.old, both...), "pods at their addresses, IPv6 on again")
	return nil
}
