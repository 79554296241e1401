package node

import (
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/common"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// memory is the reconciler's memory of nodes between reconciles. Losing it costs time, never an
// address.
type memory struct {
	mu    sync.Mutex
	nodes map[string]*nodeState
}

// nodeState is the memory of one node.
type nodeState struct {
	// conflicts counts consecutive write conflicts. failing is since when other writes have
	// failed in each reconcile; zero: the last one succeeded.
	conflicts int
	failing   time.Time
	// shares are in no order. A node has one, or a few in multi-pool mode.
	shares []shareState
	// requested is the CiliumNode of the agent that was last asked for a report.
	requested types.UID
	// first are its blocks while its agent has not started yet.
	first firstBlocks
	// wait is the last answer of endsWait.
	wait struct {
		question uint64
		ends     bool
	}
	// offered is the last offer written to its Node.
	offered offered
}

// shareState is the memory of one of Cilium's pools on a node.
type shareState struct {
	// ciliumPool is "" for the default one.
	ciliumPool string
	// memory is of one CiliumNode: a successor with the same name starts empty.
	of     types.UID
	memory [2]expand.Memory
}

// firstBlocks are the blocks that this process claimed for a CiliumNode before any
// agent had read it. An agent can learn their addresses from that CiliumNode only.
type firstBlocks struct {
	of     types.UID
	blocks map[types.UID]bool
}

// stateOf returns the state of a node, new where there is none. The caller holds m.mu.
func (m *memory) stateOf(node string) *nodeState {
	if m.nodes == nil {
		m.nodes = map[string]*nodeState{}
	}
	if m.nodes[node] == nil {
		m.nodes[node] = &nodeState{}
	}
	return m.nodes[node]
}

// share returns the state of one of Cilium's pools, or nil.
func (n *nodeState) share(ciliumPool string) *shareState {
	for i := range n.shares {
		if n.shares[i].ciliumPool == ciliumPool {
			return &n.shares[i]
		}
	}
	return nil
}

// shareOf is stateOf for one of Cilium's pools. The result is valid until the next call. The
// caller holds m.mu.
func (m *memory) shareOf(node, ciliumPool string) *shareState {
	n := m.stateOf(node)
	if s := n.share(ciliumPool); s != nil {
		return s
	}
	n.shares = append(n.shares, shareState{ciliumPool: ciliumPool})
	return &n.shares[len(n.shares)-1]
}

// recall returns the memory of a share for Decide.
func (m *memory) recall(o *observation, share *state.Share) expand.Memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.nodes[o.Name]
	if n == nil {
		return expand.Memory{}
	}
	if s := n.share(share.CiliumPool); s != nil && s.of == o.uid() {
		return s.memory[share.Family]
	}
	return expand.Memory{}
}

func (m *memory) remember(o *observation, share *state.Share, next expand.Memory) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.shareOf(o.Name, share.CiliumPool)
	if s.of != o.uid() {
		s.of, s.memory = o.uid(), [2]expand.Memory{}
	}
	s.memory[share.Family] = next
	if o.CiliumNode != nil && !o.CiliumNode.Untouched() {
		m.nodes[o.Name].first = firstBlocks{}
	}
}

// forgetShares drops the memory of Cilium pools that no longer concern a node: a block that comes
// later must not be taken for an earlier one. It returns the shares.
func (m *memory) forgetShares(o *observation) (gone []state.ShareKey) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.nodes[o.Name]
	if n == nil {
		return nil
	}
	n.shares = slices.DeleteFunc(n.shares, func(s shareState) bool {
		concerns := slices.ContainsFunc(o.Shares, func(share state.Share) bool { return share.CiliumPool == s.ciliumPool })
		if !concerns {
			for _, f := range ipalloc.Families() {
				gone = append(gone, state.ShareKey{Node: o.Name, CiliumPool: s.ciliumPool, Family: f})
			}
		}
		return !concerns
	})
	return gone
}

// noteParked records that a block of the node was parked.
func (m *memory) noteParked(o *observation, cidr netip.Prefix, parking expand.Parking) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range o.Shares {
		share := &o.Shares[i]
		s := m.shareOf(o.Name, share.CiliumPool)
		if s.of != o.uid() || !slices.ContainsFunc(share.State.Blocks, func(b expand.Block) bool { return b.CIDR == cidr }) {
			continue
		}
		parked := maps.Clone(s.memory[share.Family].Parked)
		if parked == nil {
			parked = map[netip.Prefix]expand.Parking{}
		}
		parked[cidr] = parking
		s.memory[share.Family].Parked = parked
	}
}

// forget drops the memory of a node that is gone.
func (m *memory) forget(node string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.nodes, node)
}

// firstRequest records that the agent of a CiliumNode is being asked for a report, and
// returns whether it is the first time.
func (m *memory) firstRequest(node string, uid types.UID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.stateOf(node)
	first := n.requested != uid
	n.requested = uid
	return first
}

// clearRequest clears that record.
func (m *memory) clearRequest(node string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := m.nodes[node]; n != nil {
		n.requested = ""
	}
}

// endsWait returns the answer that noteEndsWait recorded for the question, if that was the last
// one.
func (m *memory) endsWait(node string, question uint64) (ends, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.nodes[node]
	if n == nil || n.wait.question != question {
		return false, false
	}
	return n.wait.ends, true
}

// noteEndsWait records whether the pods that a question lists end the node's wait for its labels.
func (m *memory) noteEndsWait(node string, question uint64, ends bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := &m.stateOf(node).wait
	w.question, w.ends = question, ends
}

// nextBackoff is the wait after a lost race: twice as long with each consecutive one, up to 64
// times.
func (m *memory) nextBackoff(node string) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.stateOf(node)
	wait := common.ConflictRetry << min(n.conflicts, 6)
	n.conflicts++
	return wait
}

// failing records that writes of a node failed at now, and returns the time for which they have.
func (m *memory) failing(node string, now time.Time) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.stateOf(node)
	if n.failing.IsZero() {
		n.failing = now
	}
	return now.Sub(n.failing)
}

// succeeded ends a streak of lost races and of failures.
func (m *memory) succeeded(node string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := m.nodes[node]; n != nil {
		n.conflicts, n.failing = 0, time.Time{}
	}
}

// noteFirstBlock records a block claimed for a CiliumNode that no agent has read.
func (m *memory) noteFirstBlock(cn *ciliumnode.View, block types.UID) {
	if !cn.Untouched() {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.stateOf(cn.Name)
	if n.first.of != cn.UID {
		n.first = firstBlocks{of: cn.UID, blocks: map[types.UID]bool{}}
	}
	n.first.blocks[block] = true
}

// isFirst reports whether a block was claimed for this CiliumNode, which no agent has
// read yet.
func (m *memory) isFirst(cn *ciliumnode.View, block types.UID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.nodes[cn.Name]
	return n != nil && cn.Untouched() && n.first.of == cn.UID && n.first.blocks[block]
}
