package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/test/sim/world"
)

// profile is a kind of world. Replays name theirs.
type profile string

// Profiles. All but the first have few blocks, short cooldowns and, again and again, a plot:
// faults in a sequence that chance alone would hardly ever produce, with much inside it still
// left to chance.
const (
	plain          profile = "plain"
	lateLeader     profile = "late-leader"     // a leader sleeps, with or without a write in hand, while blocks go
	staleWatch     profile = "stale-watch"     // an operator leads with stale watches
	lostAnswer     profile = "lost-answer"     // claims that may or may not have been carried out
	competingClaim profile = "competing-claim" // two leaders want one block, or one comes to be another object
	staleLeader    profile = "stale-leader"    // blocks leave and come back, and a leader acts on an old state
)

func profiles() []profile {
	return []profile{plain, lateLeader, staleWatch, lostAnswer, competingClaim, staleLeader}
}

func parseProfile(s string) (profile, error) {
	if p := profile(s); slices.Contains(profiles(), p) {
		return p, nil
	}
	return "", fmt.Errorf("no such profile: %q; there are %s", s, profiles())
}

// profileOf returns the profile of a seed in a mode. One world in three of crd mode, and one in six
// of multi-pool mode, has a profile that allows no traits.
func profileOf(seed uint64, mode ciliumnode.Mode) profile {
	in := map[ciliumnode.Mode]int{ciliumnode.CRD: 3, ciliumnode.MultiPool: 6}[mode]
	if r := rand.New(rand.NewPCG(seed, 13)); in > 0 && r.IntN(in) == 0 {
		return []profile{competingClaim, staleLeader}[r.IntN(2)]
	}
	all := []profile{plain, lateLeader, staleWatch, lostAnswer, lateLeader} // where most fences are
	return all[rand.New(rand.NewPCG(seed, 3)).IntN(len(all))]
}

func (p profile) plot() plot {
	return map[profile]plot{
		lateLeader: (*director).lateLeader, staleWatch: (*director).staleWatch, lostAnswer: (*director).lostAnswer,
		competingClaim: (*director).competingClaim, staleLeader: (*director).staleLeader,
	}[p]
}

// needs returns the faults that a plot consists of.
func (p profile) needs() world.Faults {
	return map[profile]world.Faults{
		lateLeader:     world.Freeze | world.BlockEdits,
		staleWatch:     world.Lag | world.Freeze | world.BlockEdits,
		lostAnswer:     world.Lag | world.Unheard | world.Fail,
		competingClaim: world.Lag | world.Freeze | world.Kill | world.BlockEdits | world.PoolEdits | world.CiliumNodeGone | world.Edits | world.Restore,
		staleLeader:    world.Lag | world.HandlerLag | world.Freeze | world.Fail | world.BlockEdits | world.PoolEdits,
	}[p]
}

// unwanted returns the faults that would get in the way of a plot. Blocks of another size are
// created only where watches do not restart (docs/reliability.md).
func (p profile) unwanted() world.Faults {
	return map[profile]world.Faults{
		staleWatch:     world.Relist,
		competingClaim: world.Torn | world.NodeGone | world.StaleList,
		staleLeader:    world.NodeGone | world.CiliumNodeGone | world.Torn | world.Edits | world.Restore | world.StaleList,
	}[p]
}

// traitless reports whether only worlds without traits have the profile, in crd and multi-pool mode.
func (p profile) traitless() bool {
	return slices.Contains([]profile{competingClaim, staleLeader}, p)
}

// adapt changes the world of a seed to one of the profile.
func (p profile) adapt(seed uint64, c *world.Config) {
	if p == plain {
		return
	}
	r := rand.New(rand.NewPCG(seed, 4))
	c.Faults = c.Faults&^p.unwanted() | p.needs()
	ranges := c.Pools[0].Spec.IPv4
	if r.IntN(2) == 0 { // of two blocks or four
		ranges.CIDRs = []v1alpha1.PoolCIDR{{CIDR: "10.0.0.0/28"}}
	}
	if r.IntN(2) == 0 {
		c.Skew = 0
		for _, s := range []*time.Duration{&c.Settings.Defaults.Cooldown, &c.Upgraded.Defaults.Cooldown} {
			*s = 20 * time.Second
		}
	}
	c.Nodes = 2
	if p == staleLeader { // nodes begin with blocks of another pool; fences mark addresses that can be published
		ranges.CIDRs = []v1alpha1.PoolCIDR{{CIDR: "10.0.0.0/28", AllocationPolicy: v1alpha1.AllocationDrain}}
		ranges.AllowFirstIP, c.Other.Spec.IPv4.BlockSize, c.PodsPerNode = new(true), 29, 8
		c.Pools = append(c.Pools, c.Other)
	}
	if p == competingClaim { // a range gets the addresses that people write into pools
		c.Spare = []v1alpha1.PoolCIDR{{CIDR: "172.16.0.0/29"}}
	}
}
