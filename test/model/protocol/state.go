package protocol

import "slices"

// The capacity of a State, with the addresses of all blocks together.
const (
	MaxNodes     = 2
	MaxBlocks    = 3
	MaxAddresses = 4
	MaxLeaders   = 4
)

// State is the whole state at one moment. It holds no resourceVersions: a write that is bound
// to a version is kept only as long as that version is current.
type State struct {
	Blocks  [MaxBlocks]Block
	Nodes   [MaxNodes]Node
	Leaders [MaxLeaders]Leader
}

// Block is a PodIPBlock. Its name follows from its CIDR. The zero Block does not
// exist.
type Block struct {
	Owner uint8 // the number of its node, plus 1
	Phase Phase
	Asked bool // a person has deleted it: it must drain
	// Cooled means that the cooldown has passed since the condition CoolingDown was set.
	Cooled bool
	// Withdrawn means that a cooldown has passed without a published address. The rule refers to
	// this; the operator does not know it.
	Withdrawn bool
}

// Phase is the phase of a block.
type Phase uint8

// Phases.
const (
	InService Phase = iota
	Draining
	CoolingDown
)

// Node is a CiliumNode, its agent, and the pods of its machine.
type Node struct {
	// Addresses are the addresses of all blocks, also of other nodes' blocks.
	Addresses [MaxAddresses]Address
	Agent     Agent
	// Unreported means that the last report comes from an agent that had not restored its
	// pods, and so names no address in use.
	Unreported bool
	// Deaf means that the agent has forgotten its answers, and does not answer until its
	// CiliumNode changes again. Only with Thresholds; otherwise any answer may take any time.
	Deaf bool
	// Waiting means that a pod waits for an address. Only with Thresholds; otherwise a pod may
	// be created at any time.
	Waiting bool
}

// Address is the state of an address on one node.
type Address struct {
	Published bool  // in spec.ipam.pool
	Entry     Entry // in status.ipam.release-ips
	Pod       bool  // a pod of this node has it, whether or not an agent runs
}

// Entry is a state of the release handshake, as Cilium names it.
type Entry uint8

// Entries.
const (
	NoEntry Entry = iota
	Marked        // marked-for-release
	Ready         // ready-for-release
	Refused       // do-not-release
)

// Agent is the progress of a node's agent in its start.
type Agent uint8

// Phases of an agent.
const (
	Serving Agent = iota
	Down
	Opened // it answers the handshake, and has not restored its pods
)

// Leader is a process of the operator that considers itself the leader: its operation
// between two calls to the API server, and its memory. It may stay in this state for
// any time, and it may die.
type Leader struct {
	Op Op
	// Node and On are the objects of Op: On is the block, or for Remove the address.
	Node, On uint8
	// Stale means that the object it writes to has changed since. Only if a guard is off.
	Stale bool
	// Fenced has a bit for each block if this process has changed its CiliumNode since the
	// block began to cool down.
	Fenced uint8
}

// Op is a leader's operation: its next write.
type Op uint8

// Operations of leaders.
const (
	Nothing    Op = iota
	PublishNew    // the patch that publishes a block it has just created
	PublishOld    // the patch that publishes a block it has read live
	Remove        // the patch that removes an address; only if a guard is off
	Delete        // the deletion of a block, after a live read of the CiliumNode
)

// Key is a State in a few bytes.
type Key [2]uint64

// Bits of a Key: blocks and nodes in the first word, leaders in the second.
const (
	blockBits   = 7
	addressBits = 4
	nodeBits    = MaxAddresses*addressBits + 5
	nodesAt     = MaxBlocks * blockBits
	leaderBits  = 10
)

// renaming assigns other numbers to nodes, blocks and addresses.
type renaming struct {
	owner   [MaxNodes + 1]uint8
	node    [MaxNodes]uint8
	block   [MaxBlocks]uint8
	address [MaxAddresses]uint8
	// sort puts leaders in order.
	sort bool
}

// key packs a state, renamed.
func (s *State) key(r *renaming) Key {
	var k Key
	for i := range s.Blocks {
		b := &s.Blocks[i]
		code := uint64(r.owner[b.Owner]) | uint64(b.Phase)<<2 | bit(b.Asked)<<4 | bit(b.Cooled)<<5 | bit(b.Withdrawn)<<6
		k[0] |= code << (blockBits * r.block[i])
	}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		code := (uint64(n.Agent) | bit(n.Unreported)<<2 | bit(n.Deaf)<<3 | bit(n.Waiting)<<4) << (MaxAddresses * addressBits)
		for j := range n.Addresses {
			a := &n.Addresses[j]
			code |= (bit(a.Published) | uint64(a.Entry)<<1 | bit(a.Pod)<<3) << (addressBits * r.address[j])
		}
		k[0] |= code << (nodesAt + nodeBits*r.node[i])
	}
	var leaders [MaxLeaders]uint64
	for i := range s.Leaders {
		leaders[i] = s.Leaders[i].code(r)
	}
	if r.sort {
		slices.Sort(leaders[:])
		slices.Reverse(leaders[:]) // idle ones last, like unused ones
	}
	for i, code := range leaders {
		k[1] |= code << (leaderBits * i)
	}
	return k
}

func (l *Leader) code(r *renaming) uint64 {
	var fenced uint64
	for b := range r.block {
		fenced |= uint64(l.Fenced>>b&1) << r.block[b]
	}
	if l.Op == Nothing {
		return fenced
	}
	on := r.address[l.On]
	if l.Op != Remove {
		on = r.block[l.On]
	}
	return fenced | bit(l.Stale)<<3 | uint64(on)<<4 | uint64(r.node[l.Node])<<6 | uint64(l.Op)<<7
}

func bit(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// State unpacks a Key.
func (k Key) State() State {
	var s State
	for i := range s.Blocks {
		code := k[0] >> (blockBits * i)
		s.Blocks[i] = Block{
			Owner: uint8(code & 3), Phase: Phase(code >> 2 & 3),
			Asked: code>>4&1 == 1, Cooled: code>>5&1 == 1, Withdrawn: code>>6&1 == 1,
		}
	}
	for i := range s.Nodes {
		code, n := k[0]>>(nodesAt+nodeBits*i), &s.Nodes[i]
		for j := range n.Addresses {
			a := code >> (addressBits * j)
			n.Addresses[j] = Address{Published: a&1 == 1, Entry: Entry(a >> 1 & 3), Pod: a>>3&1 == 1}
		}
		rest := code >> (MaxAddresses * addressBits)
		n.Agent, n.Unreported, n.Deaf, n.Waiting = Agent(rest&3), rest>>2&1 == 1, rest>>3&1 == 1, rest>>4&1 == 1
	}
	for i := range s.Leaders {
		code := k[1] >> (leaderBits * i)
		s.Leaders[i] = Leader{
			Fenced: uint8(code & 7), Stale: code>>3&1 == 1, On: uint8(code >> 4 & 3), Node: uint8(code >> 6 & 1), Op: Op(code >> 7 & 7),
		}
	}
	return s
}
