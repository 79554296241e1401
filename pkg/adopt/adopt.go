package adopt

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// Source is the IPAM mode that gave a node its addresses, as Cilium names it
// (pkg/ipam/option/option.go, v1.20.1).
type Source string

// Sources.
const (
	// None: no other IPAM has assigned the node anything.
	None        Source = ""
	ClusterPool Source = "cluster-pool"
	Kubernetes  Source = "kubernetes"
	MultiPool   Source = "multi-pool"
	// CRD: its pool was filled by hand, or by another program.
	CRD Source = "crd"
)

// Node is what is known of one node.
type Node struct {
	Name string
	From Source
	// AssignedCIDRs are the CIDRs that it was given, without host bits.
	AssignedCIDRs []netip.Prefix
	// Published are the addresses in spec.ipam.pool.
	Published []netip.Addr
	// Reported: its agent has reported what it uses, so it runs in crd mode.
	Reported bool
	// Used are the addresses in use, and who says so: the agent's report, the
	// agent's own, and pods' status.
	Used map[netip.Addr]string
	// NonCanonical are pool keys in another than the canonical form.
	NonCanonical []netip.Addr
	// Pods, Own and Limits are as expand.State has them.
	Pods   []expand.Pod
	Own    []netip.Addr
	Limits expand.Limits
	// Pools are those that serve the node, best first.
	Pools []*crd.Pool
	// Paused is why the operator would change nothing on it. Empty: it would.
	Paused string
	// Agent is the image of its agent. Empty: it has none that is Ready.
	Agent string
	// Chosen: create blocks for it. The others count only for what they hold.
	Chosen bool
}

// Input is what a plan is made of.
type Input struct {
	Nodes []Node
	// Blocks are all that there are.
	Blocks []crd.Block
	// Pools are all that there are, with overlaps between them resolved.
	Pools []*crd.Pool
	// Policy holds for nodes that no pool serves.
	Policy expand.Policy
	// Free is how many blocks a pool has left for a family. Nil: unknown.
	Free func(pool *crd.Pool, f ipalloc.Family) uint64
	// Config is the ConfigMap cilium-config. Nil: it could not be read.
	Config map[string]string
}

// Block is a block to be made, or one that is there already.
type Block struct {
	CIDR   netip.Prefix
	Pool   string
	Exists bool
}

// NodePlan is the plan for one node.
type NodePlan struct {
	Name   string
	From   Source
	Blocks []Block
	// Withdraw are blocks adopted before, of CIDRs that the node has returned
	// since, and that no agent can have used as ours.
	Withdraw []crd.Block
}

// Plan says which blocks to make. Of all blocks in it, and those there are that it
// does not withdraw, no two share an address.
type Plan struct {
	Nodes    []NodePlan
	Findings []Finding
}

// Blocked reports whether anything stands in the way.
func (p *Plan) Blocked() bool {
	return slices.ContainsFunc(p.Findings, func(f Finding) bool { return f.Severity == Blocked })
}

// Make works out the plan.
func Make(in Input) Plan {
	p := newPlanner(in)
	// 1. What each node has to have, by itself.
	for _, n := range p.nodes {
		p.adoptGiven(n)
		p.adoptByHand(n)
	}
	// 2. What two of them want.
	p.dropShared()
	// 3. Is that all they need?
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

// node is a Node and what has been worked out for it.
type node struct {
	Node
	blocks   []Block
	withdraw []crd.Block
}

type planner struct {
	Input
	nodes    []*node
	held     []crd.Block // not to be withdrawn
	findings []Finding
}

func newPlanner(in Input) *planner {
	p := &planner{Input: in}
	for _, n := range in.Nodes {
		p.nodes = append(p.nodes, &node{Node: n})
	}
	slices.SortFunc(p.nodes, func(a, b *node) int { return cmp.Compare(a.Name, b.Name) })
	for _, b := range slices.SortedFunc(slices.Values(in.Blocks), func(a, b crd.Block) int { return a.CIDR.Compare(b.CIDR) }) {
		if n := p.node(b.Node); n != nil && n.stale(b) {
			n.withdraw = append(n.withdraw, b)
			continue
		}
		p.held = append(p.held, b)
	}
	return p
}

func (p *planner) node(name string) *node {
	i, found := slices.BinarySearchFunc(p.nodes, name, func(n *node, name string) int { return cmp.Compare(n.Name, name) })
	if !found {
		return nil
	}
	return p.nodes[i]
}

// stale says that a block was adopted, and its CIDR returned by the old IPAM
// before the node's agent read anything of it.
func (n *node) stale(b crd.Block) bool {
	return n.Chosen && b.AdoptedFrom != "" && !b.Deleting && !n.Reported && !ipalloc.Covered(b.CIDR, n.AssignedCIDRs) &&
		!slices.ContainsFunc(n.Published, b.CIDR.Contains)
}

// covered reports whether the node holds cidr already, or the plan adds it.
func (p *planner) covered(n *node, cidr netip.Prefix) bool {
	holds := func(b crd.Block) bool { return b.Node == n.Name && ipalloc.Contains(b.CIDR, cidr) }
	plans := func(b Block) bool { return ipalloc.Contains(b.CIDR, cidr) }
	return slices.ContainsFunc(p.held, holds) || slices.ContainsFunc(n.blocks, plans)
}

func sorted(blocks []Block) []Block {
	return slices.SortedFunc(slices.Values(blocks), func(a, b Block) int { return a.CIDR.Compare(b.CIDR) })
}
