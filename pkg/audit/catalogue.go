package audit

import (
	"slices"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumconfig"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
)

// Reason names a kind of finding. Reasons are stable: scripts may match them.
type Reason string

// Reasons.
const (
	NoOperatorLeads         Reason = "NoOperatorLeads"
	AddressOnTwoNodes       Reason = "AddressOnTwoNodes"
	AddressUsedTwice        Reason = "AddressUsedTwice"
	PodsShareAddress        Reason = "PodsShareAddress"
	ClusterAddressInUse     Reason = "ClusterAddressInUse"
	ClusterAddressRouted    Reason = "ClusterAddressRouted"
	AddressTwiceInPool      Reason = "AddressTwiceInPool"
	BlocksOverlap           Reason = "BlocksOverlap"
	AddressOutsidePool      Reason = "AddressOutsidePool"
	PodAddressOfOtherNode   Reason = "PodAddressOfOtherNode"
	PodAddressUnowned       Reason = "PodAddressUnowned"
	MarkedInUse             Reason = "MarkedInUse"
	PoolEntryOfOtherNode    Reason = "PoolEntryOfOtherNode"
	PoolEntryWithoutBlock   Reason = "PoolEntryWithoutBlock"
	PodCIDROnTwoNodes       Reason = "PodCIDROnTwoNodes"
	PodCIDROfOtherNode      Reason = "PodCIDROfOtherNode"
	PodCIDRWithoutBlock     Reason = "PodCIDRWithoutBlock"
	BlockNotListed          Reason = "BlockNotListed"
	CoolingBlockPublished   Reason = "CoolingBlockPublished"
	BlockMalformed          Reason = "BlockMalformed"
	CiliumNodeMissing       Reason = "CiliumNodeMissing"
	NodeWithoutAddresses    Reason = "NodeWithoutAddresses"
	PoolInvalid             Reason = "PoolInvalid"
	ListedTwice             Reason = "ListedTwice"
	AgentOnOtherPodCIDR     Reason = "AgentOnOtherPodCIDR"
	FieldUnreadable         Reason = "FieldUnreadable"
	CiliumModeDiffers       Reason = "CiliumModeDiffers"
	KVStoreWithoutRoutes    Reason = "KVStoreWithoutRoutes"
	AnnouncedByOtherNode    Reason = "AnnouncedByOtherNode"
	BlockNotAnnounced       Reason = "BlockNotAnnounced"
	FRRConfigurationRefused Reason = "FRRConfigurationRefused"

	ForeignPoolEntry      Reason = "ForeignPoolEntry"
	ForeignPodCIDR        Reason = "ForeignPodCIDR"
	PoolEntryMalformed    Reason = "PoolEntryMalformed"
	PoolEntryUnreadable   Reason = "PoolEntryUnreadable"
	BlockNotPublished     Reason = "BlockNotPublished"
	BlockWithoutNode      Reason = "BlockWithoutNode"
	BlockWithoutPool      Reason = "BlockWithoutPool"
	BlockUnprotected      Reason = "BlockUnprotected"
	CooldownOverdue       Reason = "CooldownOverdue"
	DrainStuck            Reason = "DrainStuck"
	StuckHandshake        Reason = "StuckHandshake"
	StaleRelease          Reason = "StaleRelease"
	CiliumNodeWithoutNode Reason = "CiliumNodeWithoutNode"
	NodeServedByNoPool    Reason = "NodeServedByNoPool"
	PodServedByNoPool     Reason = "PodServedByNoPool"
	NodeYetToMove         Reason = "NodeYetToMove"
	NodeAwaitsLabels      Reason = "NodeAwaitsLabels"
	NodeWithoutAgent      Reason = "NodeWithoutAgent"
	NodeAgentSilent       Reason = "NodeAgentSilent"
	NodeShortOfAddresses  Reason = "NodeShortOfAddresses"
	PoolsOverlap          Reason = "PoolsOverlap"
	PoolCoversCluster     Reason = "PoolCoversClusterAddresses"
	PoolMasqueraded       Reason = "PoolMasqueraded"
	PoolExhausted         Reason = "PoolExhausted"
	CiliumPodIPPoolUnfit  Reason = "CiliumPodIPPoolUnfit"
	PoolSelectsNoNode     Reason = "PoolSelectsNoNode"
	PoolFamilyNotRun      Reason = "PoolFamilyNotRun"
	PoolStatusStale       Reason = "PoolStatusStale"
	PoolNotReady          Reason = "PoolNotReady"
	PinNotReady           Reason = "PinNotReady"
	KeptAddressOptional   Reason = "KeptAddressOptional"
	PoolChosenByKubelet   Reason = "PoolChosenByKubelet"
	PoolRangePublic       Reason = "PoolRangePublic"
	NodePodCIDRInPool     Reason = "NodePodCIDRInPool"
	NodePodCIDRFirst      Reason = "NodePodCIDRFirst"
	FamilyNotRun          Reason = "FamilyNotRun"
	FamilySwitchedOff     Reason = "FamilySwitchedOff"
	LeftFromCRDMode       Reason = "LeftFromCRDMode"
	NoAgentsFound         Reason = "NoAgentsFound"
	FRRConfigurationLeft  Reason = "FRRConfigurationLeft"
	BlockWithoutNeighbor  Reason = "BlockWithoutNeighbor"
	BGPSessionDown        Reason = "BGPSessionDown"
	TimeInFuture          Reason = "TimeInFuture"
)

