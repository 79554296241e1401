package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/test/agent"
	"github.com/cilium-pool/cilium-pool-operator/test/chaos/claims"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant/whole"
)

// mode is the IPAM mode of the agents, and what of a run differs by it. The zero
// mode is crd.
type mode agent.IPAM

const (
	crdMode        = mode(agent.CRD)
	multiPoolMode  = mode(agent.MultiPool)
	kubernetesMode = mode(agent.Kubernetes)
)

func parseMode(name string) (mode, error) {
	if m := mode(name); slices.Contains([]mode{crdMode, multiPoolMode, kubernetesMode}, m) {
		return m, nil
	}
	return "", errors.New("must be crd, multi-pool or kubernetes")
}

func (m mode) String() string { return string(cmp.Or(m, crdMode)) }

// is compares modes.
func (m mode) is(other mode) bool { return m.String() == other.String() }

// operatorFlags are what an operator is told beside what it is in crd mode.
func (m mode) operatorFlags() []string {
	if m.is(crdMode) {
		return nil
	}
	return []string{"--mode=" + m.String()}
}

// carrier is where agents are told whole blocks; false: they are told addresses.
func (m mode) carrier() (whole.Carrier, bool) {
	switch m {
	case multiPoolMode:
		return whole.InPools(), true
	case kubernetesMode:
		return whole.OnNode(), true
	}
	return whole.Carrier{}, false
}

// auditPolicy logs the writes of what tells agents their blocks.
func (m mode) auditPolicy() string {
	if m.is(kubernetesMode) {
		return claims.NodeAuditPolicy
	}
	return claims.AuditPolicy
}

// blockBits is the prefix length of blocks. In kubernetes mode a node has one, for
// as many pods as it will ever have.
func (m mode) blockBits() int {
	if m.is(kubernetesMode) {
		return 24
	}
	return 28
}

// atLeast is how many blocks one of a zone's CIDRs has at least, of which there are
// two from the beginning. In kubernetes mode a node needs one block and no more.
func (m mode) atLeast(nodes int) int {
	if m.is(kubernetesMode) {
		return (nodes + 2*len(zones) - 1) / (2 * len(zones))
	}
	return nodes / len(zones)
}

// plentyBits is how much larger than these the CIDR is that ends all want, in bits.
func (m mode) plentyBits() int {
	if m.is(kubernetesMode) {
		return 1
	}
	return 3
}

// mostPods is how many pods people give a node; 0: any number. In kubernetes mode
// a node cannot grow. Half of its block is left for pods that are still there when
// people think that they are not.
func (m mode) mostPods() int {
	if m.is(kubernetesMode) {
		return 100
	}
	return 0
}

// nodesAway is how long nodes are gone at most that people replace: long enough for
// some blocks to go to others. In kubernetes mode no other way leads there.
func (m mode) nodesAway() time.Duration {
	if m.is(kubernetesMode) {
		return nodeGone * 3
	}
	return nodeGone * 3 / 2
}

// returns tells how much agents gave back.
func (m mode) returns(v verdict) string {
	switch m {
	case multiPoolMode:
		return fmt.Sprintf("%d given back", v.GivenBack)
	case kubernetesMode:
		return "none given back"
	}
	return fmt.Sprintf("%d handshakes", v.Handshakes)
}

// least is what must have happened at least: claims beyond one for each node, and
// so on. In kubernetes mode blocks move with their nodes alone.
type least struct{ more, releases, again, handshakes, givenBack int }

func (m mode) least() least {
	switch m {
	case multiPoolMode:
		return least{more: 5, releases: 5, again: 1, givenBack: 5}
	case kubernetesMode:
		return least{more: 1, releases: 1}
	}
	return least{more: 5, releases: 5, again: 1, handshakes: 50}
}

// preAllocate is how many addresses an agent in multi-pool mode wants to have free:
// with its own two no more than one block has.
const preAllocate = 4
