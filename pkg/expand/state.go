package expand

import (
	"net/netip"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// State is what is known of one node, for one address family.
type State struct {
	// Node is the node's name, for the Plan's String only.
	Node   string
	Family ipalloc.Family
	// Gone says that the Node and its CiliumNode have been seen, live, to be
	// gone: its blocks only cool down.
	Gone bool

	// Blocks are all blocks the node holds, in any phase, sorted by address.
	Blocks []Block
	// Pool is the CiliumNode's spec.ipam.pool: address to the owner a person
	// wrote there ("": anybody's). Entries outside every block are foreign:
	// they count as capacity and are never touched.
	Pool map[netip.Addr]string
	// Used is status.ipam.used: address to owner, as in "default/web-0",
	// "default/web-0 [restored]", "router", "health", "ingress". Empty: the
	// agent has not reported.
	Used map[netip.Addr]string
	// BlockDemand is set where the agent is told whole blocks: Pool is empty then, and
	// Used are its own addresses.
	BlockDemand *BlockDemand
	// Adopting says that the agent has yet to come up in crd mode on blocks that
	// another IPAM has cut. It reads nothing of the pool and answers no mark, and the
	// node's routes are the other IPAM's: nothing but publishing is safe.
	Adopting bool
	// Release is status.ipam.release-ips.
	Release map[netip.Addr]ReleaseStatus
	// Own are the CiliumNode's own addresses (internal, health, ingress).
	Own []netip.Addr
	// Pods are those bound to the node that need an address: not on the host
	// network, not Succeeded or Failed.
	Pods []Pod
	// MaxPods is how many pods the kubelet admits. Pods bound beyond that are no
	// demand unless they have an address. 0: not known, so there is no bound.
	MaxPods int
	// Limits are what a person wrote into the CiliumNode.
	Limits Limits
	// Fresh says that no agent has read the CiliumNode yet: what is marked now, no agent
	// ever gives to a pod, and none has a pod to restore there.
	Fresh bool
	// NotRun says that the agent does not run the family: no pod can have an address
	// of it, and the agent answers no mark.
	NotRun bool

	// AgentSettled says that the agent's pod has been Ready for a while with
	// the same container, so that its answers and its report can be believed.
	AgentSettled bool
	// ReclaimBudget is how many reclaims may start now.
	ReclaimBudget int
	// ReclaimHold keeps reclaims from starting, whatever the budget.
	ReclaimHold Hold
	// PoolTaken is how many percent of the blocks of the pools from which it has
	// blocks in service are taken; of several pools, of the fullest.
	PoolTaken int
	// Cordoned says that no new pod is scheduled to the node.
	Cordoned bool
}

// Hold is what keeps blocks from beginning to leave, though they should. The zero
// Hold keeps nothing.
type Hold struct {
	// For is what they wait for: WaitWindow or WaitTurn.
	For WaitReason
	// Until is when to ask again. Zero: not before somebody changes something.
	Until time.Time
}

// Block is a block the node holds.
type Block struct {
	CIDR netip.Prefix
	// Usable are the addresses that may be published, sorted: all but the
	// reserved and, unless allowed, the first and last.
	Usable []netip.Addr
	Phase  ipalloc.Phase
	// Reason is why it is in Phase. Zero while in service.
	Reason Reason
	// Request is why it must go, whatever the use: it was deleted, its range
	// drains, its pool is being deleted. Zero: nobody asks.
	Request Reason
	// Hold keeps Request from being heeded: until it ends, a block in service
	// serves on, and nothing is claimed in its place. A drain that has begun goes
	// on whatever the Hold.
	Hold Hold
	// Conflict: it overlaps an older block. Nothing of it is published.
	Conflict bool
	// Orphaned: its pool is gone, and nothing tells for which of Cilium's pools it is.
	// It is not listed, and cannot come to be.
	Orphaned bool
	// Listed: the CiliumNode's podCIDRs name it.
	Listed bool
	// Leftover: it also stands where an agent reads that is told addresses, and the
	// report of one stands. It may run still, whatever an agent that is told whole
	// blocks has said before or since.
	Leftover bool
	// RestUntil is when a block that cools down may be given to others.
	RestUntil time.Time
}

// Reason is why a block is draining or cooling down.
type Reason string

// Reasons. The API's condition reasons are the same words.
const (
	None         Reason = ""
	Reclaim      Reason = "Reclaim"
	Deleted      Reason = "Deleted"
	CIDRDraining Reason = "CIDRDraining"
	PoolDeleted  Reason = "PoolDeleted"
	PoolChanged  Reason = "PoolChanged"
	Returned     Reason = "Returned"
	NodeGone     Reason = "NodeGone"
)

// Pod is a pod bound to the node.
type Pod struct {
	// Name is "namespace/name".
	Name string
	// IPs are its status.podIPs, of any family.
	IPs []netip.Addr
	// Seen is when it was first seen bound to the node. Until then plus
	// AckTimeout, while nothing tells its address, nothing is marked for
	// release: it may be any that looks free.
	Seen time.Time
}

// Limits are the CiliumNode's spec.ipam.{min,pre,max}-allocate and
// max-above-watermark; 0 is unset. They hold for each family by itself.
type Limits struct {
	MinAllocate, PreAllocate, MaxAllocate, MaxAboveWatermark int
}

// ReleaseStatus is a state of the release handshake, as Cilium names it
// (pkg/ipam/option/option.go in v1.20.1).
type ReleaseStatus string

// States of the release handshake.
const (
	Marked       ReleaseStatus = "marked-for-release"
	Ready        ReleaseStatus = "ready-for-release"
	DoNotRelease ReleaseStatus = "do-not-release"
	Released     ReleaseStatus = "released"
)

// Memory is what Decide must remember between calls. The zero value is safe: it
// starts every wait anew. A Memory is never changed, only replaced. It is of one
// CiliumNode, by its UID.
type Memory struct {
	// IdleSince[k] is since when k+1 blocks could be taken from the node.
	IdleSince []time.Time
	// MarkedSince is when each mark was first seen unanswered.
	MarkedSince map[netip.Addr]time.Time
	// AckedSince is when each ack was first seen, from a settled agent.
	AckedSince map[netip.Addr]time.Time
	// Assigned are the Leftover blocks that have been seen to be Listed.
	Assigned []netip.Prefix
	// Restored are the addresses in use for which a block was told again, and since
	// when it has been seen to be Listed. Zero: not yet.
	Restored map[netip.Addr]time.Time
}