// ReasonInfo describes a reason.
type ReasonInfo struct {
	Reason   Reason
	Severity Severity
	// Meaning is the fault, in general.
	Meaning string
	// Fix is the remedy; FixIn returns its variant in modes other than crd. NAME stands for the
	// object's name, OTHER for that of the first other object, ADDRESS for the first address or
	// CIDR. Commands are in backticks.
	Fix string
}

// lookForOperator ends fixes that the operator makes on its own.
const lookForOperator = "The operator fixes this by itself: see that it runs, leads and is not paused."

// Catalogue lists all reasons: errors first, the worst first.
func Catalogue() []ReasonInfo {
	return slices.Concat(errorReasons(), warningReasons(), configurationReasons())
}

func errorReasons() []ReasonInfo {
	return []ReasonInfo{
		{NoOperatorLeads, Error, "No operator leads: new nodes get no addresses, nodes do not grow, and no drain goes on.",
			"Start the operator, or see why none leads: `kubectl get pods -A -l app.kubernetes.io/name=cilium-pool-operator`. If its Lease is another, name that. With `--leader-elect=false` it has none: give `--mode`. If another IPAM assigns the addresses: `--mode observe`."},
		{AddressOnTwoNodes, Error, "An address is in the pools of two nodes: both agents can assign it to a pod.",
			"Move pods off ADDRESS on NAME, then take ADDRESS out of spec.ipam.pool there: `kubectl edit ciliumnode NAME`. If the agent itself has ADDRESS (router, health, ingress), restart it then. Find out who wrote it."},
		{AddressUsedTwice, Error, "The agents of two nodes report the same address in use.",
			"Delete the pod that has ADDRESS on NAME; it gets another address. Then take ADDRESS out of spec.ipam.pool of the node that does not hold its block. If the agent itself has ADDRESS (router, health, ingress), restart it then."},
		{PodsShareAddress, Error, "Two running pods have the same address.",
			"Delete the pod NAME; it gets another address. Then run this check again."},
		{ClusterAddressInUse, Error, "A pod or an agent uses an address of a node, a Service or a range of Services: traffic goes to either.",
			"Delete the pod that has ADDRESS on NAME; it gets another address. If the agent itself has it (router, health, ingress), drain its block, then restart the agent. Then run this check again."},
		{ClusterAddressRouted, Error, "A CIDR of a node contains an address of a node or Service, as another IPAM assigns it: other nodes route the address there.",
			"Take ADDRESS out of the ranges for pods of that IPAM, or give nodes and Services other subnets. Then replace the Nodes with such CIDRs."},
		{AddressTwiceInPool, Error, "A pool names an address twice, once in another form: the agent can assign it to two pods.",
			"Take the odd key for ADDRESS out of spec.ipam.pool: `kubectl edit ciliumnode NAME`."},
		{BlocksOverlap, Error, "Two blocks share addresses. The operator publishes no more of either.",
			"Drain the block that is not needed: `kubectl cilium-pool drain NAME`."},
		{AddressOutsidePool, Error, "An address in use is not in its node's pool: when the agent restarts, the pod loses its network.",
			"While a pod has ADDRESS, do not restart the agent of NAME. Where ADDRESS lies in a block of NAME the operator puts it back: see that it runs. Else delete the pod; it gets another address. If the agent itself has ADDRESS (router, health, ingress), restart it: it takes one of its pool."},
		{PodAddressOfOtherNode, Error, "A pod's address belongs to another node: traffic for it goes there.",
			"Delete the pod NAME; it gets an address of its own node."},
		{PodAddressUnowned, Error, "A pod's address is in no block and no pool entry: another pod can get it.",
			"Pin the block of ADDRESS to the pod's node (see Pin a block), or delete the pod NAME; it gets another address."},
		{MarkedInUse, Error, "An address in use is marked for release: if the agent restarts now, the pod loses its network.",
			"Do not restart the agent of NAME, and delete the entry: `kubectl patch ciliumnode NAME --subresource=status --type=merge -p '{\"status\":{\"ipam\":{\"release-ips\":{\"ADDRESS\":null}}}}'`. " + lookForOperator},
		{PoolEntryOfOtherNode, Error, "A pool holds an address of another node's block: traffic for it goes there.",
			"Take ADDRESS out of spec.ipam.pool once no pod uses it: `kubectl edit ciliumnode NAME`. If the agent itself has ADDRESS (router, health, ingress), restart it then. Find out who wrote it."},
		{PoolEntryWithoutBlock, Error, "A pool holds an address of a PodIPPool that lies in no block.",
			"To keep ADDRESS on NAME, pin its block to that node (see Pin a block); else take it out of spec.ipam.pool once no pod uses it: `kubectl edit ciliumnode NAME`."},
		{PodCIDROnTwoNodes, Error, "podCIDRs of two nodes share addresses: routes for them lead to one of the two.",
			"Take ADDRESS out of spec.ipam.podCIDRs of the node that does not hold its block: `kubectl edit ciliumnode NAME`."},
		{PodCIDROfOtherNode, Error, "A node's podCIDRs list addresses of another node's block: routes lead to the wrong node.",
			"Take ADDRESS out of spec.ipam.podCIDRs: `kubectl edit ciliumnode NAME`. Find out who wrote it."},
		{PodCIDRWithoutBlock, Error, "A node's podCIDRs list a block of a pool that has no PodIPBlock.",
			"The PodIPBlock was removed together with its finalizer. The operator creates it again: see that it runs. Find out who removed it."},
		{BlockNotListed, Error, "podCIDRs do not list a block with addresses in the pool: other nodes have no route to its pods.",
			"A user or another controller edited podCIDRs of OTHER. " + lookForOperator},
		{CoolingBlockPublished, Error, "A block cools down, and its old node still has addresses of it.",
			lookForOperator},
		{BlockMalformed, Error, "A PodIPBlock cannot be read, or its name is not that of its CIDR: it protects no address.",
			"Create a block of the right name, then delete this one: `kubectl annotate podipblock NAME cilium-pool.io/allow-delete=true`, `kubectl delete podipblock NAME --wait=false`."},
		{CiliumNodeMissing, Error, "A Node with a pool or blocks has no CiliumNode: its pods get no address.",
			lookForOperator},
		{NodeWithoutAddresses, Error, "A node's pool is empty in a family of its PodIPPools: its agent does not start, or pods get no address.",
			"See whether the pools of NAME have free blocks: `kubectl get podippools`. " + lookForOperator},
		{PoolInvalid, Error, "A PodIPPool contradicts itself or the operator's flags. It serves with the value that the message names, or assigns no block.",
			"Fix the field that is named: `kubectl edit podippool NAME`."},
		{ListedTwice, Error, "A node lists an address in two CIDRs: its agent can assign it to two pods.",
			"Move the pods of ADDRESS off NAME, then take one of the two out of spec.ipam.pools.allocated, either the CIDR without a PodIPBlock or the one listed for the wrong Cilium pool: `kubectl edit ciliumnode NAME`. Find out who wrote it."},
		{CiliumModeDiffers, Error, "Agents are configured for another IPAM mode than the operator's: pods lose their network when agents restart.",
			"Restart no agent. Set ipam of the ConfigMap NAME, and of CiliumNodeConfigs, back to the operator's mode; or move the cluster as docs/migration.md and docs/modes.md say."},
		{KVStoreWithoutRoutes, Error, "Agents learn nodes from a kvstore, without podCIDRs: they have no routes to the blocks of other nodes.",
			ciliumconfig.LosingRoutesFix + "."},
		{AnnouncedByOtherNode, Error, "An FRRConfiguration of the operator announces a block from a node that does not hold it.",
			"Give the Node NAME a label kubernetes.io/hostname of its own, if another Node has the same. " + lookForOperator},
		{BlockNotAnnounced, Error, "No FRRConfiguration of the operator announces a block with addresses in the pool: the network has no route to its pods.",
			"As the message says: see docs/bgp.md for templates. " + lookForOperator},
		{FRRConfigurationRefused, Error, "frr-k8s on a Node refuses its FRRConfigurations: it announces no further block, and withdraws none.",
			"As the message says: correct the templates, or the other FRRConfigurations that select the Node OTHER (docs/bgp.md)."},
		{AgentOnOtherPodCIDR, Error, "An agent runs with another podCIDR than its Node names: when it restarts, its pods lose their network.",
			"Drain and delete the Node NAME: it joins again with a block of its own. Or, where ADDRESS belongs to no other node and spec.podCIDRs is empty, write it into the annotation network.cilium.io/ipv4-pod-cidr, or ipv6-pod-cidr, of NAME."},
		{FieldUnreadable, Error, "A CiliumNode has a value that Cilium's type cannot hold: agents of Cilium v1.20 and later see no change of any CiliumNode.",
			"Correct the field that is named: `kubectl edit ciliumnode NAME`."},
	}
}

