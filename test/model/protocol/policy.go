package protocol

// The following functions decide when a leader may take a step of the protocol: at any moment,
// or with Thresholds as pkg/expand decides.

// mayClaim requires that a node needs an address, and none is coming; a block that leaves is
// taken back before another is claimed.
func (m *Model) mayClaim(s *State, node int) bool {
	if !m.Thresholds {
		return true
	}
	for b := range m.Blocks {
		if m.mayTakeBack(s, b) && int(s.Blocks[b].Owner) == node+1 {
			return false
		}
	}
	return m.wants(s, node)
}

// mayTakeBack applies to blocks that are not in service.
func (m *Model) mayTakeBack(s *State, block int) bool {
	if !m.Thresholds {
		return true
	}
	b := s.Blocks[block]
	node := int(b.Owner) - 1
	return b.Owner != 0 && b.Phase != InService && !b.Asked && m.free(s, node, block) && m.wants(s, node)
}

// wants reports whether a pod waits, no address is free, and none of a block in service will
// be.
func (m *Model) wants(s *State, node int) bool {
	if !s.Nodes[node].Waiting {
		return false
	}
	for i := range m.Blocks * m.Addresses {
		a := m.action(node, i)
		at := s.at(a)
		if at.Published && !at.Pod && (at.Entry == NoEntry || at.Entry == Refused) {
			return false
		}
		if b := s.Blocks[a.Block]; s.owns(a) && b.Phase == InService && !b.Asked && !at.Pod {
			return false
		}
	}
	return true
}

// mayDrain applies to blocks in service: a person has deleted the block, or it is idle. An idle
// block that is assigned whole is returned without a drain.
func (m *Model) mayDrain(s *State, block int) bool {
	b := s.Blocks[block]
	node := int(b.Owner) - 1
	idle := !m.Whole && !m.pods(s, node, block) && !s.Nodes[node].Waiting && !m.Off(Reclaim)
	return !m.Thresholds || b.Asked || idle
}

func (m *Model) mayMark(s *State, a Action) bool {
	if m.CarefulMarks && s.at(a).Pod {
		return false
	}
	return !m.Thresholds || s.Blocks[a.Block].Phase == Draining && !s.at(a).Pod
}

// mayClear requires that the address stays, is in use, was refused, or has left; or that the
// agent has not answered within --ack-timeout, and will not.
func (m *Model) mayClear(s *State, a Action) bool {
	if !m.Thresholds {
		return true
	}
	at, b := s.at(a), s.Blocks[a.Block]
	switch {
	case at.Entry == Refused:
		return !m.Off(ClearRefused)
	case !s.owns(a) || b.Phase == InService:
		return true
	case !at.Published: // the last entries go once the block cools down
		return b.Phase == CoolingDown || m.published(s, a.Node, a.Block)
	case b.Phase == CoolingDown:
		return false
	}
	forgotten := s.Nodes[a.Node].Deaf && !m.Off(AckTimeout)
	return at.Entry == Marked && (at.Pod || forgotten)
}

// mayRemove requires that the agent has agreed, and has restored its pods since it started.
// The leader's cache of the block may be old, but not older than the mark, unless OldCaches is
// set.
func (m *Model) mayRemove(s *State, a Action) bool {
	at, phase := s.at(a), s.Blocks[a.Block].Phase
	agreed := at.Entry == Ready || m.Off(RemoveWhenAgreed)
	reported := !s.Nodes[a.Node].Unreported || m.Off(RemoveWhenReported)
	leaving := phase == Draining || !m.Thresholds && (phase == InService || m.OldCaches)
	return s.owns(a) && at.Published && agreed && reported && leaving
}

// maySeeEmpty reports whether the leader's cache of the CiliumNode may lack each address of the
// block: because none is published, or because the cache is from before the block was
// published. From a mark to the removal of the address takes longer than a cache may lag,
// unless OldCaches is set.
func (m *Model) maySeeEmpty(s *State, node, block int) bool {
	switch {
	case !m.published(s, node, block), m.OldCaches, m.Off(CoolWhenEmpty):
		return true
	case m.Thresholds:
		return false
	}
	return !m.anyInBlock(s, node, block, func(at Address) bool { return at.Entry == Ready })
}
