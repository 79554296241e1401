package audit

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/exclude"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/suggest"
)

// nodeCheck checks one node.
type nodeCheck struct {
	index *index
	*findings
	*node
}

func (n *nodeCheck) check(owners map[netip.Addr]Object) {
	if n.obj != nil {
		n.conditions()
		n.service()
		n.podCIDRs()
	} else if n.view != nil && len(n.view.Published())+len(n.view.ListedInAnyPool()) > 0 { // checkBlocks reports blocks alone
		n.add(CiliumNodeWithoutNode, n.about(), "has %d addresses in its pool and %d CIDRs in %s, and there is no such Node",
			len(n.view.Published()), len(n.view.ListedInAnyPool()), n.index.listField)
	}
	n.routes()
	n.checkPods(owners)
	n.clusterAddresses()
	if n.view == nil || n.view.BlockAssignment != nil && n.view.BlockAssignment.SingleBlock && n.notOurs() {
		return
	}
	if n.view.Addresses != nil {
		n.entries()
	} else {
		n.whole()
	}
	n.cidrs()
	n.used()
	n.handshakes()
	n.assignedBlocks()
}

// about begins a finding about the object that assigns the node's blocks.
func (n *nodeCheck) about() Finding { return Finding{Object: n.index.assigner(n.name)} }

// at begins a finding about an address or CIDR of that object.
func (n *nodeCheck) at(subject netip.Prefix, note string) Finding {
	return Finding{Object: n.index.assigner(n.name), Subject: subject, Note: note}
}

// conditions reports a lack of addresses, of an agent, and of pools for the requests of its agent
// and pods.
func (n *nodeCheck) conditions() {
	node := Finding{Object: nodeObject(n.name)}
	ofPools := len(n.waitsFor) > 0
	for _, pool := range n.waitsFor {
		ofPools = ofPools && n.index.waiting[pool].reported
	}
	for _, cond := range n.obj.Status.Conditions {
		if cond.Type == v1alpha1.NodeAddressShortage && cond.Status == corev1.ConditionTrue && !ofPools {
			n.add(NodeShortOfAddresses, node, "%s: %s", cond.Reason, cond.Message)
		}
	}
	if n.neverHadAgent() {
		n.add(NodeWithoutAgent, node, "holds %d blocks, and has never had an agent", len(n.blocks))
	}
	if len(n.unserved) > 0 {
		n.add(NodeServedByNoPool, node, "%s", suggest.Sentences(n.unserved))
	}
	for name, unserved := range n.unservedPods {
		namespace, pod, _ := strings.Cut(name, "/")
		n.add(PodServedByNoPool, Finding{Object: Object{Kind: "Pod", Namespace: namespace, Name: pod}, Others: []Object{nodeObject(n.name)}}, "%s", unserved.Message)
	}
}

// service reports a Node that waits for its move or for labels, and checks the assignments of any other.
func (n *nodeCheck) service() {
	node := Finding{Object: nodeObject(n.name)}
	switch {
	case n.moving:
		n.add(NodeYetToMove, node, "was given %d CIDRs, holds %d blocks, and its agent reports nothing", len(n.view.CIDRsOfAnyIPAM()), len(n.blocks))
	case n.awaits != "":
		if i := slices.IndexFunc(n.pods, func(p pod) bool { return len(p.ips) == 0 }); i >= 0 {
			waits := n.pods[i].object
			n.add(NodeAwaitsLabels, node, "%s; meanwhile pod %s/%s waits for an address", n.awaits, waits.Namespace, waits.Name)
		}
	case !n.optedOut && !n.paused:
		n.assignments(node)
	}
}

