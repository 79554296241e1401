package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/sim/world"
)

// profile is a kind of world. Replays name theirs.
type profile string

// Profiles. In each but the first there are few blocks and short rests, and again
// and again a plot: things that go wrong one after the other, with much of it left
// to chance, as chance alone would hardly ever bring them together.
const (
	plain      profile = "plain"
	lateLeader profile = "late-leader" // a leader sleeps, with or without a write in hand, while blocks go
	blind      profile = "blind"       // an operator leads that watches have not shown what it must know
	lostAnswer profile = "lost-answer" // claims whose outcome the operator does not know
)

func profiles() []profile { return []profile{plain, lateLeader, blind, lostAnswer} }

func parseProfile(s string) (profile, error) {
	if p := profile(s); slices.Contains(profiles(), p) {
		return p, nil
	}
	return "", fmt.Errorf("no such profile: %q; there are %s", s, profiles())
}

// profileOf is the profile of a seed.
func profileOf(seed uint64) profile {
	all := append(profiles(), lateLeader) // where most fences are
	return all[rand.New(rand.NewPCG(seed, 3)).IntN(len(all))]
}

func (p profile) plot() func(*director) {
	return map[profile]func(*director){
		lateLeader: (*director).lateLeader, blind: (*director).blind, lostAnswer: (*director).lostAnswer,
	}[p]
}

// needs are the faults that a plot is made of.
func (p profile) needs() world.Faults {
	return map[profile]world.Faults{
		lateLeader: world.Freeze | world.BlockEdits,
		blind:      world.Lag | world.Freeze | world.BlockEdits,
		lostAnswer: world.Lag | world.Unheard | world.Fail,
	}[p]
}

// unwanted are the faults that stand in a plot's way: blocks of another size are
// made only where watches do not begin anew (docs/reliability.md).
func (p profile) unwanted() world.Faults {
	return map[profile]world.Faults{blind: world.Relist}[p]
}

// adapt turns the world of a seed into one for the profile.
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
}
