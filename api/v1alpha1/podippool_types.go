package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// PodIPPool is a set of pod addresses for the nodes that a selector picks. The operator cuts it
// into blocks, assigns blocks to nodes as their pods need them, and reclaims idle ones.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories={cilium-pool}
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="CIDR",type=string,JSONPath=`.spec['ipv4','ipv6'].cidrs[0].cidr`,description="The first CIDR: of IPv4, or of IPv6 where the pool has no IPv4, as are the columns up to Used"
// +kubebuilder:printcolumn:name="Block-Size",type=integer,JSONPath=`.spec['ipv4','ipv6'].blockSize`,description="Prefix length of a block: 27 = 32 addresses"
// +kubebuilder:printcolumn:name="Selected",type=integer,JSONPath=`.status.selectedNodes`,description="Nodes that nodeSelector picks"
// +kubebuilder:printcolumn:name="Nodes",type=integer,JSONPath=`.status.nodes`,description="Nodes that hold a block of this pool"
// +kubebuilder:printcolumn:name="Held",type=integer,JSONPath=`.status['ipv4','ipv6'].blocks.held`,description="Blocks that nodes hold"
// +kubebuilder:printcolumn:name="Free",type=integer,JSONPath=`.status['ipv4','ipv6'].blocks.free`,description="Blocks that can be claimed now"
// +kubebuilder:printcolumn:name="Used",type=integer,JSONPath=`.status['ipv4','ipv6'].addresses.used`,description="Addresses that agents report in use"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,priority=1
// +kubebuilder:printcolumn:name="Full%",type=integer,JSONPath=`.status.heldPercent`,priority=1,description="heldPercent"
// +kubebuilder:printcolumn:name="Room",type=integer,JSONPath=`.status.roomForNodes`,priority=1,description="How many more nodes fit"
// +kubebuilder:printcolumn:name="Priority",type=integer,JSONPath=`.spec.priority`,priority=1,description="Among the pools that match a node, the highest comes first"
// +kubebuilder:printcolumn:name="IPv6-CIDR",type=string,JSONPath=`.spec.ipv6.cidrs[0].cidr`,priority=1,description="The first CIDR of IPv6"
// +kubebuilder:printcolumn:name="IPv6-Held",type=integer,JSONPath=`.status.ipv6.blocks.held`,priority=1,description="IPv6 blocks that nodes hold"
// +kubebuilder:printcolumn:name="IPv6-Free",type=integer,JSONPath=`.status.ipv6.blocks.free`,priority=1,description="IPv6 blocks that can be claimed now"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 63",message="the name of a PodIPPool is at most 63 characters, as blocks carry it; choose a shorter one"
// +kubebuilder:validation:XValidation:rule="has(self.spec.ipv4) || !has(oldSelf.spec.ipv4) || (has(self.status) && has(self.status.ipv4) && self.status.ipv4.blocks.inService + self.status.ipv4.blocks.draining + self.status.ipv4.blocks.coolingDown == 0)",fieldPath=".spec",message="spec.ipv4 can be removed from a pool once status.ipv4.blocks reports that no node holds a block of it: set allocationPolicy: Drain on its CIDRs and wait, or delete the pool"
// +kubebuilder:validation:XValidation:rule="has(self.spec.ipv6) || !has(oldSelf.spec.ipv6) || (has(self.status) && has(self.status.ipv6) && self.status.ipv6.blocks.inService + self.status.ipv6.blocks.draining + self.status.ipv6.blocks.coolingDown == 0)",fieldPath=".spec",message="spec.ipv6 can be removed from a pool once status.ipv6.blocks reports that no node holds a block of it: set allocationPolicy: Drain on its CIDRs and wait, or delete the pool"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.ipv4) || !has(oldSelf.spec.ipv4) || !has(self.status) || !has(self.status.ipv4) || !has(self.status.ipv4.cidrs) || !self.status.ipv4.cidrs.exists(h, isCIDR(h.cidr) && oldSelf.spec.ipv4.cidrs.exists(o, o.cidr == h.cidr && (!has(o.allocationPolicy) || o.allocationPolicy != 'Drain')) && !self.spec.ipv4.cidrs.exists(n, isCIDR(n.cidr) && cidr(n.cidr).containsCIDR(h.cidr)) && self.spec.ipv4.cidrs.filter(n, isCIDR(n.cidr) && cidr(h.cidr).containsCIDR(n.cidr) && cidr(n.cidr).prefixLength() == cidr(h.cidr).prefixLength() + 1).size() != 2)",fieldPath=".spec.ipv4.cidrs",message="a CIDR that nodes hold blocks of (status.ipv4.cidrs) cannot be taken out of the pool: write it back, or set its allocationPolicy to Drain first, which moves its nodes to other blocks",messageExpression="'%s cannot be taken out of the pool, as nodes hold blocks of it: write it back, or set its allocationPolicy to Drain first, which moves its nodes to other blocks'.format([self.status.ipv4.cidrs.filter(h, isCIDR(h.cidr) && oldSelf.spec.ipv4.cidrs.exists(o, o.cidr == h.cidr && (!has(o.allocationPolicy) || o.allocationPolicy != 'Drain')) && !self.spec.ipv4.cidrs.exists(n, isCIDR(n.cidr) && cidr(n.cidr).containsCIDR(h.cidr)) && self.spec.ipv4.cidrs.filter(n, isCIDR(n.cidr) && cidr(h.cidr).containsCIDR(n.cidr) && cidr(n.cidr).prefixLength() == cidr(h.cidr).prefixLength() + 1).size() != 2)[0].cidr])"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.ipv6) || !has(oldSelf.spec.ipv6) || !has(self.status) || !has(self.status.ipv6) || !has(self.status.ipv6.cidrs) || !self.status.ipv6.cidrs.exists(h, isCIDR(h.cidr) && oldSelf.spec.ipv6.cidrs.exists(o, o.cidr == h.cidr && (!has(o.allocationPolicy) || o.allocationPolicy != 'Drain')) && !self.spec.ipv6.cidrs.exists(n, isCIDR(n.cidr) && cidr(n.cidr).containsCIDR(h.cidr)) && self.spec.ipv6.cidrs.filter(n, isCIDR(n.cidr) && cidr(h.cidr).containsCIDR(n.cidr) && cidr(n.cidr).prefixLength() == cidr(h.cidr).prefixLength() + 1).size() != 2)",fieldPath=".spec.ipv6.cidrs",message="a CIDR that nodes hold blocks of (status.ipv6.cidrs) cannot be taken out of the pool: write it back, or set its allocationPolicy to Drain first, which moves its nodes to other blocks",messageExpression="'%s cannot be taken out of the pool, as nodes hold blocks of it: write it back, or set its allocationPolicy to Drain first, which moves its nodes to other blocks'.format([self.status.ipv6.cidrs.filter(h, isCIDR(h.cidr) && oldSelf.spec.ipv6.cidrs.exists(o, o.cidr == h.cidr && (!has(o.allocationPolicy) || o.allocationPolicy != 'Drain')) && !self.spec.ipv6.cidrs.exists(n, isCIDR(n.cidr) && cidr(n.cidr).containsCIDR(h.cidr)) && self.spec.ipv6.cidrs.filter(n, isCIDR(n.cidr) && cidr(h.cidr).containsCIDR(n.cidr) && cidr(n.cidr).prefixLength() == cidr(h.cidr).prefixLength() + 1).size() != 2)[0].cidr])"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.ipv4) || !has(oldSelf.spec.ipv4) || self.spec.ipv4.blockSize == oldSelf.spec.ipv4.blockSize || !has(self.status) || !has(self.status.ipv4) || self.status.ipv4.blocks.held == 0",fieldPath=".spec.ipv4.blockSize",message="blockSize can change while no node holds a block of the pool: write the old one back, and set allocationPolicy: Drain on the CIDRs and wait until status.ipv4.blocks.held is 0, or make another pool",messageExpression="'blockSize stays %d while nodes hold blocks of the pool, %d now: write it back, and set allocationPolicy: Drain on the CIDRs and wait until status.ipv4.blocks.held is 0, or make another pool'.format([oldSelf.spec.ipv4.blockSize, self.status.ipv4.blocks.held])"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.ipv6) || !has(oldSelf.spec.ipv6) || self.spec.ipv6.blockSize == oldSelf.spec.ipv6.blockSize || !has(self.status) || !has(self.status.ipv6) || self.status.ipv6.blocks.held == 0",fieldPath=".spec.ipv6.blockSize",message="blockSize can change while no node holds a block of the pool: write the old one back, and set allocationPolicy: Drain on the CIDRs and wait until status.ipv6.blocks.held is 0, or make another pool",messageExpression="'blockSize stays %d while nodes hold blocks of the pool, %d now: write it back, and set allocationPolicy: Drain on the CIDRs and wait until status.ipv6.blocks.held is 0, or make another pool'.format([oldSelf.spec.ipv6.blockSize, self.status.ipv6.blocks.held])"
type PodIPPool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the wish of the network team.
	// +required
	Spec PodIPPoolSpec `json:"spec"`
	// status is the state that the operator observes.
	// +optional
	Status PodIPPoolStatus `json:"status,omitzero"`
}