func warningReasons() []ReasonInfo {
	return []ReasonInfo{
		{ForeignPoolEntry, Warning, "A pool holds an address outside all blocks and PodIPPools. The operator keeps it, and assigns it to no other node.",
			"Leave it if you know who wrote it. Else take ADDRESS out of spec.ipam.pool once no pod uses it: `kubectl edit ciliumnode NAME`."},
		{ForeignPodCIDR, Warning, "podCIDRs list a range that is no block of the node's pools. The operator keeps it.",
			"Leave it if you know who wrote it. Else take ADDRESS out of spec.ipam.podCIDRs: `kubectl edit ciliumnode NAME`."},
		{PoolEntryMalformed, Warning, "A key of a pool is an address in another than the canonical form.",
			"Write ADDRESS in its canonical form in spec.ipam.pool: `kubectl edit ciliumnode NAME`."},
		{PoolEntryUnreadable, Warning, "A key of a pool is no address.",
			"Take the key out of spec.ipam.pool: `kubectl edit ciliumnode NAME`."},
		{BlockNotPublished, Warning, "A block is in service, and its node has none of its addresses.",
			lookForOperator},
		{BlockWithoutNode, Warning, "A block belongs to a Node that is not there, and does not cool down.",
			lookForOperator},
		{BlockWithoutPool, Warning, "A block belongs to a PodIPPool that is not there.",
			"The block drains. To keep it, create the PodIPPool OTHER again with the block's range."},
		{BlockUnprotected, Warning, "A block lacks the finalizer cilium-pool.io/in-use: a deletion removes it at once, even while pods use its addresses.",
			"Do not delete NAME. " + lookForOperator},
		{CooldownOverdue, Warning, "The cooldown of a block is over, and it is not free yet.",
			lookForOperator},
		{DrainStuck, Warning, "A block drains and makes no progress, although no pod uses it any more.",
			"Addresses leave only while the node's agent is Ready: see its pod. See the events of the Node for DrainWaits."},
		{StuckHandshake, Warning, "A release entry has stood for long: a pod that gets the address is lost when the agent restarts.",
			"See whether the agent of NAME is Ready and the operator runs and is not paused. An agent that is Ready and does not answer: read its log."},
		{StaleRelease, Warning, "A release entry is for an address that is not in the pool, or in no block. If it comes back, the agent will not use it.",
			"`kubectl patch ciliumnode NAME --subresource=status --type=merge -p '{\"status\":{\"ipam\":{\"release-ips\":{\"ADDRESS\":null}}}}'`. " + lookForOperator},
		{TimeInFuture, Warning, "An object has a time in the future: a clock was wrong when it was written, or that of this machine is behind.",
			"Correct the clocks of the control plane, where they are wrong. The operator counts from when it first saw the time, again after each restart."},
		{CiliumNodeWithoutNode, Warning, "A CiliumNode holds addresses, and there is no such Node.",
			"cilium-operator or this operator deletes it: see that both run. Else, if the machine is off: `kubectl delete ciliumnode NAME`."},
		{NodeServedByNoPool, Warning, "No PodIPPool serves a Node where Cilium runs, or none in a family or a Cilium pool of its agent: the agent does not start, or pods get no address, or none beyond the blocks that the Node holds.",
			"Write a pool that selects NAME and has the missing family or ciliumPoolName, or correct Cilium's settings (enable-ipv4, enable-ipv6, ipam-multi-pool-pre-allocation). Where Cilium does not run, label the Node cilium-pool.io/ignore=true."},
		{PodServedByNoPool, Warning, "A pod asks for a Cilium pool that no PodIPPool has for its Node: it gets no address.",
			"Correct the annotation ipam.cilium.io/ip-pool of NAME or of its namespace, or the selectors of CiliumPodIPPools; or write a PodIPPool with that ciliumPoolName for the Node OTHER."},
		{NodeYetToMove, Warning, "Another IPAM serves the pods of a Node, or its agent has yet to restart in crd mode. The operator only publishes its blocks, once they cover all its earlier addresses.",
			"`kubectl cilium-pool migrate status --node NAME` shows the next step."},
		{NodeAwaitsLabels, Warning, "A Node with a startup taint has no block yet, and a pod there waits for an address.",
			"See whether the component that removes the taint runs: it may be the pod that waits. The operator waits 5 minutes after the creation of NAME at most; to end the wait now, remove the taint: `kubectl edit node NAME`."},
		{NodeWithoutAgent, Warning, "A Node holds blocks, and no Cilium agent has ever run there: it gets no second block of a family.",
			"If Cilium does not run on NAME, label it: `kubectl label node NAME cilium-pool.io/ignore=true`. Then delete its CiliumNode: `kubectl delete ciliumnode NAME`. Else see why the DaemonSet of the agents has no pod there."},
		{NodeAgentSilent, Warning, "The node agent of a Node has never reported: pods there get no address.",
			"See that a pod of the DaemonSet of node agents runs on NAME, and read its log, which says what it waits for. Where Cilium's agent has yet to move to this mode: docs/modes.md."},
		{NodeShortOfAddresses, Warning, "A Node's pods wait for addresses (condition cilium-pool.io/PodAddressShortage). Nodes that wait for a full pool count in PoolExhausted.",
			"As the message says: add free blocks to a pool of NAME, open its cordoned CIDRs, write a pool that selects it, raise the limit, end the pause, or let the operator's writes pass (docs/reference/events.md, Condition of a Node). Or move pods away."},
	}
}

