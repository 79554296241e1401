package protocol

import (
	"fmt"

	"github.com/cilium-pool/cilium-pool-operator/test/model/explore"
)

// Config configures an instance of the model. Addresses is the number in each block.
type Config struct {
	Nodes, Blocks, Addresses, Leaders int
	Cilium                            Cilium
	// Whole is multi-pool mode: an agent is assigned whole blocks, and returns one that no pod
	// uses. There is no handshake for each address: a block has one, and Cilium is not used.
	Whole bool
	// Thresholds restricts leaders: they claim, drain, take back and mark only if the policy
	// says so, they time out an answer only if none will come, and pods are created one at a
	// time. Progress depends on these; the rules hold without them.
	Thresholds bool
	// OldCaches lets a leader's cache be older than the time that the whole release of an
	// address takes, from its mark on. By default a cache never lags that much.
	OldCaches bool
	// FenceMarks makes a fence leave its mark, and entries outlive their block, which then has
	// one address. By default a fence is only a version. Not with Thresholds.
	FenceMarks bool
	// CarefulMarks means that no address is marked that a pod has at that moment, as if caches
	// never lagged.
	CarefulMarks bool
	// Without are guards of the operator that are switched off.
	Without []Guard
	// Rules are the rules to check. Nil: the rules that are always promised.
	Rules []Rule
}

// Cilium describes acts of agents that Cilium could improve. The zero Cilium has the change
// that docs/reliability.md proposes; AsShipped is v1.20.1.
type Cilium struct {
	// AnswersEarly means that an agent answers marks before it has restored its pods.
	AnswersEarly bool
	// RefusesMarked means that an agent restores no pod at an address that is marked.
	RefusesMarked bool
}

// AsShipped returns the acts of agents of Cilium v1.20.1.
func AsShipped() Cilium { return Cilium{AnswersEarly: true, RefusesMarked: true} }

// Model is an instance, ready to be explored.
type Model struct {
	Config
	off       [guards]bool
	checked   []check
	steps     []Step
	actions   []taken
	of        [MaxBlocks][]int // addresses of blocks
	plain     renaming
	renamings []renaming
}

// taken is a step for particular parts.
type taken struct {
	*Step
	Action
}

// validate refuses an instance that does not fit into State.
func (c *Config) validate() error {
	switch {
	case c.Nodes < 1 || c.Nodes > MaxNodes:
		return fmt.Errorf("nodes must be 1 to %d, not %d", MaxNodes, c.Nodes)
	case c.Blocks < 1 || c.Blocks > MaxBlocks:
		return fmt.Errorf("blocks must be 1 to %d, not %d", MaxBlocks, c.Blocks)
	case c.Addresses < 1 || c.Blocks*c.Addresses > MaxAddresses:
		return fmt.Errorf("all blocks together must have 1 to %d addresses, not %d", MaxAddresses, c.Blocks*c.Addresses)
	case c.FenceMarks && (c.Addresses > 1 || c.Thresholds):
		return fmt.Errorf("with fence marks a block must have one address, not %d, and leaders no thresholds", c.Addresses)
	case c.Whole && c.Addresses > 1:
		return fmt.Errorf("a block that is assigned whole must have one address, not %d", c.Addresses)
	case c.Leaders < 1 || c.Leaders > MaxLeaders:
		return fmt.Errorf("leaders must be 1 to %d, not %d", MaxLeaders, c.Leaders)
	}
	return nil
}

// New returns the model of an instance that fits into State.
func New(c Config) (*Model, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	if c.Whole {
		c.Cilium = Cilium{}
	}
	m := &Model{Config: c, checked: checks(c.Rules), steps: Steps()}
	for _, g := range c.Without {
		m.off[g] = true
	}
	for i := range c.Blocks * c.Addresses {
		m.of[i/c.Addresses] = append(m.of[i/c.Addresses], i)
	}
	for i := range m.steps {
		if m.has(m.steps[i].Verb) {
			m.addActions(&m.steps[i])
		}
	}
	m.renamings = renamings(c.Nodes, c.Blocks, c.Addresses)
	m.plain = m.renamings[0]
	m.plain.sort = false
	return m, nil
}