// PodIPPoolList is a list of PodIPPools.
//
// +kubebuilder:object:root=true
type PodIPPoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PodIPPool `json:"items"`
}

// PodIPPoolSpec assigns addresses to nodes.
//
// +kubebuilder:validation:XValidation:rule="has(self.ciliumPoolName) ? (has(oldSelf.ciliumPoolName) ? self.ciliumPoolName == oldSelf.ciliumPoolName : self.ciliumPoolName == 'default') : (!has(oldSelf.ciliumPoolName) || oldSelf.ciliumPoolName == 'default')",fieldPath=".ciliumPoolName",message="ciliumPoolName is immutable, as agents have the blocks under that name: make a new pool for the other one and set allocationPolicy: Drain on the CIDRs of this one"
// +kubebuilder:validation:XValidation:rule="has(self.ipv4) || has(self.ipv6)",message="a pool without addresses serves no node: set spec.ipv4, spec.ipv6 or both"
// +kubebuilder:validation:XValidation:rule="!has(self.expand) || !has(self.expand.thresholdPercent) || !has(self.reclaim) || !has(self.reclaim.thresholdPercent) || self.reclaim.thresholdPercent < self.expand.thresholdPercent",fieldPath=".reclaim.thresholdPercent",message="reclaim.thresholdPercent must be below expand.thresholdPercent, or a node would give back what it has just got: lower the one or raise the other"
// +kubebuilder:validation:XValidation:rule="!has(self.podAddresses) || (!has(self.ipv4) || self.ipv4.blockSize == 32) && (!has(self.ipv6) || self.ipv6.blockSize == 128)",fieldPath=".podAddresses",message="podAddresses needs blocks of single addresses: make a pool with blockSize 32 in ipv4 and 128 in ipv6"
// +kubebuilder:validation:XValidation:rule="!has(self.reserved) || self.reserved.all(r, !isCIDR(r.cidr) || (has(self.ipv4) && self.ipv4.cidrs.exists(c, isCIDR(c.cidr) && cidr(c.cidr).containsCIDR(r.cidr))) || (has(self.ipv6) && self.ipv6.cidrs.exists(c, isCIDR(c.cidr) && cidr(c.cidr).containsCIDR(r.cidr))))",fieldPath=".reserved",message="each reserved CIDR must lie inside one CIDR of the pool: remove the others, and split one that spans several",messageExpression="'%s does not lie inside one CIDR of the pool: remove it from reserved, or split it if it spans several'.format([self.reserved.filter(r, isCIDR(r.cidr) && !((has(self.ipv4) && self.ipv4.cidrs.exists(c, isCIDR(c.cidr) && cidr(c.cidr).containsCIDR(r.cidr))) || (has(self.ipv6) && self.ipv6.cidrs.exists(c, isCIDR(c.cidr) && cidr(c.cidr).containsCIDR(r.cidr)))))[0].cidr])"
// +kubebuilder:validation:XValidation:rule="!has(self.ipv4) || self.ipv4.blockSize < 32 || self.ipv4.blockSize == 32 && (has(self.podAddresses) || has(self.ciliumPoolName) || oldSelf.hasValue() && has(oldSelf.value().ipv4) && oldSelf.value().ipv4.blockSize == 32)",optionalOldSelf=true,fieldPath=".ipv4.blockSize",message="blockSize is a prefix length: write 27 for blocks of 32 addresses. With 32, each address is a block with a route of its own: that takes podAddresses or a ciliumPoolName"
// +kubebuilder:validation:XValidation:rule="!has(self.ipv6) || self.ipv6.blockSize < 128 || self.ipv6.blockSize == 128 && (has(self.podAddresses) || has(self.ciliumPoolName) || oldSelf.hasValue() && has(oldSelf.value().ipv6) && oldSelf.value().ipv6.blockSize == 128)",optionalOldSelf=true,fieldPath=".ipv6.blockSize",message="blockSize is a prefix length: write 122 for blocks of 64 addresses. With 128, each address is a block with a route of its own: that takes podAddresses or a ciliumPoolName"
type PodIPPoolSpec struct {
	// nodeSelector picks the nodes this pool serves, by their labels. Absent: all nodes, as a
	// cluster with one pool needs none. An empty one is refused, as a misspelt field leaves it.
	// +optional
	// +kubebuilder:validation:XValidation:rule="(has(self.matchLabels) && self.matchLabels.size() > 0) || (has(self.matchExpressions) && self.matchExpressions.size() > 0)",message="a nodeSelector without matchLabels and matchExpressions picks all nodes, and fields of other names were dropped: write labels below matchLabels, or leave nodeSelector out to serve all nodes"
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, !(e.operator in ['In', 'NotIn']) || (has(e.values) && e.values.size() > 0))",fieldPath=".matchExpressions",message="operators In and NotIn need values: list at least one, or use Exists or DoesNotExist"
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, !(e.operator in ['Exists', 'DoesNotExist']) || !has(e.values) || e.values.size() == 0)",fieldPath=".matchExpressions",message="operators Exists and DoesNotExist take no values: remove them, or use In or NotIn"
	// +kubebuilder:validation:XValidation:rule="!has(self.matchLabels) || self.matchLabels.all(k, !format.qualifiedName().validate(k).hasValue())",fieldPath=".matchLabels",message="a label key is a name of at most 63 letters, digits, '-', '_' and '.', with a DNS name and '/' before it if need be: topology.kubernetes.io/zone"
	// +kubebuilder:validation:XValidation:rule="!has(self.matchLabels) || self.matchLabels.all(k, !format.labelValue().validate(self.matchLabels[k]).hasValue())",fieldPath=".matchLabels",message="a label value is empty or at most 63 letters, digits, '-', '_' and '.', starting and ending with a letter or digit"
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, !format.qualifiedName().validate(e.key).hasValue())",fieldPath=".matchExpressions",message="a label key is a name of at most 63 letters, digits, '-', '_' and '.', with a DNS name and '/' before it if need be: topology.kubernetes.io/zone"
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, !has(e.values) || e.values.all(v, !format.labelValue().validate(v).hasValue()))",fieldPath=".matchExpressions",message="a label value is empty or at most 63 letters, digits, '-', '_' and '.', starting and ending with a letter or digit"
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`

	// priority decides where several pools match a node: the highest comes
	// first, equal ones by name. The next one takes over when one is full.
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=-1000000
	// +kubebuilder:validation:Maximum=1000000
	// +optional
	Priority int32 `json:"priority,omitempty"`

	// ciliumPoolName is the pool of Cilium's, in multi-pool mode, for this pool's addresses: pods
	// ask for it by ipam.cilium.io/ip-pool and the like on pod or namespace, or a CiliumPodIPPool
	// of that name selects them. Absent: the pool "default", of all pods that ask for no other. In
	// other modes a pool that names another one serves no node. It cannot be changed.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="ciliumPoolName is the name of a CiliumPodIPPool: at most 253 lower-case letters, digits, '-' and '.', starting and ending with a letter or digit"
	// +kubebuilder:validation:XValidation:rule="!self.endsWith('.draining.cilium-pool.io')",message="names that end with .draining.cilium-pool.io are the operator's: agents list draining blocks under them"
	// +kubebuilder:validation:XValidation:rule="!self.matches('[.](pods|pod|labels)[.]cilium-pool[.]io$')",message="names that end with .pods.cilium-pool.io, .pod.cilium-pool.io or .labels.cilium-pool.io are the operator's: each is of one owner, which a PodIPPin names"
	// +optional
	CiliumPoolName string `json:"ciliumPoolName,omitempty"`

	// paused stops all change on the nodes this pool rules, in the families it
	// has: no block is added, drained or returned. Its nodes wait rather than spill to another pool.
	// +optional
	Paused *bool `json:"paused,omitempty"`

	// ipv4 holds the IPv4 ranges of the pool.
	// +optional
	IPv4 *IPv4Ranges `json:"ipv4,omitempty"`

	// ipv6 holds the IPv6 ranges of the pool. With ipv4 beside it, nodes are
	// dual stack.
	// +optional
	IPv6 *IPv6Ranges `json:"ipv6,omitempty"`

	// reserved lists CIDRs that pods never get addresses of. Addresses that are published already
	// leave their nodes through the release handshake, once no pod uses them.
	// +kubebuilder:validation:MaxItems=64
	// +listType=map
	// +listMapKey=cidr
	// +optional
	Reserved []ReservedCIDR `json:"reserved,omitempty"`

	// reservedBlockPolicy is the treatment of a block that overlaps a reserved CIDR. A block is
	// routed as a whole: on every node, the route of a block also covers its reserved addresses, so
	// that a gateway among them is unreachable from other nodes. Skip: the block is not assigned to
	// any node. PublishRemainder: the block is assigned, and pods get its other addresses. A block
	// that a node holds when the CIDR becomes reserved stays there under either, without the
	// reserved addresses. More values may come; a reader treats an unknown one as Skip.
	// +kubebuilder:default=Skip
	// +optional
	ReservedBlockPolicy ReservedBlockPolicy `json:"reservedBlockPolicy,omitempty"`

	// expand says when a node gets another block.
	// +optional
	Expand Expand `json:"expand,omitzero"`

	// reclaim is the rule for idle blocks.
	// +optional
	Reclaim Reclaim `json:"reclaim,omitzero"`

	// maintenance limits when blocks may begin to leave their nodes, and their number in an hour.
	// +optional
	Maintenance Maintenance `json:"maintenance,omitzero"`

	// unselectedNodes is the treatment of blocks on nodes that nodeSelector no longer picks, as
	// their labels or the selector changed.
	// +optional
	UnselectedNodes UnselectedNodes `json:"unselectedNodes,omitzero"`

	// cooldown is the time that a returned block waits before another node may have it, so that
	// routes to its old node are gone everywhere. Default: the operator's --cooldown (1m).
	// +kubebuilder:validation:MaxLength=28
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,5}(h|m|s|ms)){1,4}$') && duration(self) <= duration('24h')",message="cooldown must be a duration between 0s and 24h in whole h, m, s or ms, as in 90s, 1m or 1h30m"
	// +optional
	Cooldown *Duration `json:"cooldown,omitempty"`

	// podAddresses keeps an address of this pool for each owner among the pods that it selects, on any node: for each
	// pod name, or for each value of a label. The operator makes the PodIPPin. In multi-pool mode, with blocks of single
	// addresses.
	// +optional
	PodAddresses *PodAddresses `json:"podAddresses,omitempty"`
}

// PodAddresses selects the pods that keep an address: none with an annotation that names a Cilium pool, and without an
// ownerLabel none with a generated name, as of a Deployment. Where it selects several namespaces, each of them keeps at
// most half of the pool's addresses.
//
// +kubebuilder:validation:XValidation:rule="has(self.podSelector) || has(self.namespaceSelector)",message="podAddresses without a selector would keep an address for every pod, and fields of other names were dropped: write podSelector or namespaceSelector"
type PodAddresses struct {
	// podSelector picks pods by their labels. Absent: all.
	// +optional
	// +kubebuilder:validation:XValidation:rule="(has(self.matchLabels) && self.matchLabels.size() > 0) || (has(self.matchExpressions) && self.matchExpressions.size() > 0)",message="a podSelector without matchLabels and matchExpressions picks all pods, and fields of other names were dropped: write labels below matchLabels, or leave podSelector out"
	PodSelector *metav1.LabelSelector `json:"podSelector,omitempty"`

	// namespaceSelector picks the namespaces of pods by their labels. Absent: all.
	// +optional
	// +kubebuilder:validation:XValidation:rule="(has(self.matchLabels) && self.matchLabels.size() > 0) || (has(self.matchExpressions) && self.matchExpressions.size() > 0)",message="a namespaceSelector without matchLabels and matchExpressions picks all namespaces, and fields of other names were dropped: write labels below matchLabels, or leave namespaceSelector out"
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`

	// ownerLabel is the key of the label whose value owns an address in a namespace, whatever the names of its pods
	// are, such as vm.kubevirt.io/name: of several such pods at once, one has the address. Pods without the label keep
	// none. Absent: the name of a pod does.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="!format.qualifiedName().validate(self).hasValue() && self == self.lowerAscii() && !self.contains('_')",message="ownerLabel must be the key of a label, of lower case letters, digits, '-', '.' and '/': vm.kubevirt.io/name"
	// +optional
	OwnerLabel string `json:"ownerLabel,omitempty"`

	// releaseAfter is how long an address stays that no node holds while its owner has no pod.
	// Or Never.
	// +kubebuilder:default="168h"
	// +kubebuilder:validation:MaxLength=28
	// +kubebuilder:validation:XValidation:rule="self == 'Never' || self.matches('^([0-9]{1,5}(h|m|s|ms)){1,4}$') && duration(self) <= duration('8760h')",message="releaseAfter must be a duration between 0s and 8760h in whole h, m, s or ms, as in 168h or 30m, or Never"
	// +optional
	ReleaseAfter Duration `json:"releaseAfter,omitempty"`
}