// configurationReasons are warnings about pools, settings and routes.
func configurationReasons() []ReasonInfo {
	return []ReasonInfo{
		{PoolsOverlap, Warning, "No block of a CIDR of a pool is assigned, as another pool has the same addresses.",
			"Take ADDRESS, or its shared part, out of one of the two: `kubectl edit podippool NAME`."},
		{PoolCoversCluster, Warning, "A pool covers addresses of nodes or Services. The operator assigns no block that contains one, except where objects ask for more than a quarter of the blocks of a CIDR, and those of MetalLB and of egress gateways.",
			"Give pods, nodes and Services separate ranges: reserve ADDRESS in the PodIPPool (`spec.reserved`), or take it out. Where another IPAM assigns it, take it out of the ranges for pods there."},
		{PoolMasqueraded, Warning, "Cilium masquerades connections to a range of a pool: pods see a node's address as their peer, and network policies do not match.",
			ciliumconfig.MasqueradedFix + "."},
		{PoolExhausted, Warning, "A pool has no free block left (condition Exhausted). The message begins with the Nodes where pods wait for one.",
			"Add a CIDR to NAME, or a pool of lower priority for the same nodes."},
		{CiliumPodIPPoolUnfit, Warning, "The CiliumPodIPPool of a pool is missing, or does not fit it (condition CiliumPodIPPoolReady).",
			"Correct the CiliumPodIPPool as the message says; ranges belong to NAME: `kubectl edit podippool NAME`. Where it is missing, see that the operator runs and is not paused, or, with `--keep-cilium-pod-ip-pools=false`, create it."},
		{PoolSelectsNoNode, Warning, "The nodeSelector of a pool picks no Node: the pool serves none.",
			"Correct spec.nodeSelector as the message says, or label the Nodes: `kubectl edit podippool NAME`. If its Nodes come later, cordon its CIDRs until then (allocationPolicy: Cordon)."},
		{PoolFamilyNotRun, Warning, "Agents do not run one of the families of their pool: the operator claims no block of it for their Nodes.",
			"Switch the family on in Cilium (enable-ipv4, enable-ipv6), and restart the agents. Or give these Nodes a pool without it."},
		{PoolStatusStale, Warning, "The operator has not seen the present generation of a pool's spec.",
			lookForOperator},
		{PoolNotReady, Warning, "A pool is not Ready, for a reason that no other finding names, as one that is paused or waits for its last blocks.",
			"As the message says: correct the pool, or end its pause: `kubectl edit podippool NAME`. A deleted pool goes with its last block: `kubectl cilium-pool get blocks --pool NAME` names the obstacles."},
		{PinNotReady, Warning, "A pin cannot give its node, or its owner, the block.",
			"If the message names a wrong Node, correct spec.nodeName: `kubectl edit podippin NAME`. Else do as it says; for another block or owner, delete the pin and create one: `kubectl delete podippin NAME`."},
		{KeptAddressOptional, Warning, "Pods with a kept address may start with another one: an agent that does not know the kept one yet assigns an address of default.",
			"Set the annotation `ipam.cilium.io/require-pool-match: \"true\"` in the template of the pod OTHER, or on its namespace (docs/keep-an-address.md)."},
		{PoolChosenByKubelet, Warning, "A pool selects nodes by a label that a kubelet may set on its own Node: a compromised node can take addresses of that pool.",
			"Label the nodes by a key under node-restriction.kubernetes.io/, which kubelets may not set, and select by that: `kubectl edit podippool NAME`. If you trust the kubelets: `kubectl annotate podippool NAME cilium-pool.io/trusted-labels=true`."},
		{PoolRangePublic, Warning, "A range of a pool is neither private (RFC 1918, RFC 4193) nor shared (RFC 6598): if it is not assigned to you, pods cannot reach its owner.",
			"Take ADDRESS out of NAME: `kubectl edit podippool NAME`. If it is yours: `kubectl annotate podippool NAME cilium-pool.io/own-ranges=true`."},
		{NodePodCIDRInPool, Warning, "kube-controller-manager gave a Node a podCIDR in a range of a pool: a cloud's routes, and components that read it, send addresses of other nodes' blocks there.",
			"Start kube-controller-manager with --allocate-node-cidrs=false, or with a --cluster-cidr outside of the pools. Then drain and delete the Node NAME: it joins again without."},
		{NodePodCIDRFirst, Warning, "spec.podCIDRs of a Node takes precedence over its block: the block is unused.",
			"Start kube-controller-manager with --allocate-node-cidrs=false. Then drain and delete the Node NAME: it joins again with its block."},
		{FamilyNotRun, Warning, "A Node has a block of a family that its agent does not run: it is unused, and stays until the Node is deleted.",
			"Enable the family in Cilium. Or serve NAME by a pool without it, then drain and delete the Node: it joins again without the block."},
		{FamilySwitchedOff, Warning, "Cilium's agents are configured without a family that node agents still assign addresses of, as the CiliumNode names one of the agent.",
			"Take the agent's link-local address of the family out of spec.addresses: `kubectl edit ciliumnode NAME`. Then restart Cilium's agent of the Node."},
		{LeftFromCRDMode, Warning, "A CiliumNode has fields of crd mode left: no node owns their addresses, and podCIDRs are routed.",
			"Once the agent of NAME runs in multi-pool mode and no pod has an address of theirs: `kubectl patch ciliumnode NAME --type=merge -p '{\"spec\":{\"ipam\":{\"pool\":null,\"podCIDRs\":null}}}'`."},
		{BlockWithoutNeighbor, Warning, "The templates for frr-k8s announce a block to no neighbor: the network has no route to its pods.",
			"As the message says: see docs/bgp.md for templates."},
		{BGPSessionDown, Warning, "A BGP session of frr-k8s is not established: that neighbor has no route to the pods of the Node.",
			"See that the neighbor runs, expects the Node OTHER with this ASN and password, and is reachable from there; or take it out of the template."},
		{FRRConfigurationLeft, Warning, "bgp.frrK8s no longer covers an FRRConfiguration of the operator: its blocks may go to other nodes.",
			"`kubectl delete frrconfigurations -l app.kubernetes.io/managed-by=cilium-pool-operator -n` its namespace, or enable bgp.frrK8s there again."},
		{NoAgentsFound, Warning, "Nodes hold blocks, and no pod of a Cilium agent was found: no block is ever returned.",
			"See which labels the agents' pods have, and set `--agent-selector` and `--cilium-namespace`, here and for the operator."},
	}
}

