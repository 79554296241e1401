package controller

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// nodeState is what the node reconciler remembers of a node between reconciles. Losing
// it costs time, never an address.
type nodeState struct {
	// conflicts counts consecutive write conflicts.
	conflicts int
	// shares holds one entry for each of Cilium's pools; "" is the default one.
	shares map[string]*shareState
	// asked is the CiliumNode whose agent has been sent a report request.
	asked types.UID
	// first are its blocks while its agent has not started yet.
	first firstBlocks
	// differs is what was last logged in shadow mode.
	differs difference
}

// shareState is what is remembered of one of Cilium's pools on a node.
type shareState struct {
	// memory is of one CiliumNode: a successor with the same name starts empty.
	of     types.UID
	memory [2]expand.Memory
	// logged are the plans last logged; "": none.
	logged [2]string
}

// stateOf returns the state of a node, new where there is none. The caller holds r.mu.
func (r *NodeReconciler) stateOf(node string) *nodeState {
	if r.nodes == nil {
		r.nodes = map[string]*nodeState{}
	}
	if r.nodes[node] == nil {
		r.nodes[node] = &nodeState{shares: map[string]*shareState{}}
	}
	return r.nodes[node]
}

// shareOf is stateOf for one of Cilium's pools. The caller holds r.mu.
func (r *NodeReconciler) shareOf(node, ciliumPool string) *shareState {
	n := r.stateOf(node)
	if n.shares[ciliumPool] == nil {
		n.shares[ciliumPool] = &shareState{}
	}
	return n.shares[ciliumPool]
}

// recall returns what Decide asked to remember of a share.
func (r *NodeReconciler) recall(o *observation, share *state.Share) expand.Memory {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.nodes[o.Name]
	if n == nil {
		return expand.Memory{}
	}
	if s := n.shares[share.CiliumPool]; s != nil && s.of == o.uid() {
		return s.memory[share.Family]
	}
	return expand.Memory{}
}

func (r *NodeReconciler) remember(o *observation, share *state.Share, next expand.Memory) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.shareOf(o.Name, share.CiliumPool)
	if s.of != o.uid() {
		s.of, s.memory = o.uid(), [2]expand.Memory{}
	}
	s.memory[share.Family] = next
}

// forget drops what is remembered of a node that is gone.
func (r *NodeReconciler) forget(node string) {
	r.Pacing.forgetNode(node)
	r.Awaiting.Forget(node)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.nodes, node)
}

// firstAsk records that the agent of a CiliumNode is being asked for a report, and
// returns whether it is the first time.
func (r *NodeReconciler) firstAsk(node string, uid types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.stateOf(node)
	first := n.asked != uid
	n.asked = uid
	return first
}

// askAgain clears that record.
func (r *NodeReconciler) askAgain(node string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := r.nodes[node]; n != nil {
		n.asked = ""
	}
}

// nextBackoff is how long to wait after a lost race: longer with each consecutive one.
func (r *NodeReconciler) nextBackoff(node string) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.stateOf(node)
	wait := conflictRetry << min(n.conflicts, 6)
	n.conflicts++
	return wait
}

// resetBackoff ends a streak of lost races.
func (r *NodeReconciler) resetBackoff(node string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := r.nodes[node]; n != nil {
		n.conflicts = 0
	}
}

// Idle returns the nodes that have a block to spare.
func (r *NodeReconciler) Idle() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var names []string
	for name, n := range r.nodes {
		for _, s := range n.shares {
			if len(s.memory[ipalloc.IPv4].IdleSince)+len(s.memory[ipalloc.IPv6].IdleSince) > 0 {
				names = append(names, name)
				break
			}
		}
	}
	return names
}
