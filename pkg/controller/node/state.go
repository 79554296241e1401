package node

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/retry"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
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
}

// shareState is what is remembered of one of Cilium's pools on a node.
type shareState struct {
	// memory is of one CiliumNode: a successor with the same name starts empty.
	of     types.UID
	memory [2]expand.Memory
}

// stateOf returns the state of a node, new where there is none. The caller holds r.mu.
func (r *Reconciler) stateOf(node string) *nodeState {
	if r.nodes == nil {
		r.nodes = map[string]*nodeState{}
	}
	if r.nodes[node] == nil {
		r.nodes[node] = &nodeState{shares: map[string]*shareState{}}
	}
	return r.nodes[node]
}

// shareOf is stateOf for one of Cilium's pools. The caller holds r.mu.
func (r *Reconciler) shareOf(node, ciliumPool string) *shareState {
	n := r.stateOf(node)
	if n.shares[ciliumPool] == nil {
		n.shares[ciliumPool] = &shareState{}
	}
	return n.shares[ciliumPool]
}

// recall returns what Decide asked to remember of a share.
func (r *Reconciler) recall(o *observation, share *state.Share) expand.Memory {
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

func (r *Reconciler) remember(o *observation, share *state.Share, next expand.Memory) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.shareOf(o.Name, share.CiliumPool)
	if s.of != o.uid() {
		s.of, s.memory = o.uid(), [2]expand.Memory{}
	}
	s.memory[share.Family] = next
}

// forget drops what is remembered of a node that is gone.
func (r *Reconciler) forget(node string) {
	r.Pacing.ForgetNode(node)
	r.Awaiting.Forget(node)
	r.Events.Last.Forget(node)
	r.Pressure.SetIdle(node, false)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.nodes, node)
}

// firstAsk records that the agent of a CiliumNode is being asked for a report, and
// returns whether it is the first time.
func (r *Reconciler) firstAsk(node string, uid types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.stateOf(node)
	first := n.asked != uid
	n.asked = uid
	return first
}

// askAgain clears that record.
func (r *Reconciler) askAgain(node string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := r.nodes[node]; n != nil {
		n.asked = ""
	}
}

// nextBackoff is how long to wait after a lost race: twice as long with each consecutive
// one, up to 64 times.
func (r *Reconciler) nextBackoff(node string) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.stateOf(node)
	wait := retry.Conflict << min(n.conflicts, 6)
	n.conflicts++
	return wait
}

// resetBackoff ends a streak of lost races.
func (r *Reconciler) resetBackoff(node string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := r.nodes[node]; n != nil {
		n.conflicts = 0
	}
}
