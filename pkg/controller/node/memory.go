package node

import (
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/common"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// nodeMemories are the reconciler's memory of nodes between reconciles. Losing it costs time, never an
// address.
type nodeMemories struct {
	mu    sync.Mutex
	nodes map[string]*nodeMemory
}

// of returns the memory of a node, new where there is none.
func (m *nodeMemories) of(node string) *nodeMemory {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.nodes == nil {
		m.nodes = map[string]*nodeMemory{}
	}
	if m.nodes[node] == nil {
		m.nodes[node] = &nodeMemory{}
	}
	return m.nodes[node]
}

// forget drops the memory of a node that is gone.
func (m *nodeMemories) forget(node string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.nodes, node)
}

// nodeMemory is the memory of one node. The controller's queue has one reconcile of a node run at a
// time, so it needs no lock.
type nodeMemory struct {
	// conflicts counts consecutive write conflicts. failing is since when other writes have
	// failed in each reconcile; zero: the last one succeeded.
	conflicts int
	failing   time.Time
	// shares are in no order. A node has one, or a few in multi-pool mode.
	shares []poolMemory
	// hadShare are the families that concerned it.
	hadShare [2]bool
	// probed is the CiliumNode of the agent that was last asked for a report.
	probed types.UID
	// first are its blocks while its agent has not started yet.
	first firstBlocks
	// wait is the last answer of endsWait.
	wait struct {
		question uint64
		isOver   bool
	}
	// offered is the last offer written to its Node.
	offered offered
	// unwritable are its blocks with writes that fail, and its CiliumNode if writes of release entries do.
	unwritable map[types.UID]failedWrite
}

// failedWrite is the version of an object that a write failed in, since when, when it was last tried, and the first error.
type failedWrite struct {
	version      string
	since, tried time.Time
	err          error
}

// noteWrite records the result of a write of a block, of its publication, or of the release entries of a
// CiliumNode, with version "" as its agent changes it all the time.
func (n *nodeMemory) noteWrite(object types.UID, version string, err error, now time.Time) {
	if err == nil || lostRace(err) {
		delete(n.unwritable, object)
		return
	}
	failed, noted := n.unwritable[object]
	if !noted || failed.version != version {
		failed = failedWrite{version: version, since: now, err: err}
		if common.RefusalIn(err) != nil { // it stands until a person changes something
			failed.since = now.Add(-common.MaxBackoff)
		}
	}
	failed.tried = now
	if n.unwritable == nil {
		n.unwritable = map[types.UID]failedWrite{}
	}
	n.unwritable[object] = failed
}

// isUnwritable reports whether an object could not be written for long. Plans leave it out until it is time to try again.
func (n *nodeMemory) isUnwritable(object types.UID, version string, now time.Time) bool {
	failed, noted := n.unwritable[object]
	return noted && failed.version == version && now.Sub(failed.since) >= common.MaxBackoff && now.Before(failed.triedAgain())
}

// triedAgain is when a failed write is tried again.
func (w failedWrite) triedAgain() time.Time { return w.tried.Add(common.LongestWait) }

// failedWriteOf returns why a write of an object of a share has failed for long; nil: none has.
func (o *observation) failedWriteOf(share *state.Share) error {
	for i := range share.State.Blocks {
		if block := &share.State.Blocks[i]; block.Unwritable {
			b, _ := o.block(block.CIDR)
			return o.memory.unwritable[b.UID].err
		}
	}
	if share.State.EntriesUnwritable {
		return o.memory.unwritable[o.uid()].err
	}
	return nil
}

// setUnwritable marks what could not be written for long in a share.
func (o *observation) setUnwritable(share *state.Share, now time.Time) {
	share.State.EntriesUnwritable = o.memory.isUnwritable(o.uid(), "", now)
	for i := range share.State.Blocks {
		b, err := o.block(share.State.Blocks[i].CIDR)
		share.State.Blocks[i].Unwritable = err == nil && o.memory.isUnwritable(b.UID, b.ResourceVersion, now)
	}
}

// poolMemory is the memory of one of Cilium's pools on a node, of both families.
type poolMemory struct {
	// ciliumPool is "" for the default one.
	ciliumPool string
	// memory is of one CiliumNode: a successor with the same name starts empty.
	ciliumNode types.UID
	memory     [2]expand.Memory
	growth     [2]growth
}