// IPv4Ranges are the IPv4 CIDRs of a pool and how they are cut.
//
// +kubebuilder:validation:XValidation:rule="self.cidrs.all(c, !isCIDR(c.cidr) || cidr(c.cidr).prefixLength() <= self.blockSize)",fieldPath=".cidrs",message="each CIDR must hold at least one block: widen those whose prefix length is above blockSize",messageExpression="'%s is smaller than one block, a /%d: widen or remove it, or raise blockSize'.format([self.cidrs.filter(c, isCIDR(c.cidr) && cidr(c.cidr).prefixLength() > self.blockSize)[0].cidr, self.blockSize])"
// +kubebuilder:validation:XValidation:rule="self.cidrs.all(a, !isCIDR(a.cidr) || self.cidrs.all(b, a.cidr == b.cidr || !isCIDR(b.cidr) || !cidr(a.cidr).containsCIDR(b.cidr)))",fieldPath=".cidrs",message="the CIDRs of a pool must not overlap: keep the wider one",messageExpression="'%s contains another CIDR of this pool: remove the smaller one'.format([self.cidrs.filter(a, isCIDR(a.cidr) && self.cidrs.exists(b, a.cidr != b.cidr && isCIDR(b.cidr) && cidr(a.cidr).containsCIDR(b.cidr)))[0].cidr])"
type IPv4Ranges struct {
	// cidrs are the ranges, up to 128 in any place; add to them at any time.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=128
	// +kubebuilder:validation:items:XValidation:rule="!isCIDR(self.cidr) || cidr(self.cidr).ip().family() == 4",fieldPath=".cidr",message="ipv4.cidrs takes IPv4 CIDRs only: move this one to ipv6.cidrs"
	// +listType=map
	// +listMapKey=cidr
	// +required
	CIDRs []PoolCIDR `json:"cidrs"`

	// blockSize is the prefix length of a block, under its name in Calico: with 27 a node gets 32
	// addresses at a time. It can change while no node holds a block. In crd mode from 20 to 30, as a CiliumNode
	// lists each address. Blocks of single addresses (32) need podAddresses or a ciliumPoolName.
	// +kubebuilder:validation:Minimum=16
	// +kubebuilder:validation:Maximum=32
	// +required
	BlockSize int32 `json:"blockSize"`

	EdgeIPs `json:",inline"`
}

