package expand

import (
	"net/netip"
	"slices"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// Plan lists the changes for one node and family, in the order of its fields. Every slice is
// sorted. The zero Plan changes no object.
type Plan struct {
	// Node and Family identify the plan's State.
	Node   string
	Family ipalloc.Family

	// Undrain puts blocks back into service: the condition goes first, the
	// handshake entries and missing addresses follow in later plans.
	Undrain []netip.Prefix
	// Drain sets the condition Draining.
	Drain []Drain
	// RecordClosed records on blocks that their agent has closed them.
	RecordClosed []ClosedRecord
	// Clear deletes release-ips entries.
	Clear []netip.Addr
	// Mark sets release-ips entries to marked-for-release.
	Mark []netip.Addr
	// Retire sets the release-ips entries of the agent's own addresses to released, so
	// that it takes others when it restarts. They stay in the pool until then.
	Retire []netip.Addr
	// Probe asks the agent to report, by marking ProbeAddress for release.
	Probe bool
	// Claim requests new blocks. Zero: none.
	Claim Claim
	// Publish adds addresses of blocks in service to the pool.
	Publish []netip.Addr
	// Assign adds blocks in service to the list of an agent that is assigned whole blocks.
	Assign []netip.Prefix
	// Close closes listed blocks of a node agent, so that it returns them once they are empty.
	Close []netip.Prefix
	// Park takes a whole block from the agent's list for a moment, so that the agent
	// closes it. The zero Prefix: none. Unpark lists parked or closed blocks again.
	Park   netip.Prefix
	Unpark []netip.Prefix
	// Remove removes addresses from the pool: acked and held ones; and of a family that the
	// agent does not run, marked ones, once it has reported since.
	Remove []netip.Addr
	// Forget adds an entry of the Cilium pool without CIDRs, so that the agent forgets the blocks that it returned.
	Forget bool
	// CoolDown lets blocks without a published address cool down.
	CoolDown []CoolDown
	// Delete deletes blocks after their cooldown.
	Delete []netip.Prefix

	// Demand is the number of addresses the node needs now, Capacity the number it can use once
	// this plan's Undrain, Publish and Assign are done, without Claim.
	Demand, Capacity int
	// ServedElsewhere is the part of a Demand above Capacity that leaving blocks or addresses
	// outside all blocks serve.
	ServedElsewhere int
	// Shortage is the part of Demand that MaxBlocks, MaxAddresses and max-allocate keep the node
	// from having; 0 while demand can be met.
	Shortage int
	// Obstacles are those of each draining block, and of each block that must drain.
	Obstacles []Obstacle
	// RequeueAt is when to reconcile again without a change. Zero: no need.
	RequeueAt time.Time
}

// Without returns a plan that does not release the addresses of blocks, as the conditions of these were
// not written.
func (p Plan) Without(blocks []netip.Prefix) Plan {
	outside := func(addrs []netip.Addr) []netip.Addr {
		return slices.DeleteFunc(slices.Clone(addrs), func(a netip.Addr) bool {
			return slices.ContainsFunc(blocks, func(block netip.Prefix) bool { return block.Contains(a) })
		})
	}
	p.Close = slices.DeleteFunc(slices.Clone(p.Close), func(closed netip.Prefix) bool { return slices.ContainsFunc(blocks, closed.Overlaps) })
	p.Mark = outside(p.Mark)
	p.Retire = outside(p.Retire)
	p.Remove = outside(p.Remove)
	return p
}

// WithoutMarks returns a plan that marks no address, and neither closes, parks nor deletes a block.
func (p Plan) WithoutMarks() Plan {
	p.Mark = nil
	p.Retire = nil
	p.Close = nil
	p.Park = netip.Prefix{}
	p.Delete = nil
	return p
}

// Drain is a block that starts to drain.
type Drain struct {
	CIDR   netip.Prefix
	Reason Reason
}

// ClosedRecord is a block that its agent has closed; without an Agent, one that it has not, against the record.
type ClosedRecord struct {
	CIDR netip.Prefix
	Closed
}

// CoolDown is a block that starts to cool down.
type CoolDown struct {
	CIDR   netip.Prefix
	Reason Reason
}

// Claim requests blocks until they bring Addresses usable ones, but no more than Blocks blocks, and
// no more than Room addresses of them are published. The first are those pinned to the node: at least
// Pins of them, whatever it needs.
type Claim struct {
	Addresses, Blocks, Room, Pins int
}

// Next reports whether to claim another block after so many blocks with so many addresses, and
// whether it must be one that is pinned to the node.
func (c Claim) Next(blocks, addresses int) (another, pinned bool) {
	needed := blocks < c.Blocks && addresses < c.Addresses
	return needed || blocks < c.Pins, !needed
}

// Obstacle is what keeps a block on its node that leaves, or must. The zero Obstacle is none. One that delays
// all blocks of a pool or a node has only a Reason and Until.
type Obstacle struct {
	CIDR   netip.Prefix
	Reason WaitReason
	// Request is why a block in service must leave; zero where it only overlaps an older one.
	Request Reason
	// By names the pods (or the agent's own use, as "router") that still use
	// the block, sorted, where Reason is WaitPods, WaitNewPods, WaitAgent or WaitRestart.
	By []string
	// Until is when to decide again about a wait for WaitWindow, WaitTurn, WaitNodes, WaitMode or WaitUnsettled.
	// Zero: only after a change.
	Until time.Time
	// Note describes it for people. Decide leaves it empty; a block's status has it.
	Note string
}

// WaitReason names an obstacle.
type WaitReason string

// IsDelay reports whether the drain has not begun, though it must. WaitUnsettled is not among them: a drain that
// has begun waits for it, too.
func (r WaitReason) IsDelay() bool {
	return r == WaitWindow || r == WaitNoWindow || r == WaitTurn || r == WaitNodes || r == WaitMode
}

// Obstacles to a drain.
const (
	// WaitPods: pods still use it.
	WaitPods WaitReason = "Pods"
	// WaitNewPods: pods still use it, and its agent assigns its addresses to new ones, parked or not.
	WaitNewPods WaitReason = "NewPods"
	// WaitAgent: the agent's own addresses (router, health, ingress) are in it.
	WaitAgent WaitReason = "AgentAddress"
	// WaitRestart: the agent's own addresses are in it, and the agent takes others when
	// it restarts.
	WaitRestart WaitReason = "AgentRestart"
	// WaitReplacement: the node has no addresses to replace it with.
	WaitReplacement WaitReason = "Replacement"
	// WaitHandshake: the agent's answer, or the hold after it.
	WaitHandshake WaitReason = "Handshake"
	// WaitReturn: the agent, which is assigned whole blocks, still lists it.
	WaitReturn WaitReason = "Return"
	// WaitPodAddress: the addresses of recent pods are not reported yet.
	WaitPodAddress WaitReason = "PodAddress"
	// WaitWindow: it has not begun, as no maintenance window is open.
	WaitWindow WaitReason = "Window"
	// WaitNoWindow: it has not begun, as no maintenance window will ever open.
	WaitNoWindow WaitReason = "NoWindow"
	// WaitTurn: it has not begun, as the hourly limit is reached.
	WaitTurn WaitReason = "Turn"
	// WaitNodes: it has not begun, as enough other nodes move off its pool.
	WaitNodes WaitReason = "Nodes"
	// WaitMode: it has not begun, as the agent starts next in another IPAM mode.
	WaitMode WaitReason = "CiliumMode"
	// WaitUnsettled: the agent is not settled (yet).
	WaitUnsettled WaitReason = "AgentNotSettled"
)
