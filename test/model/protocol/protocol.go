// Package protocol is a model of how addresses move between nodes: claim, publish, handshake,
// cooldown and fence, by leaders that pause anywhere, die and act on old caches, and agents
// that crash. Steps, below, is the whole model; read State first, then Steps from top to
// bottom, then Rules.
//
// One step is one call to the API server together with the decision on its response, or one
// event of an agent, of a person or of time. If a decision and its write are one step, the
// write is bound to the version that was decided on: had that changed, the write would have
// been refused, without an effect. A Leader holds the writes that can be old when they land.
//
// Unless Config.Thresholds is set, the model does not restrict when a leader claims, drains,
// takes back, marks or withdraws a mark: it may at any moment. So a result holds for every
// policy and every clock.
//
// The model has no versions, watches or queues, so it is small enough to be explored
// completely; the explorer is our own, as the simulator takes the same steps.
// docs/contributing/testing.md lists further omissions.
package protocol

// Step is something that can happen.
type Step struct {
	Verb Verb
	// Of are the parts that it involves: there is one such step for each.
	Of Part
	// When reports whether it is possible, Then performs it.
	When func(m *Model, s *State, a Action) bool
	Then func(m *Model, s *State, a Action)
}

// Part is a set of kinds of parts.
type Part uint8

// Kinds of parts. An address stands for its block as well.
const (
	ALeader Part = 1 << iota
	ANode
	ABlock
	AnAddress
)

// Action is a step, and the numbers of the parts that it involves.
type Action struct {
	Verb                         Verb
	Leader, Node, Block, Address int
}

// Steps returns all steps that can happen.
func Steps() []Step {
	var all []Step
	for _, part := range [][]Step{claims(), handshake(), cooldown(), agents(), returns(), chance()} {
		all = append(all, part...)
	}
	return all
}

// claims returns the steps of a node that gets a block (pkg/controller/node/blocks.go and act.go).
func claims() []Step {
	return []Step{
		{
			// claimOne. The name of the object follows from its CIDR, so only one create
			// succeeds. The CiliumNode was read before.
			Claims, ALeader | ANode | ABlock,
			func(m *Model, s *State, a Action) bool {
				b := s.Blocks[a.Block]
				free := b.Owner == 0 || m.Off(ClaimByCreate) && !s.owns(a)
				return s.idle(a) && free && m.mayClaim(s, a.Node)
			},
			func(m *Model, s *State, a Action) {
				s.Blocks[a.Block] = Block{Owner: uint8(a.Node + 1)}
				m.BlockWritten(s, a.Block)
				s.hold(a, PublishNew, a.Block)
			},
		}, {
			// addVerified, verifyFinalized: a block that serves and lacks addresses is read live.
			// The CiliumNode was read before.
			ReadsBlock, ALeader | ANode | ABlock,
			func(m *Model, s *State, a Action) bool {
				return s.idle(a) && s.owns(a) && m.serves(s, a) && m.lacks(s, a.Node, a.Block)
			},
			func(_ *Model, s *State, a Action) { s.hold(a, PublishOld, a.Block) },
		}, {
			// apply: one patch of pool and podCIDRs. An address that has an entry is left out.
			Publishes, ALeader | ANode | ABlock,
			func(_ *Model, s *State, a Action) bool {
				return s.holds(a, PublishNew, a.Block) || s.holds(a, PublishOld, a.Block)
			},
			func(m *Model, s *State, a Action) {
				s.drop(a)
				if !m.lacks(s, a.Node, a.Block) {
					return
				}
				for _, i := range m.addresses(a.Block) {
					if at := &s.Nodes[a.Node].Addresses[i]; m.publishable(*at) {
						at.Published = true
					}
				}
				s.Blocks[a.Block].Withdrawn = false
				m.NodeWritten(s, a.Node, a.Leader)
			},
		},
	}
}

// handshake returns the steps of an address that leaves a node (pkg/expand/handshake.go).
// Each is one patch of the CiliumNode, bound to the version decided on; the block may have
// changed since the leader's cache read it.
func handshake() []Step {
	return []Step{
		{
			// setPhase: the condition Draining, also of a block that cools down and has
			// something published (drainAgain), or had in an old cache.
			Drains, ABlock,
			func(m *Model, s *State, a Action) bool { return m.drains(s, s.Blocks[a.Block], a.Block) },
			func(m *Model, s *State, a Action) { m.setPhase(s, a.Block, Draining) },
		}, {
			// setPhase: back into service.
			TakesBack, ABlock,
			func(m *Model, s *State, a Action) bool {
				b := s.Blocks[a.Block]
				return b.Owner != 0 && b.Phase != InService && m.mayTakeBack(s, a.Block)
			},
			func(m *Model, s *State, a Action) { m.setPhase(s, a.Block, InService) },
		}, {
			// leave, mark.
			Marks, ALeader | ANode | AnAddress,
			func(m *Model, s *State, a Action) bool {
				at := s.at(a)
				return s.owns(a) && at.Published && at.Entry == NoEntry && m.mayMark(s, a)
			},
			func(m *Model, s *State, a Action) { m.setEntry(s, a, Marked) },
		}, {
			// clearUnpublished, leave: an entry is deleted.
			Clears, ALeader | ANode | AnAddress,
			func(m *Model, s *State, a Action) bool { return s.at(a).Entry != NoEntry && m.mayClear(s, a) },
			func(m *Model, s *State, a Action) { m.setEntry(s, a, NoEntry) },
		}, {
			// leave: something can happen between the decision and the patch only if the patch
			// is not bound to the version decided on.
			DecidesRemoval, ALeader | ANode | AnAddress,
			func(m *Model, s *State, a Action) bool {
				return m.Off(PatchIsConditional) && s.idle(a) && m.mayRemove(s, a)
			},
			func(_ *Model, s *State, a Action) { s.hold(a, Remove, a.Address) },
		}, {
			Removes, ALeader | ANode | AnAddress,
			func(m *Model, s *State, a Action) bool {
				if m.Off(PatchIsConditional) {
					return s.holds(a, Remove, a.Address) && s.at(a).Published
				}
				return m.mayRemove(s, a)
			},
			func(m *Model, s *State, a Action) {
				if s.holds(a, Remove, a.Address) {
					s.drop(a)
				}
				s.at(a).Published = false
				m.NodeWritten(s, a.Node, a.Leader)
			},
		},
	}
}