// assignments checks that a Node which the operator serves has the CiliumNode and the addresses it should have.
func (n *nodeCheck) assignments(node Finding) {
	if n.view == nil {
		if len(n.pools)+len(n.blocks) > 0 {
			n.add(CiliumNodeMissing, node, "has no CiliumNode, though %d pools serve it and it holds %d blocks", len(n.pools), len(n.blocks))
		}
		return
	}
	if slices.ContainsFunc(n.pools, isDefault) {
		n.families()
		return
	}
	if !n.hasCilium() {
		return
	}
	if !n.view.hasAnyAddress() {
		n.add(NodeServedByNoPool, node, "has a %s without addresses, and no PodIPPool serves its agent", n.index.kind)
	} else if len(n.blocks) > 0 {
		n.add(NodeServedByNoPool, node, "holds %s, and no PodIPPool selects it: it gets no more", suggest.Count(len(n.blocks), "block"))
	}
}

// podCIDRs reports the podCIDRs of a Node in pools, unless the Node holds blocks there alone, as after a
// move from Cilium's kubernetes mode.
func (n *nodeCheck) podCIDRs() {
	mode := n.index.snapshot.Mode
	if mode.String() != string(ciliumnode.CRD) && !mode.ManyPools() {
		return
	}
	for _, text := range n.obj.Spec.PodCIDRs {
		cidr, err := netip.ParsePrefix(text)
		if err != nil {
			continue
		}
		for _, name := range n.index.cluster.Pools.Touching([]netip.Prefix{cidr}) {
			block := n.index.heldElsewhere(n.node, cidr)
			hasBlock := slices.ContainsFunc(n.blocks, func(b *crd.Block) bool { return b.CIDR.Overlaps(cidr) })
			if hasBlock && block == nil {
				continue
			}
			f := Finding{Object: nodeObject(n.name), Others: []Object{poolObject(name)}, Subject: cidr, Note: "spec.podCIDRs"}
			n.add(NodePodCIDRInPool, f, "in PodIPPool %s", name)
		}
	}
}

// neverHadAgent reports whether the node has held blocks for long without an agent.
func (n *nodeCheck) neverHadAgent() bool {
	// In kubernetes mode a Node keeps its block as long as it exists.
	if n.optedOut && n.view != nil && n.view.BlockAssignment != nil && n.view.BlockAssignment.SingleBlock {
		return false
	}
	return !n.agentSeen && !n.moving && n.index.anyAgent && slices.ContainsFunc(n.blocks, func(b *crd.Block) bool {
		return b.Phase == ipalloc.InService && n.index.isOld(b.Created)
	})
}

// hasCilium reports whether Cilium runs on a node that has the object which assigns blocks: in
// kubernetes mode every Node has it.
func (n *node) hasCilium() bool {
	w := n.view.BlockAssignment
	return w == nil || !w.SingleBlock || w.HasAgent || len(n.agents) > 0
}

// notOurs reports whether another IPAM serves a node's pods.
func (n *node) notOurs() bool {
	return n.optedOut || (n.view == nil || !n.hasCilium()) && len(n.blocks)+len(n.pools) == 0
}

// hasAnyAddress reports whether the agent has an address that pods can get.
func (cn *ciliumNode) hasAnyAddress() bool {
	return len(cn.published()) > 0 || cn.BlockAssignment != nil && len(cn.ListedInAnyPool())+len(cn.BlockAssignment.ActiveCIDRs) > 0
}

// isDefault reports whether a pool serves pods that request no other, and agents
// themselves.
func isDefault(p *crd.Pool) bool { return p.CiliumPool == "" }

// families checks that a node has addresses of each family that its pools provide.
func (n *nodeCheck) families() {
	for _, p := range n.pools {
		if !isDefault(p) {
			continue // agents keep no reserve there
		}
		var missing []string
		for _, f := range ipalloc.Families() {
			if _, serves := p.Ranges(f); serves && n.view.ofFamily(f) == 0 && !n.pausedFor(f, "") && n.view.wants(f) && !n.view.runsWith(f) {
				missing = append(missing, f.String())
			}
		}
		if len(missing) > 0 {
			n.add(NodeWithoutAddresses, Finding{Object: nodeObject(n.name), Others: []Object{poolObject(p.Name)}},
				"has no %s address in its pool, though PodIPPool %s serves it", strings.Join(missing, " and no "), p.Name)
		}
	}
}

