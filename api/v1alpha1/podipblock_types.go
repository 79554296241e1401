package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// PodIPBlock is a block of pod addresses that one node holds. Creating it is the claim. Setting
// spec.drain requests a graceful drain: it goes once no pod on its node uses an address of it. The
// operator alone creates blocks; to keep one for a Node, create a PodIPPin.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories={cilium-pool}
// +kubebuilder:subresource:status
// +kubebuilder:selectablefield:JSONPath=`.spec.nodeName`
// +kubebuilder:selectablefield:JSONPath=`.spec.poolName`
// +kubebuilder:printcolumn:name="CIDR",type=string,JSONPath=`.spec.cidr`
// +kubebuilder:printcolumn:name="Pool",type=string,JSONPath=`.spec.poolName`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.spec.nodeName`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Draining")].reason`,description="Why it is in its phase, or must leave it"
// +kubebuilder:printcolumn:name="Waits for",type=string,JSONPath=`.status.waitsFor.reason`,description="What keeps a leaving block on its node"
// +kubebuilder:printcolumn:name="Conflict",type=string,JSONPath=`.status.conditions[?(@.type=="Conflict")].status`,description="True: it overlaps another block",priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="!isCIDR(self.spec.cidr) || self.metadata.name == (self.spec.cidr.startsWith(':') ? '0' + self.spec.cidr : self.spec.cidr).replace(':', '-').replace('/', '-')",message="metadata.name must follow from spec.cidr, with '-' for ':' and '/': 10.20.0.0/27 is named 10.20.0.0-27, so that a block can be claimed once only",messageExpression="'metadata.name must be %s: it follows from spec.cidr, so that a block can be claimed once only'.format([(self.spec.cidr.startsWith(':') ? '0' + self.spec.cidr : self.spec.cidr).replace(':', '-').replace('/', '-')])"
type PodIPBlock struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says who holds which addresses. Immutable but for drain.
	// +required
	Spec PodIPBlockSpec `json:"spec"`
	// status is the state that the operator observes.
	// +optional
	Status PodIPBlockStatus `json:"status,omitzero"`
}

// PodIPBlockList is a list of PodIPBlocks.
//
// +kubebuilder:object:root=true
type PodIPBlockList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PodIPBlock `json:"items"`
}

// PodIPBlockSpec says who holds which addresses.
//
// +kubebuilder:validation:XValidation:rule="self.cidr == oldSelf.cidr && self.poolName == oldSelf.poolName && self.nodeName == oldSelf.nodeName && has(self.ciliumPoolName) == has(oldSelf.ciliumPoolName) && (!has(self.ciliumPoolName) || self.ciliumPoolName == oldSelf.ciliumPoolName) && has(self.nodeUID) == has(oldSelf.nodeUID) && (!has(self.nodeUID) || self.nodeUID == oldSelf.nodeUID)",message="spec is immutable but for drain: set drain to true, and another block takes its place"
type PodIPBlockSpec struct {
	// cidr is the block, in canonical form: lower case, shortest, no host bits.
	// +kubebuilder:validation:MaxLength=43
	// +kubebuilder:validation:XValidation:rule="isCIDR(self) && string(cidr(self).masked()) == self",message="cidr must be canonical, with no host bits set: 10.20.0.32/27",messageExpression="isCIDR(self) ? 'cidr must be canonical, with no host bits set: write %s'.format([string(cidr(self).masked())]) : 'cidr must be a CIDR such as 10.20.0.32/27 or fd00:10::40/122 (IPv4-mapped IPv6 is refused)'"
	// +kubebuilder:validation:XValidation:rule="!isCIDR(self) || cidr(self).prefixLength() >= (cidr(self).ip().family() == 4 ? 16 : 48)",message="cidr must be of prefix length 16 or more in IPv4, 48 or more in IPv6"
	// +required
	CIDR string `json:"cidr"`

	// poolName is the PodIPPool the block was cut from.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="poolName must be the name of a PodIPPool: lower case letters, digits, '-' and '.'"
	// +required
	PoolName string `json:"poolName"`

	// ciliumPoolName is the pool of Cilium's that the block is for: that of one pod, which a PodIPPin
	// names. Absent: the ciliumPoolName of its PodIPPool.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="ciliumPoolName must be the name of a CiliumPodIPPool: lower case letters, digits, '-' and '.'"
	// +optional
	CiliumPoolName string `json:"ciliumPoolName,omitempty"`

	// nodeName is the Node that holds the block.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="nodeName must be the name of a Node: lower case letters, digits, '-' and '.'"
	// +required
	NodeName string `json:"nodeName"`

	// nodeUID is the UID the Node had at the claim. A new Node of the same name keeps the blocks of
	// the pools that select it, and all blocks in use.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	NodeUID string `json:"nodeUID,omitempty"`

	// drain requests that the node returns the block, within the pool's maintenance windows and
	// rate, as if its CIDR had allocationPolicy Drain. Absent: false. Until the block is freed,
	// false puts it back in service, unless an agent has returned it, in multi-pool mode. It ends with
	// the block: any node can claim the CIDR again.
	// +optional
	Drain *bool `json:"drain,omitempty"`
}