// Modes returns the modes that the finding can occur in.
func (e *ReasonInfo) Modes() []ciliumnode.Mode {
	if modes, ok := onlyIn()[e.Reason]; ok {
		return modes
	}
	return ciliumnode.Modes()
}

// FixIn returns the remedy in a mode.
func (e *ReasonInfo) FixIn(mode ciliumnode.Mode) string {
	if fix, ok := fixesIn(mode)[e.Reason]; ok {
		return fix
	}
	return e.Fix
}

// onlyIn returns the reasons that do not occur in every mode.
func onlyIn() map[Reason][]ciliumnode.Mode {
	crd := []ciliumnode.Mode{ciliumnode.CRD}
	inCiliumNode := []ciliumnode.Mode{ciliumnode.CRD, ciliumnode.MultiPool, ciliumnode.DelegatedPlugin}
	manyPools := []ciliumnode.Mode{ciliumnode.MultiPool, ciliumnode.DelegatedPlugin}
	kubernetes := []ciliumnode.Mode{ciliumnode.Kubernetes}
	return map[Reason][]ciliumnode.Mode{
		// They need a pool of addresses and a handshake.
		KVStoreWithoutRoutes: {ciliumnode.CRD, ciliumnode.DelegatedPlugin}, AddressOnTwoNodes: crd, AddressTwiceInPool: crd, MarkedInUse: crd, PoolEntryOfOtherNode: crd, PoolEntryWithoutBlock: crd,
		BlockNotListed: crd, ForeignPoolEntry: crd, PoolEntryMalformed: crd, PoolEntryUnreadable: crd, StuckHandshake: crd, NodeYetToMove: crd,
		// They need a CiliumNode that both the operator and the agent write to.
		AddressUsedTwice: inCiliumNode, FieldUnreadable: inCiliumNode, CiliumNodeMissing: inCiliumNode, CiliumNodeWithoutNode: inCiliumNode, DrainStuck: inCiliumNode, StaleRelease: inCiliumNode, NodePodCIDRInPool: inCiliumNode,
		ListedTwice: manyPools, LeftFromCRDMode: manyPools, PodServedByNoPool: manyPools, KeptAddressOptional: manyPools, CiliumPodIPPoolUnfit: manyPools,
		NodeAgentSilent: {ciliumnode.DelegatedPlugin}, FamilySwitchedOff: {ciliumnode.DelegatedPlugin},
		AgentOnOtherPodCIDR: kubernetes, NodePodCIDRFirst: kubernetes, FamilyNotRun: kubernetes,
	}
}

