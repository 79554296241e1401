package expand

import (
	"net/netip"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// Plan is what is to be done for one node and family, in the order of its
// fields. Every slice is sorted. The zero Plan does nothing.
type Plan struct {
	// Node and Family are whose plan it is, as in State.
	Node   string
	Family ipalloc.Family

	// Undrain puts blocks back into service: the condition goes first, the
	// handshake entries and missing addresses follow in later plans.
	Undrain []netip.Prefix
	// Drain sets the condition Draining.
	Drain []Drain
	// Clear deletes release-ips entries.
	Clear []netip.Addr
	// Mark sets release-ips entries to marked-for-release.
	Mark []netip.Addr
	// Claim asks for new blocks. Zero: none.
	Claim Claim
	// Publish adds addresses of blocks in service to the pool.
	Publish []netip.Addr
	// Remove takes acked and held addresses out of the pool.
	Remove []netip.Addr
	// Free lets blocks without a published address cool down.
	Free []Free
	// Delete gives up blocks that have rested long enough.
	Delete []netip.Prefix

	// Demand is how many addresses the node needs now, Capacity how many it
	// can use once this plan's Undrain and Publish are done, without Claim.
	Demand, Capacity int
	// ServedElsewhere is how much of a Demand above Capacity is met by blocks
	// that leave, or by addresses in no block.
	ServedElsewhere int
	// Shortage is by how much Demand exceeds what MaxBlocks, MaxAddresses and
	// max-allocate let the node have; 0 while demand can be met.
	Shortage int
	// Overdue is how many blocks would be reclaimed now but for ReclaimBudget and
	// ReclaimHold.
	Overdue int
	// Waits says what each draining block, or block that must drain, waits for.
	Waits []Wait
	// Again is when to decide again though nothing changes. Zero: no need.
	Again time.Time
}

// Drain is a block that starts to drain.
type Drain struct {
	CIDR   netip.Prefix
	Reason Reason
}

// Free is a block that starts to cool down.
type Free struct {
	CIDR   netip.Prefix
	Reason Reason
}

// Claim asks for blocks until they bring Addresses usable ones, but no more
// than Blocks blocks, of which no more than Room addresses are published.
type Claim struct {
	Addresses, Blocks, Room int
}

// Wait is what a block waits for.
type Wait struct {
	CIDR netip.Prefix
	For  WaitReason
	// By names the pods (or the agent's own use, as "router") that still use
	// the block, sorted, where For is WaitPods or WaitAgent.
	By []string
	// Until is when a wait for WaitWindow or WaitTurn may end. Zero: not known.
	Until time.Time
}

// WaitReason is what a drain waits for.
type WaitReason string

// What a drain can wait for.
const (
	// WaitPods: pods still use it.
	WaitPods WaitReason = "Pods"
	// WaitAgent: the agent's own addresses (router, health, ingress) are in it.
	WaitAgent WaitReason = "AgentAddress"
	// WaitReplacement: the node has no addresses to replace it with.
	WaitReplacement WaitReason = "Replacement"
	// WaitHandshake: the agent's answer, or the hold after it.
	WaitHandshake WaitReason = "Handshake"
	// WaitReturn: the agent, which is told whole blocks, still lists it.
	WaitReturn WaitReason = "Return"
	// WaitPodAddress: pods have just come whose addresses nobody has told yet.
	WaitPodAddress WaitReason = "PodAddress"
	// WaitWindow: it has not begun, as no maintenance window is open.
	WaitWindow WaitReason = "Window"
	// WaitTurn: it has not begun, as as many as may per hour have.
	WaitTurn WaitReason = "Turn"
	// WaitUnsettled: the agent is not (yet) running steadily.
	WaitUnsettled WaitReason = "AgentNotSettled"
	// WaitFamily: the agent does not run the family, so it answers no mark.
	WaitFamily WaitReason = "FamilyNotRun"
)
