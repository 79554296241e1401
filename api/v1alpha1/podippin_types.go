package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// PodIPPin keeps one block of a pool for one Node. No other node gets the block, and this one
// holds it as long as the pin exists: it claims the block first, and idleness does not take it away.
// A pin may come before its Node, and stays while the Node is away.
//
// In multi-pool mode a pin may instead keep an address for an owner: the pods of one name, such as web-0 of a
// StatefulSet, or the pods with one value of a label, such as those of a virtual machine. The address goes to the
// node where such a pod is bound. Of two such pods at once, the second waits until the first has ended.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories={cilium-pool}
// +kubebuilder:subresource:status
// +kubebuilder:selectablefield:JSONPath=`.spec.nodeName`
// +kubebuilder:printcolumn:name="CIDR",type=string,JSONPath=`.spec.cidr`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.spec.nodeName`
// +kubebuilder:printcolumn:name="Namespace",type=string,JSONPath=`.spec.podNamespace`
// +kubebuilder:printcolumn:name="Pod",type=string,JSONPath=`.spec.podName`
// +kubebuilder:printcolumn:name="Label",type=string,JSONPath=`.spec.podLabel.value`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="!isCIDR(self.spec.cidr) || self.metadata.name == (self.spec.cidr.startsWith(':') ? '0' + self.spec.cidr : self.spec.cidr).replace(':', '-').replace('/', '-')",message="metadata.name must follow from spec.cidr, with '-' for ':' and '/': 10.20.0.0/27 is named 10.20.0.0-27, so that two pins never name one block",messageExpression="'metadata.name must be %s: it follows from spec.cidr, so that two pins never name one block'.format([(self.spec.cidr.startsWith(':') ? '0' + self.spec.cidr : self.spec.cidr).replace(':', '-').replace('/', '-')])"
type PodIPPin struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec names the block and the Node.
	// +required
	Spec PodIPPinSpec `json:"spec"`
	// status says whether the node, or a pod's node, holds the block.
	// +optional
	Status PodIPPinStatus `json:"status,omitzero"`
}

// PodIPPinList is a list of PodIPPins.
//
// +kubebuilder:object:root=true
type PodIPPinList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PodIPPin `json:"items"`
}

// PodIPPinSpec names a block, and a Node or an owner.
//
// +kubebuilder:validation:XValidation:rule="[has(self.nodeName), has(self.podName), has(self.podLabel)].filter(x, x).size() == 1",message="set one of nodeName, podName and podLabel: a pin keeps its block for one Node, for the pods of one name, or for the pods with one value of a label"
// +kubebuilder:validation:XValidation:rule="(has(self.podName) || has(self.podLabel)) == has(self.podNamespace)",message="set podNamespace together with podName or podLabel"
// +kubebuilder:validation:XValidation:rule="!has(self.podNamespace) || !isCIDR(self.cidr) || cidr(self.cidr).prefixLength() == (cidr(self.cidr).ip().family() == 4 ? 32 : 128)",message="a pin for pods keeps one address: end cidr with /32 or /128"
// +kubebuilder:validation:XValidation:rule="has(self.podNamespace) == has(oldSelf.podNamespace) && (!has(self.podNamespace) || self.podNamespace == oldSelf.podNamespace && has(self.podName) == has(oldSelf.podName) && has(self.podLabel) == has(oldSelf.podLabel) && (!has(self.podName) || !has(oldSelf.podName) || self.podName == oldSelf.podName) && (!has(self.podLabel) || !has(oldSelf.podLabel) || self.podLabel == oldSelf.podLabel))",message="podNamespace, podName and podLabel are immutable: delete the pin, and create another once its PodIPBlock is gone"
type PodIPPinSpec struct {
	// cidr is the block, in canonical form: lower case, shortest, no host bits. Its prefix length
	// is the blockSize of the PodIPPool that it lies in.
	// +kubebuilder:validation:MaxLength=43
	// +kubebuilder:validation:XValidation:rule="isCIDR(self) && string(cidr(self).masked()) == self",message="cidr must be canonical, with no host bits set: 10.20.0.32/27",messageExpression="isCIDR(self) ? 'cidr must be canonical, with no host bits set: write %s'.format([string(cidr(self).masked())]) : 'cidr must be a CIDR such as 10.20.0.32/27 or fd00:10::40/122 (IPv4-mapped IPv6 is refused)'"
	// +required
	CIDR string `json:"cidr"`

	// nodeName is the Node that the block is kept for. It need not exist yet. After a change the
	// earlier Node keeps the block until it is idle there, or drained.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="nodeName must be the name of a Node: lower case letters, digits, '-' and '.'"
	// +optional
	NodeName string `json:"nodeName,omitempty"`

	// podName is the name of the pods that the address is kept for, one after the other.
	// CiliumPodIPPools select no pod with a longer name.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="podName must be the name of a pod: lower case letters, digits, '-' and '.'"
	// +optional
	PodName string `json:"podName,omitempty"`

	// podLabel is the label whose value the pods share that the address is kept for, whatever their names are.
	// +optional
	PodLabel *PodLabel `json:"podLabel,omitempty"`

	// podNamespace is the namespace of the pods.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Label().validate(self).hasValue()",message="podNamespace must be the name of a namespace: lower case letters, digits and '-'"
	// +optional
	PodNamespace string `json:"podNamespace,omitempty"`
}

// PodLabel is a label of pods, and one of its values. Names of CiliumPodIPPools contain both, so they may have no upper
// case and no underscore.
type PodLabel struct {
	// key is the key of the label, such as vm.kubevirt.io/name.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="!format.qualifiedName().validate(self).hasValue() && self == self.lowerAscii() && !self.contains('_')",message="key must be the key of a label, of lower case letters, digits, '-', '.' and '/': vm.kubevirt.io/name"
	// +required
	Key string `json:"key"`

	// value is its value, such as the name of a virtual machine.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="value must be a value of the label, of lower case letters, digits, '-' and '.'"
	// +required
	Value string `json:"value"`
}

// PodIPPinStatus is the state of a pin, as the operator observes it.
type PodIPPinStatus struct {
	// conditions: Ready is True, with reason Held, while the node holds the block in service. While
	// it is False, the reason is WaitsForNode, NotClaimed, Draining or HeldByNode, or a fault of the pin or of
	// its pool: NotInPool, NotABlock, NotAllocated or PoolDoesNotSelect. More may come.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// PinReady is True while the node of a pin holds its block in service.
const PinReady = "Ready"

// Reasons of PinReady.
const (
	// PinHeld: the node holds the block in service.
	PinHeld = "Held"
	// PinWaitsForNode: the Node does not exist yet.
	PinWaitsForNode = "WaitsForNode"
	// PinNotClaimed: the Node has yet to claim the block.
	PinNotClaimed = "NotClaimed"
	// PinDraining: the node returns the block.
	PinDraining = "Draining"
	// PinHeldByNode: another node holds addresses of the block.
	PinHeldByNode = "HeldByNode"
	// PinNotInPool: the CIDR lies in no PodIPPool.
	PinNotInPool = "NotInPool"
	// PinNotABlock: its prefix length is not the block size of its pool.
	PinNotABlock = "NotABlock"
	// PinNotAllocated: no node gets the block from its pool, as its CIDR is cordoned or drains, or
	// addresses of it are reserved or belong to the cluster.
	PinNotAllocated = "NotAllocated"
	// PinNotSelected: the pool does not select the Node.
	PinNotSelected = "PoolDoesNotSelect"
)
