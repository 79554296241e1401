package adopt

import (
	"cmp"
	"fmt"
	"slices"
)

// Severity is how severe a finding is.
type Severity string

// Severities.
const (
	// Blocked: no block may be written for the node.
	Blocked Severity = "blocked"
	// Warning: check it before you continue.
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
	// OutsidePools: no PodIPPool contains the addresses.
	OutsidePools Reason = "OutsidePools"
	// SpansRanges: a PodIPPool contains only a part of them, or in several ranges.
	SpansRanges Reason = "SpansRanges"
	// TooLarge: more addresses than a block may have.
	TooLarge Reason = "TooLarge"
	// AddressOutside: an address in use lies in no CIDR assigned to the node.
	AddressOutside Reason = "AddressOutside"
	// EdgeAddress: an address in use is the first or last of a CIDR, and the new mode assigns none such.
	EdgeAddress Reason = "EdgeAddress"
	// OddKeys: spec.ipam.pool has keys in a non-canonical form.
	OddKeys Reason = "OddKeys"
	// NodePaused: the operator would publish no address.
	NodePaused Reason = "NodePaused"
	// BlockLeaves: a block that the node must keep drains, cools down or is deleted.
	BlockLeaves Reason = "BlockLeaves"
	// NothingGiven: pods have addresses, and no IPAM has assigned any to the node.
	NothingGiven Reason = "NothingGiven"

	// RangeDrains: its range has the allocation policy Drain, so its block will drain.
	RangeDrains Reason = "RangeDrains"
	// NotItsPool: the pool that contains the addresses does not serve the node.
	NotItsPool Reason = "NotItsPool"
	// NoPool: no pool serves the node, so that it cannot grow.
	NoPool Reason = "NoPool"
	// TooManyBlocks: more than the pool allows per node; the node cannot grow.
	TooManyBlocks Reason = "TooManyBlocks"
	// TooManyAddresses: more than a CiliumNode may list.
	TooManyAddresses Reason = "TooManyAddresses"
	// FreeSpace: the node needs more than it has been assigned, or the pool has no more.
	FreeSpace Reason = "FreeSpace"
	// MoreThanBefore: blocks contain addresses that the pool of the old IPAM did not have.
	MoreThanBefore Reason = "MoreThanBefore"
	// AgentMissing: no agent is Ready on the node.
	AgentMissing Reason = "AgentMissing"
	// Version: an agent's version has not been tested.
	Version Reason = "Version"
	// Settings: Cilium settings that the new mode needs to be different.
	Settings Reason = "Settings"
)

// Finding is something that blocks a migration, or that users should know before it.
type Finding struct {
	Severity Severity `json:"severity"`
	// Node is empty if the finding is about the cluster.
	Node   string `json:"node,omitempty"`
	Reason Reason `json:"reason"`
	// Message is the finding, Fix the remedy.
	Message string `json:"message"`
	Fix     string `json:"fix"`
}

func (f Finding) String() string {
	subject := f.Node
	if subject == "" {
		subject = "-"
	}
	return fmt.Sprintf("%s  %s  %s: %s. %s.", f.Severity, subject, f.Reason, f.Message, f.Fix)
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

// sortedFindings returns blocking findings first, and findings of the cluster before those of
// nodes.
func (p *planner) sortedFindings() []Finding {
	slices.SortFunc(p.findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Severity, b.Severity), cmp.Compare(a.Node, b.Node),
			cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Message, b.Message))
	})
	return slices.Compact(p.findings)
}
