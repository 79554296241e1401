package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// PodIPPoolStatus is the state of a pool, as the operator observes it.
type PodIPPoolStatus struct {
	// observedGeneration is the generation of the spec this status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// selectedNodes is the number of Nodes that nodeSelector picks.
	// +optional
	SelectedNodes int32 `json:"selectedNodes"`
	// nodes is the number of nodes that hold a block of this pool.
	// +optional
	Nodes int32 `json:"nodes"`
	// heldPercent is 100 × blocks.held / blocks.assignable, rounded down; 100 if no block is
	// free, and only then. Of two families it is the larger one. Absent while the spec cannot be read.
	// +optional
	HeldPercent *int32 `json:"heldPercent,omitempty"`
	// roomForNodes is the number of nodes that still fit: free blocks divided by the blocks that a
	// node without pods takes. Of two families it is the smaller number. Absent while the spec
	// cannot be read.
	// +optional
	RoomForNodes *int64 `json:"roomForNodes,omitempty"`

	// effective is the policy in force: the values of the spec, else the operator's. Absent while the
	// spec cannot be read.
	// +optional
	Effective *EffectivePolicy `json:"effective,omitempty"`

	// ipv4 counts IPv4 blocks and addresses by state. While the spec cannot be read, none is free, and
	// the rest stays as it was.
	// +optional
	IPv4 *FamilyStatus `json:"ipv4,omitempty"`
	// ipv6 counts IPv6 blocks and addresses by state, as ipv4 does.
	// +optional
	IPv6 *FamilyStatus `json:"ipv6,omitempty"`

	// conditions, all from the first visit on. True is healthy: Ready (the spec is in force, and nodes
	// are served by this pool or by the next pool that selects them), CiliumPodIPPoolReady (agents of
	// multi-pool mode find a pool that fits), FamiliesServed (agents run its families). False is healthy:
	// Overlapping (part of it belongs to another pool), ReservedBlocksHeld (nodes hold blocks that
	// overlap a reserved range), CoversClusterAddresses (the pool covers addresses of nodes or
	// Services), Masqueraded (Cilium masquerades connections to its pods), Exhausted (no free block is
	// left). Either: MaintenanceWindowOpen (blocks may begin to leave).
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// EffectivePolicy is the policy of a pool with every value that it has.
type EffectivePolicy struct {
	// expand says when a node gets another block.
	// +required
	Expand Expand `json:"expand"`
	// reclaim is the rule for idle blocks.
	// +required
	Reclaim Reclaim `json:"reclaim"`
	// maintenance says when blocks may begin to leave.
	// +required
	Maintenance Maintenance `json:"maintenance"`
	// unselectedNodes is the treatment of blocks on nodes that the pool no longer selects.
	// +required
	UnselectedNodes UnselectedNodes `json:"unselectedNodes"`
	// cooldown of returned blocks.
	// +kubebuilder:validation:MaxLength=28
	// +required
	Cooldown Duration `json:"cooldown"`
}

// FamilyStatus counts blocks and addresses of one family. Counts stop at
// 9007199254740991.
type FamilyStatus struct {
	// blocks by state.
	// +required
	Blocks StateCounts `json:"blocks"`
	// addresses by the state of their block, without those reserved or at an edge.
	// +required
	Addresses AddressCounts `json:"addresses"`
	// cidrs lists the CIDRs of the spec with blocks that nodes hold. The API server refuses to
	// remove such a CIDR from the spec until its allocationPolicy is Drain. A wider CIDR, or both
	// halves, may replace it.
	// +kubebuilder:validation:MaxItems=128
	// +listType=map
	// +listMapKey=cidr
	// +optional
	CIDRs []HeldCIDR `json:"cidrs,omitempty"`
}

// HeldCIDR is a CIDR of a pool with blocks that nodes hold.
type HeldCIDR struct {
	// cidr is the CIDR as the spec has it.
	// +kubebuilder:validation:MaxLength=43
	// +required
	CIDR string `json:"cidr"`
	// blocks is the number of blocks of it that nodes hold.
	// +kubebuilder:validation:Minimum=1
	// +required
	Blocks int64 `json:"blocks"`
}

// AddressCounts counts addresses.
type AddressCounts struct {
	StateCounts `json:",inline"`
	// used is the number that agents report (status.ipam.used of CiliumNodes). Of used alone, a
	// change of 5 % is written, once a minute. Absent in multi-pool and kubernetes mode.
	// +optional
	Used *int64 `json:"used,omitempty"`
}

// StateCounts counts things by the state they are in.
type StateCounts struct {
	// assignable is held + free. Blocks of a range that is cordoned, drains or belongs to another
	// pool, and blocks with an address that is reserved or in use elsewhere, count while held.
	// +required
	Assignable int64 `json:"assignable"`
	// held is inService + draining + coolingDown.
	// +required
	Held int64 `json:"held"`
	// inService are held, and may be used.
	// +required
	InService int64 `json:"inService"`
	// draining are held, and on their way back.
	// +required
	Draining int64 `json:"draining"`
	// coolingDown are back, and no node may get them yet.
	// +required
	CoolingDown int64 `json:"coolingDown"`
	// free can be claimed now.
	// +required
	Free int64 `json:"free"`
}