// IPv6Ranges are the IPv6 CIDRs of a pool and how they are cut.
//
// +kubebuilder:validation:XValidation:rule="self.cidrs.all(c, !isCIDR(c.cidr) || cidr(c.cidr).prefixLength() <= self.blockSize)",fieldPath=".cidrs",message="each CIDR must hold at least one block: widen those whose prefix length is above blockSize",messageExpression="'%s is smaller than one block, a /%d: widen or remove it, or raise blockSize'.format([self.cidrs.filter(c, isCIDR(c.cidr) && cidr(c.cidr).prefixLength() > self.blockSize)[0].cidr, self.blockSize])"
// +kubebuilder:validation:XValidation:rule="self.cidrs.all(a, !isCIDR(a.cidr) || self.cidrs.all(b, a.cidr == b.cidr || !isCIDR(b.cidr) || !cidr(a.cidr).containsCIDR(b.cidr)))",fieldPath=".cidrs",message="the CIDRs of a pool must not overlap: keep the wider one",messageExpression="'%s contains another CIDR of this pool: remove the smaller one'.format([self.cidrs.filter(a, isCIDR(a.cidr) && self.cidrs.exists(b, a.cidr != b.cidr && isCIDR(b.cidr) && cidr(a.cidr).containsCIDR(b.cidr)))[0].cidr])"
type IPv6Ranges struct {
	// cidrs are the ranges, up to 128 in any place; add to them at any time.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=128
	// +kubebuilder:validation:items:XValidation:rule="!isCIDR(self.cidr) || cidr(self.cidr).ip().family() == 6",fieldPath=".cidr",message="ipv6.cidrs takes IPv6 CIDRs only: move this one to ipv4.cidrs"
	// +listType=map
	// +listMapKey=cidr
	// +required
	CIDRs []PoolCIDR `json:"cidrs"`

	// blockSize is the prefix length of a block, under its name in Calico: with 122 a node gets 64
	// addresses at a time. It can change while no node holds a block. In crd mode from 116 to 126; in others agents
	// use 65536 addresses of a larger block. Blocks of single addresses (128) need podAddresses or a ciliumPoolName.
	// +kubebuilder:validation:Minimum=48
	// +kubebuilder:validation:Maximum=128
	// +required
	BlockSize int32 `json:"blockSize"`

	EdgeIPs `json:",inline"`
}

