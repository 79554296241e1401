package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// PodIPPoolHistory is the past of the PodIPPool of the same name: which nodes held
// its blocks before, and how many blocks were held. The operator writes it along
// with the counts in the pool's status, and reads it when it starts. The PodIPPool
// owns it: it goes with the pool. Do not edit it. Deleting it is safe: no address
// depends on it, and a new history begins at the next change of the pool's blocks.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=podippoolhistories,scope=Cluster,shortName=piph
// +kubebuilder:printcolumn:name="Returned-Since",type=date,JSONPath=`.returnedBlocksSince`,description="How far back returnedBlocks goes without a gap"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type PodIPPoolHistory struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// returnedBlocks are the last 128 blocks that nodes gave back, oldest first, and
	// which node held each: the past of an address, which kubectl cilium-pool whois
	// --at reads. A block is listed from the time it begins to cool down, and stays
	// listed should its node take it back: while there is a PodIPBlock with this CIDR
	// that was created at since, its status holds.
	// +kubebuilder:validation:MaxItems=128
	// +listType=atomic
	// +optional
	ReturnedBlocks []ReturnedBlock `json:"returnedBlocks,omitempty"`
	// returnedBlocksSince is how far back returnedBlocks goes: it lists each block
	// returned after that time.
	// +optional
	ReturnedBlocksSince *metav1.Time `json:"returnedBlocksSince,omitempty"`

	// ipv4 is the past of the pool's IPv4 blocks.
	// +optional
	IPv4 FamilyHistory `json:"ipv4,omitzero"`
	// ipv6 is the past of the pool's IPv6 blocks.
	// +optional
	IPv6 FamilyHistory `json:"ipv6,omitzero"`
}

// PodIPPoolHistoryList is a list of PodIPPoolHistories.
//
// +kubebuilder:object:root=true
type PodIPPoolHistoryList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PodIPPoolHistory `json:"items"`
}

// FamilyHistory is the past of a pool's blocks of one family.
type FamilyHistory struct {
	// heldBlocks is how many blocks nodes held in the last seven days, oldest first.
	// The condition ExhaustedSoon of the PodIPPool follows from it. The older, the
	// fewer samples are kept.
	// +kubebuilder:validation:MaxItems=128
	// +listType=atomic
	// +optional
	HeldBlocks []HeldBlocks `json:"heldBlocks,omitempty"`
}

// ReturnedBlock is a block that a node gave back.
type ReturnedBlock struct {
	// cidr is the block.
	CIDR string `json:"cidr"`
	// nodeName is the Node that held it.
	NodeName string `json:"nodeName"`
	// since is when it was claimed.
	Since metav1.Time `json:"since"`
	// until is when none of its addresses was published any more, and its cooldown
	// began.
	Until metav1.Time `json:"until"`
	// reason is why it was returned: Returned, or NodeGone, where the machine may
	// have run on.
	Reason string `json:"reason"`
}

// HeldBlocks is how many blocks nodes held from a time on, until the next sample:
// in service, draining or cooling down.
type HeldBlocks struct {
	// since is when the number changed.
	Since metav1.Time `json:"since"`
	// count is how many blocks nodes held.
	Count int64 `json:"count"`
}