// PodIPBlockStatus is the operator's record of a block. Its loss is safe: no address gets a second
// user. The operator decides drains anew, and begins a cooldown again.
type PodIPBlockStatus struct {
	// phase sums up the conditions, for people (programs read those): InService until the block drains, Draining until none of its
	// addresses is published, CoolingDown until it is deleted. Absent: just claimed. More phases
	// may come.
	// +optional
	Phase BlockPhase `json:"phase,omitempty"`

	// conditions: Published, Draining (its reason says why the block is in its phase, or must leave
	// it), CoolingDown, and the fault Conflict. To wait until a node has its addresses:
	// kubectl wait --for=condition=Published.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// waitsFor is what keeps a leaving block on its node. Absent: nothing.
	// +optional
	WaitsFor *BlockWait `json:"waitsFor,omitempty"`

	// closed says that no new pod gets an address of the block, in multi-pool mode: a
	// run of its node's agent saw it taken off its list while pods used it. If lost, the operator
	// counts on its free addresses until a pod waits beside them for minutes.
	// +optional
	Closed *BlockClosed `json:"closed,omitempty"`
}

// BlockWait is what keeps a leaving block on its node.
type BlockWait struct {
	// reason is a word as in the event DrainWaits: Pods, Window and others. More may come.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +required
	Reason string `json:"reason"`

	// message names it, for people: the pods, or when the window opens.
	// +kubebuilder:validation:MaxLength=32768
	// +optional
	Message string `json:"message,omitempty"`
}

// BlockClosed says which run of an agent allocates no address of a block to new pods.
type BlockClosed struct {
	// container is the ID of that agent's container, as its pod's status has it. Another
	// container opens the block again.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +required
	Container string `json:"container"`

	// since is when the block was taken off the list.
	// +required
	Since metav1.Time `json:"since"`

	// inferred says that the operator did not see that: a pod created at that time waits beside
	// free addresses of the block. The pod's end, or a later pod with one, opens the block again.
	// +optional
	Inferred bool `json:"inferred,omitempty"`

	// fruitless is the number of times that this run went on to assign addresses of the block after
	// the operator had parked it. 2: it closes no block, and the operator parks none in use of the
	// node until the agent restarts. Absent: 0.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2
	// +optional
	Fruitless int32 `json:"fruitless,omitempty"`
}

// BlockPhase is where a block is between its claim and its end.
//
// +kubebuilder:validation:MaxLength=64
type BlockPhase string

// Phases of a block.
const (
	// PhaseInService: its node uses it.
	PhaseInService BlockPhase = "InService"
	// PhaseDraining: its node returns it.
	PhaseDraining BlockPhase = "Draining"
	// PhaseCoolingDown: its node has returned it, and no other node has it yet.
	PhaseCoolingDown BlockPhase = "CoolingDown"
)

// Reasons of the condition Draining: of a drain, also of one that has not begun.
const (
	// ReasonReclaim: the node has more blocks than it needs.
	ReasonReclaim = "Reclaim"
	// ReasonCompaction: the same, of a block in use, in multi-pool mode: no new pod gets an address of it.
	ReasonCompaction = "Compaction"
	// ReasonDeleted: a person deleted the block.
	ReasonDeleted = "Deleted"
	// ReasonDrainRequested: its spec.drain is true.
	ReasonDrainRequested = "DrainRequested"
	// ReasonCIDRDraining: its range has the allocation policy Drain, or was taken out of the pool.
	ReasonCIDRDraining = "CIDRDraining"
	// ReasonPoolDeleted: its pool is being deleted.
	ReasonPoolDeleted = "PoolDeleted"
	// ReasonNodeUnselected: its pool no longer selects its node, and drains such blocks.
	ReasonNodeUnselected = "NodeUnselected"
	// ReasonPoolChanged: its node came to another pool before anything of the block
	// was in use.
	ReasonPoolChanged = "PoolChanged"
)

// Reasons of the conditions Draining, Published and Conflict.
const (
	// DrainingInService: its node uses it, and may keep it.
	DrainingInService = "InService"
	// PublishedInSpec: its node's CiliumNode has the block, or in kubernetes mode the Node.
	PublishedInSpec = "InSpec"
	// PublishedNotInSpec: it has not.
	PublishedNotInSpec = "NotInSpec"
	// ConflictOverlap: it shares addresses with another block. Also of Draining, while addresses of
	// it leave its node only for that.
	ConflictOverlap = "Overlap"
)

// Reasons of the condition CoolingDown, and of Draining then.
const (
	// ReasonReturned: its node returned it by the handshake.
	ReasonReturned = "Returned"
	// ReasonNodeGone: its node was deleted; the machine may still be running.
	ReasonNodeGone = "NodeGone"
)