// EdgeIPs says whether pods may have the first and last address of each block. Both default to no,
// as in CiliumPodIPPool: some hardware and some hosts treat them as network and broadcast
// addresses.
type EdgeIPs struct {
	// allowFirstIP lets pods have the first address of each block too.
	// +optional
	AllowFirstIP *bool `json:"allowFirstIP,omitempty"`
	// allowLastIP lets pods have the last address of each block too.
	// +optional
	AllowLastIP *bool `json:"allowLastIP,omitempty"`
}

// PoolCIDR is one range of a pool.
type PoolCIDR struct {
	// cidr is the range, in canonical form with no host bits: 10.20.0.0/16.
	// +kubebuilder:validation:MaxLength=43
	// +kubebuilder:validation:XValidation:rule="isCIDR(self) && string(cidr(self).masked()) == self",message="cidr must be canonical, with no host bits set: 10.20.0.0/16",messageExpression="isCIDR(self) ? 'cidr must be canonical, with no host bits set: write %s'.format([string(cidr(self).masked())]) : 'cidr must be a CIDR such as 10.20.0.0/16 or fd00:10::/64 (IPv4-mapped IPv6 is refused)'"
	// +kubebuilder:validation:XValidation:rule="!isCIDR(self) || (cidr(self).prefixLength() >= 8 && cidr(self).ip().isGlobalUnicast())",message="cidr must be addresses that pods can have: of prefix length 8 or more, and neither unspecified, loopback, link-local nor multicast"
	// +required
	CIDR string `json:"cidr"`

	// allocationPolicy is the use of this range for nodes. Allocate, the default: new blocks, as
	// they need them. Cordon: no new blocks; nodes keep the blocks they hold. Drain: no new blocks,
	// and nodes move off the blocks they hold: each node first gets a replacement, then returns the
	// old block as its pods go. More values may come; a reader treats an unknown one as Cordon.
	// +optional
	AllocationPolicy AllocationPolicy `json:"allocationPolicy,omitempty"`
}

