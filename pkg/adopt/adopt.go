// Package adopt plans the blocks that take over another IPAM's addresses on nodes, and reports
// obstacles and each node's progress.
//
// It never talks to Kubernetes, reads a clock, or logs: plain values in, a plan of blocks and
// findings out. Same input in any order, same plan.
package adopt

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumconfig"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// Source is the IPAM mode that assigned a node its addresses, as Cilium names it
// (pkg/ipam/option/option.go, v1.20.1).
type Source string

// Sources.
const (
	// None: no other IPAM has assigned the node anything.
	None        Source = ""
	ClusterPool Source = "cluster-pool"
	Kubernetes  Source = "kubernetes"
	MultiPool   Source = "multi-pool"
	// CRD: a person or another program filled its pool.
	CRD Source = "crd"
)

// Node is the known state of one node.
type Node struct {
	Name string
	From Source
	// AssignedCIDRs are the CIDRs assigned to it, without host bits.
	AssignedCIDRs []netip.Prefix
	// Published are the addresses in spec.ipam.pool.
	Published []netip.Addr
	// Reported: its agent has reported the addresses it uses, so it runs in crd mode.
	Reported bool
	// Used are the addresses in use, and the source of that: the agent's report, the agent's
	// own addresses, and pods' statuses.
	Used map[netip.Addr]string
	// NonCanonical are pool keys in a non-canonical form.
	NonCanonical []netip.Addr
	// Pods, Own and Limits are as in expand.State.
	Pods   []expand.Pod
	Own    []netip.Addr
	Limits expand.Limits
	// Pools are the pools that serve the node, best first.
	Pools []*crd.Pool
	// Paused is why the operator would not change it. Empty: it would.
	Paused string
	// Agent is the image of its agent. Empty: no agent is Ready.
	Agent string
	// Chosen: create blocks for it. Other nodes count only with the addresses they hold.
	Chosen bool
}

// Input is the input of a plan.
type Input struct {
	Nodes []Node
	// Blocks are all existing blocks.
	Blocks []crd.Block
	// Pools are all existing pools, with overlaps between them resolved.
	Pools []*crd.Pool
	// Policy applies to nodes that no pool serves.
	Policy expand.Policy
	// Free returns the number of blocks that a pool has left for a family. Nil: unknown.
	Free func(pool *crd.Pool, f ipalloc.Family) uint64
	// Config is how agents are configured. Without Data it could not be read.
	Config *ciliumconfig.Config
	// Whole: nodes move to multi-pool mode, where the operator assigns whole blocks; else to crd mode.
	Whole bool
}

// Block is a block to be created, or an existing one.
type Block struct {
	CIDR   netip.Prefix `json:"cidr"`
	Pool   string       `json:"pool"`
	Exists bool         `json:"exists"`
}

// NodePlan is the plan for one node.
type NodePlan struct {
	Name   string
	From   Source
	Blocks []Block
	// Withdraw are blocks adopted earlier, for CIDRs that the node has since returned, and that
	// no agent can have used as ours.
	Withdraw []crd.Block
}

// Plan lists the blocks to create. Among these and the existing blocks that it does not
// withdraw, no two share an address.
type Plan struct {
	Nodes    []NodePlan
	Findings []Finding
}

// Blocked reports whether any finding blocks the plan.
func (p *Plan) Blocked() bool {
	return slices.ContainsFunc(p.Findings, func(f Finding) bool { return f.Severity == Blocked })
}

// Make computes the plan.
func Make(input Input) Plan {
	p := newPlanner(input)
	// 1. The needs of each node, on its own.
	for _, n := range p.nodes {
		p.adoptGiven(n)
		p.adoptByHand(n)
	}
	// 2. CIDRs that two nodes would both get.
	p.dropShared()
	// 3. Whether that is everything they need.
	var plan Plan
	for _, n := range p.nodes {
		if n.Chosen {
			p.lookAt(n)
			plan.Nodes = append(plan.Nodes, NodePlan{Name: n.Name, From: n.From, Blocks: sorted(n.blocks), Withdraw: n.withdraw})
		}
	}
	p.settings()
	plan.Findings = p.sortedFindings()
	return plan
}

// node is a Node and the plan for it.
type node struct {
	Node
	standing []crd.Block // its blocks that are not to be withdrawn
	blocks   []Block
	withdraw []crd.Block
}

type planner struct {
	Input
	nodes []*node
	// standing are the blocks that must stay; owners are the CIDRs that each node was assigned, publishes
	// or uses.
	standing index[crd.Block]
	owners   index[*node]
	findings []Finding
}

func newPlanner(input Input) *planner {
	p := &planner{Input: input}
	for _, n := range input.Nodes {
		p.nodes = append(p.nodes, &node{Node: n})
	}
	slices.SortFunc(p.nodes, func(a, b *node) int { return cmp.Compare(a.Name, b.Name) })
	for _, b := range slices.SortedFunc(slices.Values(input.Blocks), func(a, b crd.Block) int { return a.CIDR.Compare(b.CIDR) }) {
		n := p.node(b.Node)
		if n != nil && n.stale(b) {
			n.withdraw = append(n.withdraw, b)
			continue
		}
		if n != nil {
			n.standing = append(n.standing, b)
		}
		p.standing.add(b.CIDR, b)
	}
	for _, n := range p.nodes {
		for _, cidr := range n.AssignedCIDRs {
			p.owners.add(cidr, n)
		}
		for _, addr := range n.Published {
			p.owners.add(ipalloc.Single(addr), n)
		}
		for addr := range n.Used {
			p.owners.add(ipalloc.Single(addr), n)
		}
	}
	p.standing.sort()
	p.owners.sort()
	return p
}

func (p *planner) node(name string) *node {
	i, found := slices.BinarySearchFunc(p.nodes, name, func(n *node, name string) int { return cmp.Compare(n.Name, name) })
	if !found {
		return nil
	}
	return p.nodes[i]
}

// stale reports whether a block was adopted, and its CIDR returned by the old IPAM before the
// node's agent read any of it.
func (n *node) stale(b crd.Block) bool {
	return n.Chosen && b.AdoptedFrom != "" && !b.Deleting && !n.Reported && !ipalloc.Covered(b.CIDR, n.AssignedCIDRs) &&
		!slices.ContainsFunc(n.Published, b.CIDR.Contains)
}

// covered reports whether the node already holds cidr, or the plan adds it.
func (n *node) covered(cidr netip.Prefix) bool {
	contains := func(b crd.Block) bool { return ipalloc.Contains(b.CIDR, cidr) }
	plans := func(b Block) bool { return ipalloc.Contains(b.CIDR, cidr) }
	return slices.ContainsFunc(n.standing, contains) || slices.ContainsFunc(n.blocks, plans)
}

func sorted(blocks []Block) []Block {
	return slices.SortedFunc(slices.Values(blocks), func(a, b Block) int { return a.CIDR.Compare(b.CIDR) })
}
