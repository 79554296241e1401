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
	// Pool is the CiliumNode's spec.ipam.pool: address to the owner a user wrote
	// there ("": any pod). Entries outside every block are foreign: they count as
	// capacity and are never changed.
	Pool map[netip.Addr]string
	// Used is status.ipam.used: address to owner, as in "default/web-0",
	// "default/web-0 [restored]", "router", "health", "ingress". Empty: the
	// agent has not reported.
	Used map[netip.Addr]string
	// BlockDemand is set where the agent is assigned whole blocks: Pool is empty then,
	// and Used are its own addresses.
	BlockDemand *BlockDemand
	// Adopting says that the agent has not started in crd mode yet, on blocks adopted
	// from another IPAM. It ignores the pool and answers no mark, and the node's routes
	// are the other IPAM's: only publishing is safe.
	Adopting bool
	// Release is status.ipam.release-ips.
	Release map[netip.Addr]ReleaseStatus
	// Own are the CiliumNode's own addresses (internal, health, ingress).
	Own []netip.Addr
	// Pods are those bound to the node that need an address: not on the host
	// network, not Succeeded or Failed.
	Pods []Pod
	// Ended are the names of pods that have left the node within the last ReportLag.
	Ended []string
	// MaxPods is how many pods the kubelet admits. Pods bound beyond that are no
	// demand unless they have an address. 0: not known, so there is no bound.
	MaxPods int
	// Expected is how many addresses pods request that are yet to be scheduled, and for
	// which this node is to have room.
	Expected int
	// Recall are blocks to return without waiting for IdleFor, as pods, or nodes without any,
	// wait for blocks of their pools: those of them that nothing uses and that the node does not need.
	Recall []netip.Prefix
	// Scarce says that pods, or nodes without any, wait for blocks of the node's pools, none
	// of which is free: the node claims none for its reserve.
	Scarce bool
	// Offers says that the Node offers its addresses to the scheduler: a bound pod that
	// requests several counts as that many.
	Offers bool
	// Limits are what a user wrote into the CiliumNode.
	Limits Limits
	// Fresh says that no agent has read the CiliumNode yet: no agent assigns an address
	// that is marked now to a pod, or has a pod to restore there.
	Fresh bool
	// NotRun says that the agent does not run the family, by its last report: it assigns no
	// address of it, and answers no mark of one in the pool.
	NotRun bool

	// AgentSettled says that the agent's pod has been Ready for a while with
	// the same container, so that its answers and its report can be trusted.
	AgentSettled bool
	// Agent is the container of the agent, "" if unknown, where it is assigned whole
	// blocks. MayPark says that a block may be parked now: no other one of the node is.
	// Replaceable says that a pool has a free block to take its place.
	Agent                string
	MayPark, Replaceable bool
	// OtherFamilyFull says, where blocks may be parked, that the agent runs the other
	// family as well, and neither has a free address of it nor gets one: pods that wait do
	// so for that.
	OtherFamilyFull bool
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

// Hold delays the drain of blocks that should leave. The zero Hold delays nothing.
type Hold struct {
	// For is what they wait for: WaitWindow, WaitTurn or WaitNodes.
	For WaitReason
	// Until is when to reconcile again. Zero: not before a change.
	Until time.Time
}

// Block is a block the node holds.
type Block struct {
	CIDR netip.Prefix
	// Created is when the API server created it. Zero: unknown.
	Created time.Time
	// Usable are the addresses that may be published, sorted: all but the
	// reserved and, unless allowed, the first and last.
	Usable []netip.Addr
	Phase  ipalloc.Phase
	// Reason is why it is in Phase. Zero while in service.
	Reason Reason
	// Request is why it must leave, whatever the use: it was deleted, its range
	// drains, its pool is being deleted or drains what it no longer selects. Zero: it may
	// stay.
	Request Reason
	// Hold delays Request: until it ends, a block in service keeps serving, and no
	// block is claimed in its place. A drain that has begun continues regardless.
	Hold Hold
	// Conflict: it overlaps an older block. Nothing of it is published.
	Conflict bool
	// Orphaned: its pool is gone, and which of Cilium's pools it serves is unknown.
	// It is not listed, and cannot be.
	Orphaned bool
	// Listed: the CiliumNode's podCIDRs name it.
	Listed bool
	// Leftover: its addresses are also in spec.ipam.pool, beside the report of an agent
	// that reads it. That agent may still run, whatever one that is assigned whole
	// blocks has reported before or since.
	Leftover bool
	// Parked: it is listed under the reserved pool, from which no pod gets an address.
	Parked bool
	// Closed is what is recorded of when it was last parked.
	Closed Closed
	// CooldownUntil is when a cooling-down block may be assigned to another node.
	CooldownUntil time.Time
}

// Reason is why a block is draining or cooling down.
type Reason string

// Reasons. The API's condition reasons are the same words.
const (
	None           Reason = ""
	Reclaim        Reason = "Reclaim"
	Deleted        Reason = "Deleted"
	CIDRDraining   Reason = "CIDRDraining"
	PoolDeleted    Reason = "PoolDeleted"
	NodeUnselected Reason = "NodeUnselected"
	PoolChanged    Reason = "PoolChanged"
	Returned       Reason = "Returned"
	NodeGone       Reason = "NodeGone"
)

// Pod is a pod bound to the node.
type Pod struct {
	// Name is "namespace/name".
	Name string
	// IPs are its status.podIPs, of any family.
	IPs []netip.Addr
	// Requests are how many addresses of each family it requests of the scheduler.
	Requests [2]uint16
	// Seen is when it was first seen bound to the node. Until Seen plus
	// AckTimeout, while its address is unknown, nothing is marked for
	// release: it may be any that looks free.
	Seen time.Time
	// Created is when the API server created it. Zero: unknown.
	Created time.Time
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
// restarts every wait. A Memory is never changed, only replaced. It belongs to one
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
	// Restored are the addresses in use for which a block was assigned again, and since
	// when it has been seen to be Listed. Zero: not yet.
	Restored map[netip.Addr]time.Time
	// Parked are the blocks that were seen parked, until it is recorded that their agent
	// has closed them.
	Parked map[netip.Prefix]Parking
	// EmptySince is since when nothing has been known to use a Listed block.
	EmptySince map[netip.Prefix]time.Time
}
