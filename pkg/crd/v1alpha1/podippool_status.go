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
	// utilizationPercent is the share of the pool's blocks that nodes hold, rounded
	// down: 100 is all of them. Of two families it is the larger share. Absent while
	// the spec cannot be read.
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

	// returned are the blocks that came back last, oldest first, and who held
	// them: the past of an address. It is written along with the counts.
	// +kubebuilder:validation:MaxItems=128
	// +listType=atomic
	// +optional
	Returned []ReturnedBlock `json:"returned,omitempty"`
	// returnedSince is how far back that goes: returned has each block that came
	// back after it.
	// +optional
	ReturnedSince *metav1.Time `json:"returnedSince,omitempty"`

	// conditions: Ready (the pool gives out what it says), Overlapping (part of
	// it belongs to another pool), ReservedBlocksHeld (nodes hold blocks that
	// overlap a reserved range), CoversClusterAddresses (the pool covers addresses of
	// nodes or Services, which no pod gets), Exhausted (no free block is left),
	// ExhaustedSoon (by the growth of the last hours or days, none will be),
	// MaintenanceWindow (one is open, where there are any).
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
	// history is how many blocks nodes held in the last seven days, oldest
	// first: what forecasts are made of. It is written along with the counts; the
	// older, the fewer samples are kept.
	// +kubebuilder:validation:MaxItems=128
	// +listType=atomic
	// +optional
	History []HeldBlocks `json:"history,omitempty"`
}

// ReturnedBlock is a block that came back, and who held it.
type ReturnedBlock struct {
	// cidr is the block.
	CIDR string `json:"cidr"`
	// node is the Node that held it.
	Node string `json:"node"`
	// since is when it was claimed.
	Since metav1.Time `json:"since"`
	// until is when nothing of it was published any more, and its rest began.
	Until metav1.Time `json:"until"`
	// reason is why it came back: Returned, or NodeGone, where the machine may
	// have run on.
	Reason string `json:"reason"`
}

// HeldBlocks is how many blocks nodes held from a time on, until the next of a
// history: in service, draining or resting.
type HeldBlocks struct {
	// since is when the number changed.
	Since metav1.Time `json:"since"`
	// blocks is how many nodes held.
	Blocks int64 `json:"blocks"`
}

// StateCounts counts things by the state they are in.
type StateCounts struct {
	// total is all that is held or can be assigned: blocks skipped for a reserved
	// range do not count unless a node holds them.
	Total int64 `json:"total"`
	// inService is what nodes hold and may use.
	InService int64 `json:"inService"`
	// draining is what nodes hold and are giving back.
	Draining int64 `json:"draining"`
	// coolingDown is what came back and rests.
	CoolingDown int64 `json:"coolingDown"`
	// free is what can be given out now.
	Free int64 `json:"free"`
}
