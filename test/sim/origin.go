package main

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/test/sim/world"
)

// origin determines a world: the same origin and the same actions give the same world.
type origin struct {
	seed    uint64
	mode    ciliumnode.Mode
	profile profile
	traits  traits
	// modelAlone: only the model of the address protocol judges.
	modelAlone bool
}

// originOf draws everything from a seed that the flags leave open.
func originOf(seed uint64) origin {
	mode := modeOf(seed)
	return origin{seed: seed, mode: mode, profile: profileOf(seed, mode), traits: (traitsOf(seed) | apartOf(seed)).in(mode)}.fit()
}

// fit removes the traits that a profile cannot use: some profiles exist in crd mode only, without
// pacing, holds and moves.
func (o origin) fit() origin {
	if o.profile.ofCRD() {
		o.mode, o.traits = ciliumnode.CRD, 0
	}
	switch {
	case o.traits.has(scheduling):
		o.traits &= withScheduling
	case o.traits.has(adoption):
		o.traits &^= families
	}
	if o.traits&(adoption|pools|scheduling) == 0 {
		o.traits &^= dual
	}
	return o
}

// modes are the modes that worlds can have.
func modes() []ciliumnode.Mode { return ciliumnode.Modes() }

func parseMode(s string) (ciliumnode.Mode, error) {
	if m := ciliumnode.Mode(s); slices.Contains(modes(), m) {
		return m, nil
	}
	return "", fmt.Errorf("no such mode here: %q; there are %s", s, modes())
}

// modeOf returns the mode of a seed: crd for three in four.
func modeOf(seed uint64) ciliumnode.Mode {
	if r := rand.New(rand.NewPCG(seed, 8)); r.IntN(4) == 0 {
		return modes()[1+r.IntN(len(modes())-1)]
	}
	return ciliumnode.CRD
}

// faultsIn returns the faults possible in a mode. Only agents in crd mode report; in kubernetes
// mode the CiliumNode belongs to the agent alone.
func faultsIn(mode ciliumnode.Mode) world.Faults {
	switch mode {
	case ciliumnode.MultiPool:
		return world.AllFaults() &^ world.AgentEmpty
	case ciliumnode.Kubernetes:
		return world.AllFaults() &^ (world.AgentEmpty | world.CiliumNodeGone | world.Edits)
	}
	return world.AllFaults()
}

// adaptTo switches the world of a seed to a mode other than crd. Migrations from another IPAM
// are left to worlds in crd mode.
func adaptTo(mode ciliumnode.Mode, seed uint64, c *world.Config) {
	if mode == ciliumnode.CRD {
		return
	}
	r := rand.New(rand.NewPCG(seed, 9))
	c.Settings.Mode, c.Upgraded.Mode = mode, mode
	c.Reserve = map[string]int{crd.DefaultCiliumPool: []int{1, 2, 4}[r.IntN(3)]}
	c.Faults &= faultsIn(mode)
}

// weighIn prefers the actions that release blocks in kubernetes mode while their Node exists:
// blocks that were never assigned to it and that users delete.
func weighIn(mode ciliumnode.Mode, w map[world.Verb]float64) {
	if mode == ciliumnode.Kubernetes {
		w[world.BlockMake] *= 3
		w[world.BlockDelete] *= 3
	}
}