// clusterAddressInBlock is the fix of ClusterAddressInUse where agents hold whole blocks.
const clusterAddressInBlock = "Delete the pod that has ADDRESS on NAME; it gets another address. If the agent itself has it (router, health, ingress), drain and delete the Node NAME: the agent keeps it until then. Then run this check again."

// fixesIn returns the fixes of a mode that differ from the Catalogue's.
func fixesIn(mode ciliumnode.Mode) map[Reason]string {
	switch mode {
	case ciliumnode.MultiPool:
		return map[Reason]string{
			ClusterAddressInUse: clusterAddressInBlock,
			AddressUsedTwice:    "One of the two nodes lists a CIDR of the other: see PodCIDROnTwoNodes, then restart the agent of NAME.",
			AddressOutsidePool:  "While a pod has ADDRESS, do not restart the agent of NAME. Where ADDRESS lies in a block of NAME the operator lists that again: see that it runs. If the agent gives it back, or ADDRESS lies in no block, delete the pod; it gets another address. If the agent itself has ADDRESS (router, health, ingress), restart it: it takes one of its pool.",
			PodCIDROnTwoNodes:   "On the node that does not hold the block, delete the pods with addresses of ADDRESS, and take it out of spec.ipam.pools.allocated: `kubectl edit ciliumnode NAME`. Its agent puts back what pods use. Find out who wrote it.",
			PodCIDROfOtherNode:  "Delete the pods of NAME with addresses of ADDRESS, and take it out of spec.ipam.pools.allocated: `kubectl edit ciliumnode NAME`. Its agent puts back what pods use. Find out who wrote it: cilium-operator must not allocate (docs/modes.md).",
			ForeignPodCIDR:      "Leave it if you know who wrote it. Else see that cilium-operator does not allocate (docs/modes.md), delete the pods of NAME with addresses of ADDRESS, and take it out of spec.ipam.pools.allocated: `kubectl edit ciliumnode NAME`.",
			DrainStuck:          "The agent gives it back once its other CIDRs cover what it requests: see that its pod is Ready and that the node's pools have free blocks.",
		}
	case ciliumnode.DelegatedPlugin:
		return map[Reason]string{
			ClusterAddressInUse: "Delete the pod that has ADDRESS on NAME; it gets another address. Then run this check again.",
			AddressOutsidePool:  "Where ADDRESS lies in a block of NAME the operator lists that again: see that it runs. If ADDRESS lies in no block, delete the pod; it gets another address.",
			PodCIDROnTwoNodes:   "On the node that does not hold the block, delete the pods with addresses of ADDRESS, and take it out of spec.ipam.pools.allocated: `kubectl edit ciliumnode NAME`. Find out who wrote it.",
			PodCIDROfOtherNode:  "Delete the pods of NAME with addresses of ADDRESS, and take it out of spec.ipam.pools.allocated: `kubectl edit ciliumnode NAME`. Find out who wrote it.",
			ForeignPodCIDR:      "Leave it if you know who wrote it. Else delete the pods of NAME with addresses of ADDRESS, and take it out of spec.ipam.pools.allocated: `kubectl edit ciliumnode NAME`.",
			DrainStuck:          "The node agent gives it back: see that its pod on NAME is Ready, and read its log.",
			LeftFromCRDMode:     "Once no pod of NAME has an address of theirs: `kubectl patch ciliumnode NAME --type=merge -p '{\"spec\":{\"ipam\":{\"pool\":null,\"podCIDRs\":null}}}'`.",
		}
	case ciliumnode.Kubernetes:
		return map[Reason]string{
			ClusterAddressInUse: clusterAddressInBlock,
			AddressOutsidePool:  "Delete the pod; it gets an address of its Node's podCIDR.",
			PodAddressUnowned:   "Delete the pod NAME; it gets an address of its Node's podCIDR.",
			PodCIDROnTwoNodes:   "Drain and delete the one Node of the two that does not hold the block: it joins again with a block of its own. Find out who wrote it.",
			PodCIDROfOtherNode:  "Drain and delete the Node NAME: it joins again with a block of its own. Find out who wrote ADDRESS.",
			ForeignPodCIDR:      "Nothing, if it should stay. Else drain and delete the Node NAME: it joins again with a block, if kube-controller-manager gives it no podCIDR (--allocate-node-cidrs=false).",
			NodeWithoutAgent:    "If Cilium does not run on NAME, label it: `kubectl label node NAME cilium-pool.io/ignore=true`; its block is free once the Node is deleted. Else see why the DaemonSet of the agents has no pod there.",
			BlockNotPublished:   "Where the Node names another podCIDR, it keeps that: drain the block, `kubectl cilium-pool drain NAME`. Else see that the operator runs, leads and is not paused.",
		}
	}
	return nil
}