// ReservedBlockPolicy is the treatment of a block that overlaps a reserved CIDR.
// +kubebuilder:validation:Enum=Skip;PublishRemainder
type ReservedBlockPolicy string

const (
	// SkipReservedBlocks does not assign a block that overlaps a reserved CIDR.
	SkipReservedBlocks ReservedBlockPolicy = "Skip"
	// PublishRemainder assigns the block without its reserved addresses.
	PublishRemainder ReservedBlockPolicy = "PublishRemainder"
)

// ReservedCIDR is a part of a pool that pods never get.
type ReservedCIDR struct {
	// cidr is the range, in canonical form with no host bits: 10.20.0.0/28.
	// +kubebuilder:validation:MaxLength=43
	// +kubebuilder:validation:XValidation:rule="isCIDR(self) && string(cidr(self).masked()) == self",message="reserved must be canonical CIDRs with no host bits set: 10.20.0.0/28",messageExpression="isCIDR(self) ? 'reserved must be canonical, with no host bits set: write %s'.format([string(cidr(self).masked())]) : 'reserved must be a CIDR such as 10.20.0.0/28 or fd00:10::/120 (IPv4-mapped IPv6 is refused)'"
	// +required
	CIDR string `json:"cidr"`

	// description is the purpose of the range, as in "top-of-rack gateways". Messages about the
	// range repeat it.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	Description string `json:"description,omitempty"`
}