// firstBlocks are the blocks that this process claimed for a CiliumNode before any
// agent had read it. An agent can learn their addresses from that CiliumNode only.
type firstBlocks struct {
	ciliumNode types.UID
	blocks     []types.UID
}

// forShare returns the memory of a share for Decide. The result is valid until the next call.
func (n *nodeMemory) forShare(o *observation, share *state.Share) *expand.Memory {
	return &n.poolOf(o, share).memory[share.Family]
}

// growthOf returns the memory of a share's need of blocks, for as long.
func (n *nodeMemory) growthOf(o *observation, share *state.Share) *growth {
	return &n.poolOf(o, share).growth[share.Family]
}

// poolOf returns the memory of the Cilium pool of a share, empty if it is of another CiliumNode.
func (n *nodeMemory) poolOf(o *observation, share *state.Share) *poolMemory {
	i := slices.IndexFunc(n.shares, func(s poolMemory) bool { return s.ciliumPool == share.CiliumPool })
	if i < 0 {
		i = len(n.shares)
		n.shares = append(n.shares, poolMemory{ciliumPool: share.CiliumPool, ciliumNode: o.uid()})
	}
	if n.shares[i].ciliumNode != o.uid() {
		n.shares[i] = poolMemory{ciliumPool: share.CiliumPool, ciliumNode: o.uid()}
	}
	return &n.shares[i]
}

// noteParked records that a block of the node was parked.
func (o *observation) noteParked(cidr netip.Prefix, parking expand.Parking) {
	for i := range o.Shares {
		share := &o.Shares[i]
		if !slices.ContainsFunc(share.State.Blocks, func(b expand.Block) bool { return b.CIDR == cidr }) {
			continue
		}
		memory := o.memory.forShare(o, share)
		if memory.Parked = maps.Clone(memory.Parked); memory.Parked == nil {
			memory.Parked = map[netip.Prefix]expand.Parking{}
		}
		memory.Parked[cidr] = parking
	}
}

// succeeded ends the failures of the node's writes.
func (n *nodeMemory) succeeded() {
	n.conflicts = 0
	n.failing = time.Time{}
}

// nextBackoff is the wait after a lost race: twice as long with each consecutive one.
func (n *nodeMemory) nextBackoff() time.Duration {
	wait := min(common.ConflictRetry<<min(n.conflicts, 10), common.LongestWait)
	n.conflicts++
	return wait
}

// noteFailure records err, and reports whether it stands until a person changes something, or writes of the node
// have failed for long by now: people and schedulers should know then. While the API server
// is merely busy, reports would add to its load.
func (n *nodeMemory) noteFailure(err error, now time.Time) bool {
	if lostRace(err) || common.RefusalIn(err) != nil {
		return common.RefusalIn(err) != nil
	}
	if n.failing.IsZero() {
		n.failing = now
	}
	return now.Sub(n.failing) >= common.MaxBackoff
}

// note records a block claimed for a CiliumNode that no agent has read.
func (f *firstBlocks) note(cn *ciliumnode.View, block types.UID) {
	if !cn.NeverReadByAgent() {
		return
	}
	if f.ciliumNode != cn.UID {
		*f = firstBlocks{ciliumNode: cn.UID}
	}
	f.blocks = append(f.blocks, block)
}

// has reports whether a block was claimed for this CiliumNode, which no agent has read yet.
func (f *firstBlocks) has(cn *ciliumnode.View, block types.UID) bool {
	return f.ciliumNode == cn.UID && slices.Contains(f.blocks, block) && cn.NeverReadByAgent()
}

// lastOffer returns the offer of a Node, by its latest known version: the cache may lag behind our
// own last write.
func (n *nodeMemory) lastOffer(node *corev1.Node) offered {
	seen := offeredBy(node)
	if n.offered.uid != node.UID {
		return seen
	}
	if order, err := resourceversion.CompareResourceVersion(n.offered.version, seen.version); err == nil && order > 0 {
		return n.offered
	}
	seen.written = n.offered.written
	return seen
}