func (m *Model) drains(s *State, b Block, block int) bool {
	switch {
	case b.Owner == 0 || b.Phase == Draining:
		return false
	case b.Phase == CoolingDown:
		return !m.Thresholds || !m.Off(DrainAgain) && m.published(s, int(b.Owner-1), block)
	}
	return m.mayDrain(s, block)
}

// cooldown returns the steps of a block that becomes free for other nodes
// (pkg/expand/free.go, pkg/controller/node/blocks.go: deleteBlock, fence).
func cooldown() []Step {
	return []Step{
		{
			// cools, setPhase: the condition CoolingDown, on the version of a block that
			// drains. No address of the block is published according to the leader's cache of
			// the CiliumNode, which may be old.
			CoolsDown, ABlock,
			func(m *Model, s *State, a Action) bool {
				b := s.Blocks[a.Block]
				leaving := b.Phase == Draining || b.Phase == InService && (m.returned(s, b) || m.Off(PhaseIsConditional))
				return b.Owner != 0 && leaving && m.maySeeEmpty(s, int(b.Owner-1), a.Block)
			},
			func(m *Model, s *State, a Action) { m.setPhase(s, a.Block, CoolingDown) },
		}, {
			// BumpVersion: an entry is written that is deleted again, so that the version
			// changes. With FenceMarks it stays until then: a mark of the first address, if
			// that is in no pool; if an entry already exists, that is deleted. A leader with an
			// old cache of the block may do so at any moment.
			Fences, ALeader | ANode | ABlock,
			func(m *Model, s *State, a Action) bool { return m.mayFence(s, a) },
			func(m *Model, s *State, a Action) {
				if m.FenceMarks {
					m.fenceMark(s, a)
				}
				m.NodeWritten(s, a.Node, a.Leader)
			},
		}, {
			// deleteBlock: the CiliumNode, read live, names no address of the block. Its entries of
			// the block are deleted before; with FenceMarks, any may outlive the block.
			ReadsNode, ALeader | ANode | ABlock,
			func(m *Model, s *State, a Action) bool { return s.idle(a) && s.owns(a) && m.isFree(s, a) },
			func(_ *Model, s *State, a Action) { s.hold(a, Delete, a.Block) },
		}, {
			// deleteBlock: by UID and resourceVersion.
			Deletes, ALeader | ANode | ABlock,
			func(_ *Model, s *State, a Action) bool {
				return s.holds(a, Delete, a.Block) && s.Blocks[a.Block].Owner != 0
			},
			func(m *Model, s *State, a Action) {
				s.drop(a)
				s.Blocks[a.Block] = Block{}
				m.BlockWritten(s, a.Block)
			},
		}, {
			CooldownPasses, ABlock,
			func(_ *Model, s *State, a Action) bool {
				b := s.Blocks[a.Block]
				return b.Owner != 0 && b.Phase == CoolingDown
			},
			func(m *Model, s *State, a Action) {
				b := &s.Blocks[a.Block]
				b.Cooled, b.Withdrawn = true, !m.published(s, int(b.Owner-1), a.Block)
			},
		},
	}
}

func (m *Model) mayFence(s *State, a Action) bool {
	b := s.Blocks[a.Block]
	due := b.Cooled || !m.Thresholds
	needed := s.owns(a) && b.Phase == CoolingDown && due && !s.fenced(a)
	return (needed || m.FenceMarks) && !m.Off(FenceByMark)
}

// fenceMark writes the mark that a fence leaves.
func (m *Model) fenceMark(s *State, a Action) {
	switch at := &s.Nodes[a.Node].Addresses[m.addresses(a.Block)[0]]; {
	case at.Published: // then it is the entry of an address of no block
	case at.Entry == NoEntry:
		at.Entry = Marked
	default:
		at.Entry = NoEntry
	}
}

// isFree reports whether a leader may delete a block, judging by the CiliumNode.
func (m *Model) isFree(s *State, a Action) bool {
	b := s.Blocks[a.Block]
	return b.Phase == CoolingDown &&
		(b.Cooled || m.Off(WaitCooldown)) &&
		(s.fenced(a) || m.Off(Fence)) &&
		(!m.published(s, a.Node, a.Block) || m.Off(ReadNodeLive)) &&
		(!m.entries(s, a.Node, a.Block) || m.FenceMarks)
}