// addActions adds a step for all parts that it can involve.
func (m *Model) addActions(step *Step) {
	count := func(p Part, n int) int {
		if step.Of&p == 0 {
			return 1
		}
		return n
	}
	for leader := range count(ALeader, m.Leaders) {
		for node := range count(ANode, m.Nodes) {
			for block := range count(ABlock, m.Blocks) {
				for address := range count(AnAddress, m.Blocks*m.Addresses) {
					a := Action{step.Verb, leader, node, block, address}
					if step.Of&AnAddress != 0 {
						a.Block = address / m.Addresses
					}
					m.actions = append(m.actions, taken{step, a})
				}
			}
		}
	}
}

// action returns an action about an address of a node, and its block.
func (m *Model) action(node, address int) Action {
	return Action{Node: node, Block: address / m.Addresses, Address: address}
}

// System returns the model for the explorer. With equal, states that differ only in the
// numbers of equal parts are one.
func (m *Model) System(equal bool) explore.System[Key, Action] {
	sys := explore.System[Key, Action]{Start: m.Key(&State{}), Next: m.next}
	if equal {
		sys.Canon = m.canon
	}
	return sys
}

func (m *Model) next(k Key, yield func(Action, Key, string)) {
	before := k.State()
	m.Each(&before, func(a Action, after *State) {
		yield(a, m.Key(after), m.broken(&before, a, after))
	})
}

// Each yields every step that is possible from a state and the state it leads to, which is
// valid until the next one.
func (m *Model) Each(before *State, yield func(a Action, after *State)) {
	after := new(State)
	for i := range m.actions {
		t := &m.actions[i]
		if !t.When(m, before, t.Action) {
			continue
		}
		*after = *before
		t.Then(m, after, t.Action)
		if *after != *before {
			yield(t.Action, after)
		}
	}
}

// Key packs a state.
func (m *Model) Key(s *State) Key { return s.key(&m.plain) }

// canon returns the least key of all equal states.
func (m *Model) canon(k Key) Key {
	s := k.State()
	least := k
	for i := range m.renamings {
		if other := s.key(&m.renamings[i]); i == 0 || other[0] < least[0] || other[0] == least[0] && other[1] < least[1] {
			least = other
		}
	}
	return least
}

// renamings returns all ways to number nodes, blocks and the addresses of each block; the
// first is the present numbering.
func renamings(nodes, blocks, addresses int) []renaming {
	var out []renaming
	for _, node := range permutations(nodes, MaxNodes) {
		for _, block := range permutations(blocks, MaxBlocks) {
			for _, order := range orders(blocks, addresses) {
				r := renaming{sort: true}
				for i, to := range node {
					r.node[i], r.owner[i+1] = uint8(to), uint8(to+1)
				}
				for i, to := range block {
					r.block[i] = uint8(to)
				}
				for i := range r.address {
					r.address[i] = uint8(i)
				}
				for i := range blocks * addresses {
					b := i / addresses
					r.address[i] = uint8(block[b]*addresses + order[b][i%addresses])
				}
				out = append(out, r)
			}
		}
	}
	return out
}

// orders returns all ways to number the addresses of each block.
func orders(blocks, addresses int) [][][]int {
	out := [][][]int{nil}
	for range blocks {
		var longer [][][]int
		for _, had := range out {
			for _, p := range permutations(addresses, addresses) {
				longer = append(longer, append(had[:len(had):len(had)], p))
			}
		}
		out = longer
	}
	return out
}

// permutations returns all orders of 0 to n-1, each followed by the numbers up to size.
func permutations(n, size int) [][]int {
	if n == 0 {
		rest := make([]int, size)
		for i := range rest {
			rest[i] = i
		}
		return [][]int{rest}
	}
	var out [][]int
	for _, p := range permutations(n-1, size) {
		for at := n - 1; at >= 0; at-- {
			q := append([]int(nil), p...)
			q[n-1], q[at] = q[at], q[n-1]
			out = append(out, q)
		}
	}
	return out
}

// NoLeader stands for writes that no leader makes.
const NoLeader = -1

