package main

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/test/agent"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant/whole"
)

// mode is the IPAM mode of the agents, with the differences between runs that depend on it.
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

// operatorFlags returns the operator's flags beyond the flags of crd mode.
func (m mode) operatorFlags() []string {
	switch m {
	case crdMode:
		return nil
	case multiPoolMode:
		return []string{"--mode=" + string(m), "--park-draining-blocks", "--compact-blocks"}
	}
	return []string{"--mode=" + string(m)}
}

// cooldown returns the time of a block's cooldown. Multi-pool mode allows no less.
func (m mode) cooldown() time.Duration {
	if m == multiPoolMode {
		return crd.MinMultiPoolCooldown
	}
	return 2 * time.Second
}

// carrier returns how agents are assigned whole blocks; false if they are assigned addresses.
func (m mode) carrier() (whole.Carrier, bool) {
	switch m {
	case multiPoolMode:
		return whole.InPools(), true
	case kubernetesMode:
		return whole.OnNode(), true
	}
	return whole.Carrier{}, false
}

// blockBits returns the prefix length of blocks. In kubernetes mode a node has one block for
// all pods that it will ever have.
func (m mode) blockBits() int {
	if m == kubernetesMode {
		return 24
	}
	return 28
}

// atLeast returns the least number of blocks in each of a zone's two initial CIDRs. In
// kubernetes mode a node needs exactly one block.
func (m mode) atLeast(nodes int) int {
	if m == kubernetesMode {
		return (nodes + 2*len(zones) - 1) / (2 * len(zones))
	}
	return nodes / len(zones)
}

// plentyBits returns the difference in bits between these and the CIDR that ends all shortages.
func (m mode) plentyBits() int {
	if m == kubernetesMode {
		return 1
	}
	return 3
}

// mostPods returns the most pods that load creates on a node; 0: any number. In kubernetes
// mode a node cannot grow. Half of its block is left for pods that still exist when load
// considers them deleted.
func (m mode) mostPods() int {
	if m == kubernetesMode {
		return 100
	}
	return 0
}

// nodesAway returns the longest time that replaced nodes are gone: long enough for some blocks
// to move to other nodes, which in kubernetes mode happens in no other way.
func (m mode) nodesAway() time.Duration {
	if m == kubernetesMode {
		return nodeGone * 3
	}
	return nodeGone * 3 / 2
}

// least is the minimum that a run must have done: claims beyond one per node, and so on. In
// kubernetes mode blocks move only with their nodes.
type least struct{ more, releases, again, handshakes, givenBack int }

func (m mode) least(small bool) least {
	if small {
		return least{more: 1, releases: 1}
	}
	switch m {
	case multiPoolMode:
		return least{more: 5, releases: 5, again: 1, givenBack: 5}
	case kubernetesMode:
		return least{more: 1, releases: 1}
	}
	return least{more: 5, releases: 5, again: 1, handshakes: 50}
}

// ciliumPools are the Cilium pools that PodIPPools serve in each zone.
func (m mode) ciliumPools() []string {
	if m == multiPoolMode {
		return []string{crd.DefaultCiliumPool, blue}
	}
	return []string{crd.DefaultCiliumPool}
}

const blue = "blue"

// annotationsOf are those of a pod; in multi-pool mode three of ten pods request pool blue.
func (m mode) annotationsOf(pod string) map[string]string {
	if m == multiPoolMode && strings.ContainsAny(pod[len(pod)-1:], "147") {
		return map[string]string{"ipam.cilium.io/ip-pool": blue}
	}
	return nil
}

// families are the families that agents run, and that pools have.
func (m mode) families() []agent.Family {
	if m == multiPoolMode {
		return []agent.Family{agent.IPv4, agent.IPv6}
	}
	return []agent.Family{agent.IPv4}
}

// ownAddresses is the number of an agent's own addresses: of each family its router's and one for
// health checks.
func (m mode) ownAddresses() int { return 2 * len(m.families()) }

// preAllocate is the number of free addresses of pool default that an agent in multi-pool mode
// keeps of each family: together with its own two no more than one block has.
const preAllocate = 4

// listOf returns the blocks that other nodes route to a node.
func (m mode) listOf(cn *ciliumv2.CiliumNode) []netip.Prefix {
	if m == multiPoolMode {
		return whole.AssignedIn(cn, "")
	}
	var out []netip.Prefix
	for _, cidr := range cn.Spec.IPAM.PodCIDRs {
		out = append(out, cidr.Prefix)
	}
	return out
}
