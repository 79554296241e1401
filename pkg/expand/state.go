package expand

import (
	"net/netip"
	"slices"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// State is the known state of one node, for one address family.
type State struct {
	// Node is the node's name, for the Plan's String only.
	Node   string
	Family ipalloc.Family
	// Gone is set if live reads showed that neither the Node nor its CiliumNode exists any
	// more: its blocks only cool down.
	Gone bool
	// Created is when the API server created the CiliumNode. Zero: unknown.
	Created time.Time

	// Blocks are all blocks the node holds, in any phase, sorted by address.
	Blocks []Block
	// Pool is the CiliumNode's spec.ipam.pool: address to the owner set by a user ("": any
	// pod). Entries outside every block are foreign: they count as capacity and are never
	// changed.
	Pool map[netip.Addr]string
	// Used is status.ipam.used: address to owner, as in "default/web-0", "default/web-0
	// [restored]", "router", "health", "ingress". Empty: the agent has not reported.
	Used map[netip.Addr]string
	// BlockAssignment is set if the agent is assigned whole blocks: then Pool is empty, and Used
	// contains the agent's own addresses.
	BlockAssignment *BlockAssignment
	// Adopting is set if the node has blocks adopted from another IPAM and its agent has not
	// started in the new mode yet. The agent ignores what is published and answers no marks, and
	// the node's routes are from the other IPAM: only publishing is safe.
	Adopting bool
	// Release is status.ipam.release-ips.
	Release map[netip.Addr]ReleaseStatus
	// EntriesUnwritable is set if the API server refuses writes of Release: until one passes, an address with an
	// entry that keeps the agent from it is no capacity.
	EntriesUnwritable bool
	// Own are the CiliumNode's own addresses (internal, health, ingress).
	Own []netip.Addr
	// Pods are the pods bound to the node that need an address: not on the host network, not
	// Succeeded or Failed.
	Pods []Pod
	// Ended are the names of pods that have left the node within the last ReportLag.
	Ended []string
	// MaxPods is the number of pods that the kubelet admits. Pods bound beyond that count as demand
	// only if they have an address. 0: unknown, so there is no bound.
	MaxPods int
	// Expected is the number of additional addresses that unscheduled pods will need on this node.
	Expected int
	// Recall are blocks to return without waiting for IdleFor, because pods, or nodes without a
	// block, wait for blocks of their pools. Only unused blocks that the node does not need are
	// returned.
	Recall []netip.Prefix
	// Scarce is set if pods, or nodes without a block, wait for blocks of the node's pools and
	// none is free: the node claims none for its reserve.
	Scarce bool
	// Offers is set if the Node offers its addresses to the scheduler: a bound pod that
	// requests several addresses counts as that many.
	Offers bool
	// OtherRequests is the number of addresses that bound pods request here and take elsewhere, of
	// another Cilium pool.
	OtherRequests int
	// Pins is the number of blocks that are pinned to the node and that it can claim.
	Pins int
	// Limits are the limits that a user set in the CiliumNode.
	Limits Limits
	// Fresh is set if no agent has read the CiliumNode yet: no agent can assign an address
	// that is marked now, or has a pod to restore that uses it.
	Fresh bool
	// FamilyDisabled is set if, by its last report, the agent does not run the family: it assigns no
	// address of the family, and answers no mark of such an address in the pool.
	FamilyDisabled bool

	// AgentReady is set if the agent's pod is Ready: it has addresses of its own.
	AgentReady bool
	// AgentSettled is set if the agent's pod has been Ready for a while with the same
	// container, so that its answers and its report can be trusted.
	AgentSettled bool
	// ReclaimDelay delays reclaims.
	ReclaimDelay Obstacle
	// PoolTaken is the percentage of blocks taken in the fullest of the pools that the node has
	// blocks in service of.
	PoolTaken int
	// Cordoned is set if no new pods are scheduled to the node.
	Cordoned bool
}

// Block is a block the node holds.
type Block struct {
	CIDR netip.Prefix
	// Created is when the API server created it. Zero: unknown.
	Created time.Time
	// Usable are the addresses that may be published, sorted: all except reserved ones and,
	// unless allowed, the first and the last. Empty where the agent is assigned whole blocks: then
	// Size is the number of addresses that pods get of the block; 0: it must not be assigned.
	Usable []netip.Addr
	Size   int
	Phase  ipalloc.Phase
	// Reason is why it is in Phase. Zero while in service.
	Reason Reason
	// Request is why it must leave, even if it is in use: it was deleted, its range drains, or
	// its pool is being deleted or drains nodes that it no longer selects. Zero: it may stay.
	Request Reason
	// Delay postpones Request: until it ends, a block in service keeps serving, and no
	// block is claimed in its place. A drain that has begun continues regardless.
	Delay Obstacle
	// Pinned: it stays on the node while it is idle. Frozen: the same, as its pool cannot be read.
	Pinned, Frozen bool
	// Unwritable: the API server has refused a write of it, or it lacks the finalizer. Until a write
	// passes, the node does without what only writes of it would bring.
	Unwritable bool
	// Undone: a person took back its drain while it cooled down.
	Undone bool
	// Conflict: it overlaps an older block. None of its addresses is published.
	Conflict bool
	// Orphaned: its pool no longer exists, so the Cilium pool that it serves is unknown. It is not
	// listed, and cannot be.
	Orphaned bool
	// Listed: the CiliumNode's podCIDRs contain it.
	Listed bool
	// Leftover: its addresses are also in spec.ipam.pool, together with the report of an agent
	// that reads the pool. That agent may still run, even if an agent that is assigned whole
	// blocks has reported before or since.
	Leftover bool
	// Parked: it is listed under the reserved pool, and no pod gets an address of that pool.
	Parked bool
	// Closed records which agent closed it, and when, the last time.
	Closed Closed
	// CooldownUntil is when a cooling-down block may be assigned to another node.
	CooldownUntil time.Time
}

// Count returns the number of addresses of the block that pods may get.
func (b *Block) Count() int { return len(b.Usable) + b.Size }

// IsKept reports whether the block stays on the node while it is idle.
func (b *Block) IsKept() bool { return b.Pinned || b.Frozen }

// Reason is why a block is draining or cooling down.
type Reason string

// Reasons. The API's condition reasons are the same words.
const (
	None           Reason = ""
	Reclaim        Reason = "Reclaim"
	Compaction     Reason = "Compaction"
	Deleted        Reason = "Deleted"
	DrainRequested Reason = "DrainRequested"
	CIDRDraining   Reason = "CIDRDraining"
	PoolDeleted    Reason = "PoolDeleted"
	NodeUnselected Reason = "NodeUnselected"
	PoolChanged    Reason = "PoolChanged"
	Returned       Reason = "Returned"
	NodeGone       Reason = "NodeGone"
)

// IsReclaim reports whether only the node has no need of the block.
func (r Reason) IsReclaim() bool { return r == Reclaim || r == Compaction }

// Pod is a pod bound to the node.
type Pod struct {
	// Name is "namespace/name".
	Name string
	// IPs are its status.podIPs, of any family.
	IPs []netip.Addr
	// Requests are the numbers of addresses, by family, that it requests from the scheduler.
	Requests [2]uint16
	// PoolRequests are those of Cilium pools other than the default one, by name. A State has them in
	// Requests.
	PoolRequests map[string][2]uint16
	// Seen is when the pod was first seen bound to the node. Until Seen plus slowStart times
	// AckTimeout, while its address is unknown, no address is marked for release: any that looks
	// free may be the pod's. Memory.AwaitingPodsSince bounds the wait where such pods keep coming.
	Seen time.Time
	// Accepted is when its kubelet accepted it, by the node's clock. Zero: unknown, or not yet.
	Accepted time.Time
	// Created is when the API server created it. Zero: unknown.
	Created time.Time
	// OfOtherPool says that it asks for another of Cilium's pools: only its addresses count.
	OfOtherPool bool
}

// Limits are the CiliumNode's spec.ipam.{min,pre,max}-allocate and
// max-above-watermark; 0 is unset. They apply to each family separately.
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

// IsAnswer reports whether an entry is an agent's answer. It answers Released only by its
// restart, which may be days away.
func (s ReleaseStatus) IsAnswer() bool { return s != Marked && s != Released }

// Memory holds facts that Decide must remember between calls. The zero value is safe: it restarts
// every wait. A Memory is never changed, only replaced. It belongs to one CiliumNode, by its UID.
type Memory struct {
	// IdleSince[k] is since when the node could do without k+1 of its blocks.
	IdleSince []time.Time
	// MarkedSince is when each mark was first seen unanswered.
	MarkedSince map[netip.Addr]time.Time
	// AckedSince is when each ack was first seen, from a settled agent.
	AckedSince map[netip.Addr]time.Time
	// AwaitingPodsSince is since when each block waits to be marked, or parked, until the addresses of recent
	// pods are known. Once that has lasted slowStart times AckTimeout, a draining block waits no more.
	AwaitingPodsSince map[netip.Prefix]time.Time
	// Assigned are the blocks that have been seen Listed, if Leftover or older than the CiliumNode.
	Assigned []netip.Prefix
	// Restored are the addresses in use that a block was assigned again for, and the time since
	// when that block has been seen Listed. Zero: not yet.
	Restored map[netip.Addr]time.Time
	// Parked are the blocks that were seen parked, until the block records that its agent has
	// closed it.
	Parked map[netip.Prefix]Parking
	// Forgotten are the blocks that cool down, and that the CiliumNode's entry of their Cilium pool has been
	// seen without.
	Forgotten []netip.Prefix
	// EmptySince is since when no use of a Listed block has been known.
	EmptySince map[netip.Prefix]time.Time
	// FreeSince is since when a free address has been seen, beside the blocks that are closed, for
	// each pod that has been without one for long.
	FreeSince map[string]time.Time
	// Witness is the pod from which blocks were inferred to be closed.
	Witness string
}

// Uses reports whether a source says that an address of a CIDR is in use, or a person assigned one
// to a pod.
func (s *State) Uses(cidr netip.Prefix) bool {
	for a, owner := range s.Pool {
		if owner != "" && cidr.Contains(a) {
			return true
		}
	}
	return s.usersIn(cidr) > 0 || slices.ContainsFunc(s.Own, cidr.Contains)
}

// FirstBlockMayLeave reports whether an unused block that leaves because its node moved to another
// pool may proceed: the agent has not reported yet, or every address of the block was
// marked before the agent started.
func (s *State) FirstBlockMayLeave(cidr netip.Prefix) bool {
	reported := false
	for a := range s.Used {
		reported = reported || a.Is4() == cidr.Addr().Is4()
	}
	if !reported {
		return true
	}
	for a := range s.Pool {
		if _, hasEntry := s.Release[a]; cidr.Contains(a) && !hasEntry {
			return false
		}
	}
	return true
}
