package world

import (
	"net/netip"
	"slices"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// noteExcuses records addresses that users removed from a pool, or that went with the Node: pods
// may lose them.
func (r *writeRules) noteExcuses(v Version) {
	old, _ := v.Old.(*ciliumv2.CiliumNode)
	now, _ := v.New.(*ciliumv2.CiliumNode)
	if now == nil {
		now = &ciliumv2.CiliumNode{}
	}
	if old == nil {
		old = &ciliumv2.CiliumNode{}
	}
	if (r.whole() || r.fixed()) && v.New != nil {
		return // agents take off unused addresses
	}
	for addr := range addresses(r.poolOf(old)) {
		if _, still := r.poolOf(now)[addr.String()]; !still && (r.writer == nil || v.New == nil) {
			r.excused[addr] = excuse{node: v.Key}
			r.forfeit(v.Key, addr)
		}
	}
	for addr := range addresses(r.poolOf(now)) {
		if r.excused[addr] == (excuse{node: v.Key}) {
			r.excused[addr] = excuse{v.Key, len(r.api.history[KindCiliumNode])}
		}
	}
}

// forfeit gives up on an address after users have deleted both the block and the CiliumNode: no
// object mentions it any more.
func (r *writeRules) forfeit(node string, addr netip.Addr) {
	if r.inBlockOf(node, addr) {
		return
	}
	for _, e := range r.machine(node).endpoints {
		e.forfeited = e.forfeited || contains(e.addrs(), addr)
	}
}

// hasPods reports whether any pod but the agent's is bound to a node.
func (r *writeRules) hasPods(node string) bool {
	return slices.ContainsFunc(list[corev1.Pod](r.api, KindPod), func(pod *corev1.Pod) bool { return pod.Spec.NodeName == node && !isAgent(pod) })
}

// checkMarks checks that no address is marked that the operator knew to be in use, while it knew
// the agent to have just started, or while it awaited a pod. Anything that no agent has read
// may be marked.
func (r *writeRules) checkMarks(node string, old, now *ciliumv2.CiliumNode) {
	o := r.writer
	for addr, state := range addresses(now.Status.IPAM.ReleaseIPs) {
		key := addr.String()
		if _, published := old.Spec.IPAM.Pool[key]; !published ||
			state != "marked-for-release" || old.Status.IPAM.ReleaseIPs[key] == state {
			continue
		}
		r.Counts.Marks++
		if _, used := old.Status.IPAM.Used[key]; used {
			r.violate(2, "%s of node %s was marked for release though its agent reports it", key, node)
		}
		// A reconcile observes again after a repair, so only its present knowledge counts.
		if o.current != nil && o.current.pods[addr] && o.knowsPodWith(node, addr) {
			r.violate(2, "%s of node %s was marked for release though a pod's status names it", key, node)
		}
		if o.current != nil && !isUnread(old) {
			r.checkGuards(o.current, old, addr)
		}
	}
}

// checkGuards checks that an address is marked in the window of the agents' protocol only if the
// operator could not know of the window.
func (r *writeRules) checkGuards(f *flight, old *ciliumv2.CiliumNode, addr netip.Addr) {
	node := old.Name
	if m := r.machine(node); reported(old, ipalloc.FamilyOf(addr)) == 0 && m.runs(ipalloc.FamilyOf(addr)) && !m.switched {
		r.violate(2, "%s of node %s was marked for release though its agent reports nothing", addr, node)
	}
	if !f.settled {
		r.violate(2, "%s of node %s was marked for release though its agent had just started", addr, node)
	}
	if pods := f.stillAwaited(r.writer, ipalloc.FamilyOf(addr)); len(pods) > 0 {
		r.violate(2, "%s of node %s was marked for release though nothing says yet which address %v has", addr, node, pods)
	}
}

// blockGone checks that no pod loses its block. The block of a Node that is gone may be deleted
// along with its pods' addresses, even if the machine runs on.
func (r *writeRules) blockGone(v Version) {
	b := v.Old.(*v1alpha1.PodIPBlock)
	cidr, m := cidrOf(b), r.machine(b.Spec.NodeName)
	if m == nil {
		return
	}
	alive := r.api.Get(KindNode, m.name) != nil
	for _, c := range b.Status.Conditions {
		// The Node may be back just when the time is over.
		alive = alive && c.Reason != v1alpha1.ReasonNodeGone
	}
	if !alive && m.isLeftWith(cidr) {
		m.lostNode()
	}
	for slot, e := range m.endpoints {
		for _, addr := range e.addrs() {
			switch {
			case !cidr.Contains(addr) || e.forfeited || r.inBlockOf(m.name, addr):
			case !alive:
				e.forfeited = true
			case r.writer != nil:
				r.violate(1, "block %s was given up though pod %s on node %s has %s", v.Key, slot, m.name, addr)
			}
		}
	}
}

// isLeftWith reports whether the agent of a machine runs with a whole block that is released
// because its Node was gone. Only in kubernetes mode may another Node, which already has an
// agent, have the block too.
func (m *machine) isLeftWith(cidr netip.Prefix) bool {
	if (m.whole != nil || m.nodeAgent != nil) && m.w.whole() {
		_, behind := m.nextSeen() // it may see the block listed yet
		return behind || slices.ContainsFunc(m.gives(), cidr.Overlaps)
	}
	node := m.w.api.Get(KindNode, m.name)
	return m.w.fixed() && m.old != nil && slices.Contains(m.old.CIDRs, cidr) && (node == nil || node.GetUID() != m.node)
}

// allocated is called for each address that an agent assigns to a pod.
func (r *writeRules) allocated(m *machine, e *endpoint) {
	for _, addr := range e.addrs() {
		// The agent has not seen yet that its Node, and with it its block, was gone.
		e.forfeited = e.forfeited || r.excused[addr].holds(m) && !r.inBlockOf(m.name, addr)
	}
	if e.forfeited {
		return
	}
	r.stays.allocated(e)
	for _, other := range r.machines {
		for slot, o := range other.endpoints {
			for _, addr := range e.addrs() {
				if o != e && !o.forfeited && contains(o.addrs(), addr) {
					r.violate(1, "%s was given to %s on node %s while pod %s on node %s has it", addr, e.owner(), m.name, slot, other.name)
				}
			}
		}
	}
}

// lost is called for each pod that an agent did not restore.
func (r *writeRules) lost(m *machine, e *endpoint, addr netip.Addr, err error) {
	r.workload.dropped[string(e.pod.GetUID())] = err
	switch {
	case e.forfeited, r.excused[addr].holds(m):
		r.Counts.LostByHand++
	case m.lostParked(addr):
	case m.isOfAnotherPool(e, addr):
		r.Counts.LostByHand++
	case releasing(err) && r.left[addr] == m.name:
		r.violate(2, "%s of node %s could not restore %s, as an operator that knew of the restart had left its mark", e.owner(), m.name, addr)
	case releasing(err):
		r.Counts.Lost++
		r.tracef("LOST %s of %s on node %s: %v", addr, e.owner(), m.name, err)
	default:
		r.violate(2, "%s of node %s could not restore %s: %v", e.owner(), m.name, addr, err)
	}
}

// excuse is for an address that a user removed from a node's pool. It lasts until the address is
// back and the node's agent has seen it.
type excuse struct {
	node string
	back int // the number of CiliumNode versions with which it was back; 0: it is not
}

func (e excuse) holds(m *machine) bool { return e.node == m.name && (e.back == 0 || m.read < e.back) }