// AllocationPolicy is the use of a range for nodes.
//
// +kubebuilder:validation:Enum=Allocate;Cordon;Drain
type AllocationPolicy string

// Allocation policies of a range.
const (
	// AllocationAllocate assigns new blocks to nodes.
	AllocationAllocate AllocationPolicy = "Allocate"
	// AllocationCordon assigns no new block, and leaves nodes the blocks they hold.
	AllocationCordon AllocationPolicy = "Cordon"
	// AllocationDrain assigns no new block, and drains the blocks that nodes hold.
	AllocationDrain AllocationPolicy = "Drain"
)

// Expand says when a node gets another block. Fields left out come from the operator's flags.
type Expand struct {
	// thresholdPercent of a node's addresses in use, above which it gets
	// another block. Default: --expand-threshold-percent (80); if that is not above
	// reclaim.thresholdPercent, as far above it as the two flags are apart.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	// +optional
	ThresholdPercent *int32 `json:"thresholdPercent,omitempty"`

	// minFreeAddresses is the least number of addresses that a node keeps free. Default: --expand-min-free-addresses
	// (4).
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4096
	// +optional
	MinFreeAddresses *int32 `json:"minFreeAddresses,omitempty"`

	// maxBlocksPerNode caps the blocks one node holds, per family; draining
	// ones do not count. Default: --expand-max-blocks-per-node (16); 1024 if blocks are
	// single addresses.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1024
	// +optional
	MaxBlocksPerNode *int32 `json:"maxBlocksPerNode,omitempty"`
}

