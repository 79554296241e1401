package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// PodIPPoolStatus is what the operator sees of a pool.
type PodIPPoolStatus struct {
	// observedGeneration is the generation of the spec this status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// nodes is how many nodes hold a block of this pool, be it in service, draining or
	// cooling down.
	// +optional
	Nodes int32 `json:"nodes"`
	// utilizationPercent is the share of blocks.total that no node can get now, rounded
	// down: 100 if no block is free, and only then. Of two families it is the larger
	// share. Absent while the spec cannot be read.
	// +optional
	UtilizationPercent *int32 `json:"utilizationPercent,omitempty"`
	// roomNodes is how many more nodes fit: free blocks divided by those that a node
	// without pods takes. Of two families it is the smaller number. Absent while the
	// spec cannot be read.
	// +optional
	RoomNodes *int64 `json:"roomNodes,omitempty"`

	// ipv4 counts IPv4 blocks and addresses by state.
	// +optional
	IPv4 *FamilyStatus `json:"ipv4,omitempty"`
	// ipv6 counts IPv6 blocks and addresses by state.
	// +optional
	IPv6 *FamilyStatus `json:"ipv6,omitempty"`

	// conditions: Ready (the spec is in force, and nodes are served by the pool or by the
	// next one that selects them), Overlapping (part of it belongs to another pool),
	// ReservedBlocksHeld (nodes hold blocks that
	// overlap a reserved range), CoversClusterAddresses (the pool covers addresses of
	// nodes or Services), Masqueraded (Cilium masquerades connections to its pods),
	// Exhausted (no free block is left), MaintenanceWindow (one is open, where there are any).
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// FamilyStatus counts blocks and addresses of one family. Counts stop at
// 9223372036854775807.
type FamilyStatus struct {
	// blocks by state.
	Blocks StateCounts `json:"blocks"`
	// addresses by the state of their block; those reserved or at an edge of
	// their block are not counted.
	Addresses StateCounts `json:"addresses"`
}

// StateCounts counts things by the state they are in.
type StateCounts struct {
	// total is all that nodes hold or can get. Blocks of a range that is cordoned, drains
	// or belongs to another pool, and those skipped for a reserved range, count only
	// while a node holds them.
	Total int64 `json:"total"`
	// inService is what nodes hold and may use.
	InService int64 `json:"inService"`
	// draining is what nodes hold and are giving back.
	Draining int64 `json:"draining"`
	// coolingDown is what nodes have returned and no node may get yet.
	CoolingDown int64 `json:"coolingDown"`
	// free is what can be claimed now.
	Free int64 `json:"free"`
}
