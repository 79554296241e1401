package adopt

import (
	"cmp"
	"fmt"
	"slices"
)

// Severity is how bad a finding is.
type Severity string

// Severities.
const (
	// Blocked: nothing may be written for the node.
	Blocked Severity = "blocked"
	// Warning: look at it before.
	Warning Severity = "warning"
)

// Reason names a kind of finding. Reasons are stable: scripts may match them.
type Reason string

// Reasons. The first ones block.
const (
	// TwoNodes: two nodes have the same addresses.
	TwoNodes Reason = "TwoNodes"
	// OverlapsBlock: a block of another size or node is in the way.
	OverlapsBlock Reason = "OverlapsBlock"
	// OutsidePools: no PodIPPool has the addresses.
	OutsidePools Reason = "OutsidePools"
	// SpansRanges: a PodIPPool has a part of them, or in several ranges.
	SpansRanges Reason = "SpansRanges"
	// TooLarge: more addresses than a block may have.
	TooLarge Reason = "TooLarge"
	// AddressOutside: an address in use is in nothing that the node was given.
	AddressOutside Reason = "AddressOutside"
	// OddKeys: spec.ipam.pool has keys in another than the canonical form.
	OddKeys Reason = "OddKeys"
	// NodePaused: the operator would publish nothing.
	NodePaused Reason = "NodePaused"
	// BlockLeaves: a block that the node must keep drains, cools down or is deleted.
	BlockLeaves Reason = "BlockLeaves"
	// NothingGiven: pods have addresses, and no IPAM has assigned the node any.
	NothingGiven Reason = "NothingGiven"

	// RangeDrains: its range has the allocation policy Drain, so its block will.
	RangeDrains Reason = "RangeDrains"
	// NotItsPool: the pool that has the addresses does not serve the node.
	NotItsPool Reason = "NotItsPool"
	// NoPool: no pool serves the node, so that it cannot grow.
	NoPool Reason = "NoPool"
	// TooManyBlocks: more than the pool lets a node have; it cannot grow.
	TooManyBlocks Reason = "TooManyBlocks"
	// TooManyAddresses: more than a CiliumNode may list.
	TooManyAddresses Reason = "TooManyAddresses"
	// FreeSpace: the node needs more than it is given, or the pool has no more.
	FreeSpace Reason = "FreeSpace"
	// MoreThanBefore: blocks have addresses that the pool filled by hand had not.
	MoreThanBefore Reason = "MoreThanBefore"
	// AgentMissing: no agent is Ready on the node.
	AgentMissing Reason = "AgentMissing"
	// Version: of an agent, and not tried.
	Version Reason = "Version"
	// Settings: of Cilium, that crd mode needs otherwise.
	Settings Reason = "Settings"
)

// Finding is something that stands in the way, or should be known before.
type Finding struct {
	Severity Severity `json:"severity"`
	// Node is empty where it is about the cluster.
	Node   string `json:"node,omitempty"`
	Reason Reason `json:"reason"`
	// Message is what is so, Fix what to do.
	Message string `json:"message"`
	Fix     string `json:"fix"`
}

func (f Finding) String() string {
	where := f.Node
	if where == "" {
		where = "-"
	}
	return fmt.Sprintf("%s  %s  %s: %s. %s.", f.Severity, where, f.Reason, f.Message, f.Fix)
}

func (p *planner) block(n *node, r Reason, fix, format string, args ...any) {
	p.find(Blocked, n, r, fix, format, args...)
}

func (p *planner) warn(n *node, r Reason, fix, format string, args ...any) {
	p.find(Warning, n, r, fix, format, args...)
}

// find adds no finding for nodes that are not chosen.
func (p *planner) find(s Severity, n *node, r Reason, fix, format string, args ...any) {
	if n == nil || n.Chosen {
		f := Finding{Severity: s, Reason: r, Message: fmt.Sprintf(format, args...), Fix: fix}
		if n != nil {
			f.Node = n.Name
		}
		p.findings = append(p.findings, f)
	}
}

// sortedFindings has what blocks first, the cluster before nodes.
func (p *planner) sortedFindings() []Finding {
	slices.SortFunc(p.findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Severity, b.Severity), cmp.Compare(a.Node, b.Node),
			cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Message, b.Message))
	})
	return slices.Compact(p.findings)
}