// Reclaim is the rule for idle blocks. Fields left out come from the operator's flags.
type Reclaim struct {
	// thresholdPercent: a block is taken back when the node's other blocks,
	// without it, stay at or below this share in use. Below
	// expand.thresholdPercent. Default: --reclaim-threshold-percent (50); if that is not
	// below it, as far below it as the two flags are apart.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=99
	// +optional
	ThresholdPercent *int32 `json:"thresholdPercent,omitempty"`

	// idleFor is the time that this must hold without interruption. Default: --reclaim-idle-for
	// (10m).
	// +kubebuilder:validation:MaxLength=28
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,5}(h|m|s|ms)){1,4}$') && duration(self) <= duration('168h')",message="idleFor must be a duration between 0s and 168h in whole h, m, s or ms, as in 30s, 10m or 1h30m"
	// +optional
	IdleFor *Duration `json:"idleFor,omitempty"`

	// pressurePercent: idleFor shrinks once this share of the pool's blocks is taken, the fuller
	// the pool the more, down to a tenth, and on cordoned nodes to a tenth at once.
	// Default: --reclaim-pressure-percent (90). The word Never is the older form of pressurePolicy: Never.
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 1 && self <= 100 : self == 'Never'",message="pressurePercent must be a number from 1 to 100; if idleFor must not shrink, set pressurePolicy: Never"
	// +optional
	PressurePercent *intstr.IntOrString `json:"pressurePercent,omitempty"`

	// pressurePolicy says whether a full pool shrinks idleFor. Shorten: from pressurePercent on, or by the
	// operator's flag. Never: it does not. Default: Shorten. More values may come; a reader treats an
	// unknown one as Never.
	// +optional
	PressurePolicy PressurePolicy `json:"pressurePolicy,omitempty"`

	// policy says which blocks the operator reclaims. WhenIdle: the blocks that it could do without
	// for idleFor. Never: none; only a drain, an edit of the pool or a deleted block takes one
	// away. Default: WhenIdle, or Never where the operator runs with --reclaim-policy=Never.
	// More values may come; a reader treats an unknown one as Never.
	// +optional
	Policy ReclaimPolicy `json:"policy,omitempty"`
}

// ReclaimPolicy says which blocks the operator reclaims.
//
// +kubebuilder:validation:Enum=WhenIdle;Never
type ReclaimPolicy string

const (
	// ReclaimWhenIdle takes back blocks that a node could do without for a while.
	ReclaimWhenIdle ReclaimPolicy = "WhenIdle"
	// ReclaimNever takes back no block unless a user asks for it.
	ReclaimNever ReclaimPolicy = "Never"
)

// PressurePolicy says whether a full pool shrinks idleFor.
//
// +kubebuilder:validation:Enum=Shorten;Never
type PressurePolicy string

const (
	// PressureShortens shrinks idleFor from a share of the pool's blocks on.
	PressureShortens PressurePolicy = "Shorten"
	// PressureNever leaves it as it is.
	PressureNever PressurePolicy = "Never"
)

// ReclaimPolicyOf returns WhenIdle or Never.
func ReclaimPolicyOf(never bool) ReclaimPolicy {
	if never {
		return ReclaimNever
	}
	return ReclaimWhenIdle
}

// Words in place of a number, as flags and older objects have them.
const (
	// Unlimited: as many as need be.
	Unlimited = "Unlimited"
	// Never: there is no such share.
	Never = "Never"
)

// UnselectedNodes is the treatment of the blocks of this pool on nodes that it no longer
// selects, while another pool serves them.
type UnselectedNodes struct {
	// policy says whether such a node moves off its blocks. Retain, the default: it keeps the blocks
	// it uses, and returns idle ones as any node does. Drain: they drain as on request, the agent's
	// own addresses included: the node first gets a replacement from the pools that select it, its
	// agent takes other addresses when it restarts, and a block goes once its last pod has gone. No
	// pod is evicted. It is taken back where the pool selects the node again. In multi-pool and
	// kubernetes mode blocks are retained. More values may come; a reader treats an unknown one as
	// Retain.
	// +optional
	Policy UnselectedNodesPolicy `json:"policy,omitempty"`

	// maxConcurrent is the number of nodes that may move off this pool at a time, so that a slip in
	// a selector or in labels does not move all. A node counts until its last block of the pool has
	// left it. Default: 1.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	// +optional
	MaxConcurrent *int32 `json:"maxConcurrent,omitempty"`
}

// UnselectedNodesPolicy says whether nodes move off a pool that no longer selects them.
//
// +kubebuilder:validation:Enum=Retain;Drain
type UnselectedNodesPolicy string

const (
	// UnselectedNodesRetain leaves nodes the blocks that they use.
	UnselectedNodesRetain UnselectedNodesPolicy = "Retain"
	// UnselectedNodesDrain drains their blocks of the pool.
	UnselectedNodesDrain UnselectedNodesPolicy = "Drain"
)
