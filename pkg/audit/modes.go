package audit

import "github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"

// Modes returns the modes that the finding can occur in.
func (e *Entry) Modes() []ciliumnode.Mode {
	if modes, ok := onlyIn()[e.Reason]; ok {
		return modes
	}
	return ciliumnode.Modes()
}

// FixIn returns the remedy in a mode.
func (e *Entry) FixIn(mode ciliumnode.Mode) string {
	if fix, ok := fixesIn(mode)[e.Reason]; ok {
		return fix
	}
	return e.Fix
}

// onlyIn returns the reasons that do not occur in every mode.
func onlyIn() map[Reason][]ciliumnode.Mode {
	crd, inCiliumNode := []ciliumnode.Mode{ciliumnode.CRD}, []ciliumnode.Mode{ciliumnode.CRD, ciliumnode.MultiPool}
	multi, kubernetes := []ciliumnode.Mode{ciliumnode.MultiPool}, []ciliumnode.Mode{ciliumnode.Kubernetes}
	return map[Reason][]ciliumnode.Mode{
		// They need a pool of addresses and a handshake.
		KVStoreWithoutRoutes: crd, AddressOnTwoNodes: crd, AddressTwiceInPool: crd, MarkedInUse: crd, PoolEntryOfOtherNode: crd, PoolEntryWithoutBlock: crd,
		BlockNotListed: crd, ForeignPoolEntry: crd, PoolEntryMalformed: crd, PoolEntryUnreadable: crd, StuckHandshake: crd, NodeYetToMove: crd,
		// They need a CiliumNode that both the operator and the agent write to.
		AddressUsedTwice: inCiliumNode, FieldUnreadable: inCiliumNode, CiliumNodeMissing: inCiliumNode, CiliumNodeWithoutNode: inCiliumNode, DrainStuck: inCiliumNode, StaleRelease: inCiliumNode,
		ListedTwice: multi, LeftFromCRDMode: multi, PodServedByNoPool: multi,
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