// checkPods checks the addresses of a node's pods. owners are the pods with addresses that were
// checked before.
func (n *nodeCheck) checkPods(owners map[netip.Addr]Object) {
	for _, p := range n.pods {
		for _, a := range p.ips {
			if first, shared := owners[a]; !shared {
				owners[a] = p.object
			} else if first != p.object {
				n.add(PodsShareAddress, Finding{Object: p.object, Others: []Object{first}, Subject: ipalloc.Single(a)},
					"has the address of pod %s/%s", first.Namespace, first.Name)
			}
			if n.view == nil || !n.view.mayUse(a) {
				n.podAddress(p, a)
			}
		}
	}
}

// podAddress checks who owns an address that is not in the pool of the pod's node.
func (n *nodeCheck) podAddress(p pod, a netip.Addr) {
	f := Finding{Object: p.object, Subject: ipalloc.Single(a)}
	reason := PodAddressOfOtherNode
	var message string
	b := n.index.holder(n.node, a)
	publisher := n.index.publisher(n.node, a)
	switch {
	case publisher != nil:
		f.Others = []Object{n.index.assigner(publisher.name)}
		message = "an address in the pool of " + publisher.name
		if publisher.view.BlockAssignment != nil {
			message = "an address of a CIDR that " + publisher.name + " lists"
		}
		message += n.index.staleFirst(publisher.name)
	case b != nil && b.Node == n.name:
		return // reported for the CiliumNode
	case b != nil:
		f.Others = []Object{blockObject(b.Name)}
		message = "an address of block " + b.CIDR.String() + " of node " + b.Node
		if n.index.byName[b.Node].obj == nil {
			message += "; there is no such Node: once the operator has given the block back, pin it to " + n.name
		}
	case n.moving, n.notOurs(), n.index.servedElsewhere(n.node, a):
		return // its pods have their addresses from elsewhere
	default:
		reason = PodAddressUnowned
		message = "an address of no block and no pool entry"
		if n.view != nil && n.view.BlockAssignment != nil {
			message = "an address of no block and of no CIDR in " + n.index.listField
		}
	}
	n.reported[ipalloc.Single(a)] = true
	n.add(reason, f, "runs on %s with %s", n.name, message)
}

// staleFirst returns the remedy to try first where nodes have one address, and one of them is a CiliumNode without a
// Node; "": none is.
func (x *index) staleFirst(names ...string) string {
	i := slices.IndexFunc(names, func(name string) bool { return x.byName[name].obj == nil })
	if i < 0 {
		return ""
	}
	return "; there is no Node " + names[i] + ": unless its machine runs on, first delete its CiliumNode"
}

// clusterAddresses reports the addresses in use on a node that belong to a node or Service, except
// that the agent itself uses its own.
func (n *nodeCheck) clusterAddresses() {
	exclusions := n.index.cluster.Ledger.Exclusions
	for addr, user := range n.inUse {
		for _, r := range slices.Concat(exclusions.Excluded(ipalloc.Single(addr)), exclusions.Beyond(ipalloc.Single(addr))) {
			if r.By.Kind == exclude.LoadBalancerPool || n.view != nil && slices.Contains(n.view.Own, addr) && r.By == (exclude.Claimant{Kind: exclude.CiliumNode, Name: n.name}) {
				continue
			}
			if r.By.Kind == exclude.CiliumNode && n.index.byName[r.By.Name].obj == nil {
				n.add(CiliumNodeWithoutNode, Finding{Object: n.index.assigner(r.By.Name), Others: []Object{nodeObject(n.name)}, Subject: ipalloc.Single(addr)},
					"names an address that is in use on %s, and there is no such Node", n.name)
				continue
			}
			n.add(ClusterAddressInUse, n.at(ipalloc.Single(addr), "by "+user), "belongs to %s", r.By)
		}
	}
}