// NodeWritten applies the effect of a write of a CiliumNode, by a leader or by its agent, on
// others: patches that are bound to the version before are refused from now on.
func (m *Model) NodeWritten(s *State, node, by int) {
	s.Nodes[node].Deaf = false
	for l := range m.Leaders {
		h := &s.Leaders[l]
		bound := h.Op == PublishNew || h.Op == PublishOld || h.Op == Remove
		switch {
		case !bound || int(h.Node) != node:
		case m.Off(PatchIsConditional):
			h.Stale = true
		case h.Op == PublishNew && m.Off(ObserveBeforeClaim), h.Op == PublishOld && m.Off(ReadBlockLive):
			// It reads the CiliumNode only now.
		default:
			*h = Leader{Fenced: h.Fenced}
		}
	}
	if by == NoLeader {
		return
	}
	for b := range m.Blocks {
		if int(s.Blocks[b].Owner) == node+1 && (s.Blocks[b].Phase == CoolingDown || m.Off(FenceSinceCooling)) {
			s.Leaders[by].Fenced |= 1 << b
		}
	}
}

// BlockWritten does the same for a block. Knowledge of the version before is void.
func (m *Model) BlockWritten(s *State, block int) {
	gone := s.Blocks[block].Owner == 0
	for l := range m.Leaders {
		h := &s.Leaders[l]
		if gone || !m.Off(FenceOfVersion) && !m.Off(FenceSinceCooling) {
			h.Fenced &^= 1 << block
		}
		switch {
		case int(h.On) != block:
		case h.Op == Delete && m.Off(DeleteIsConditional):
			h.Stale = true
		case h.Op == Delete:
			*h = Leader{Fenced: h.Fenced}
		}
	}
}

func (m *Model) setPhase(s *State, block int, to Phase) {
	b := &s.Blocks[block]
	b.Phase, b.Cooled, b.Withdrawn = to, false, false
	m.BlockWritten(s, block)
}

func (m *Model) setEntry(s *State, a Action, to Entry) {
	s.at(a).Entry = to
	m.NodeWritten(s, a.Node, a.Leader)
}

// Off reports whether a guard is switched off.
func (m *Model) Off(g Guard) bool { return m.off[g] }

// addresses returns the addresses of a block.
func (m *Model) addresses(block int) []int { return m.of[block] }

func (m *Model) published(s *State, node, block int) bool {
	return m.anyInBlock(s, node, block, func(at Address) bool { return at.Published })
}

func (m *Model) entries(s *State, node, block int) bool {
	return m.anyInBlock(s, node, block, func(at Address) bool { return at.Entry != NoEntry })
}

// lacks reports whether an address of the block can be published.
func (m *Model) lacks(s *State, node, block int) bool {
	return m.anyInBlock(s, node, block, func(at Address) bool { return !at.Published && m.publishable(at) })
}

func (m *Model) pods(s *State, node, block int) bool {
	return m.anyInBlock(s, node, block, func(at Address) bool { return at.Pod })
}

// free reports whether a pod may still get an address of the block.
func (m *Model) free(s *State, node, block int) bool {
	return m.anyInBlock(s, node, block, func(at Address) bool { return !at.Pod })
}

func (m *Model) anyInBlock(s *State, node, block int, is func(Address) bool) bool {
	for _, i := range m.of[block] {
		if is(s.Nodes[node].Addresses[i]) {
			return true
		}
	}
	return false
}

func (s *State) at(a Action) *Address { return &s.Nodes[a.Node].Addresses[a.Address] }

func (s *State) owns(a Action) bool { return int(s.Blocks[a.Block].Owner) == a.Node+1 }

func (s *State) fenced(a Action) bool { return s.Leaders[a.Leader].Fenced>>a.Block&1 == 1 }

func (s *State) idle(a Action) bool { return s.Leaders[a.Leader].Op == Nothing }

func (s *State) holds(a Action, op Op, on int) bool {
	l := &s.Leaders[a.Leader]
	return l.Op == op && int(l.Node) == a.Node && int(l.On) == on
}

func (s *State) hold(a Action, op Op, on int) {
	l := &s.Leaders[a.Leader]
	*l = Leader{Op: op, Node: uint8(a.Node), On: uint8(on), Fenced: l.Fenced}
}

func (s *State) drop(a Action) {
	l := &s.Leaders[a.Leader]
	*l = Leader{Fenced: l.Fenced}
}
