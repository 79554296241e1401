package protocol

// has reports whether a step exists in the mode. An agent that is assigned whole blocks answers no
// mark and reports no address.
func (m *Model) has(v Verb) bool {
	switch v {
	case Marks, DecidesRemoval, Removes, Reports, RefusesLate, AgentForgets:
		return !m.Whole
	case Returns:
		return m.Whole
	}
	return true
}

// returns returns the step of an agent that is assigned whole blocks (Cilium v1.20.1,
// pkg/ipam/multipool_manager.go). Its other steps are those of agents.
func returns() []Step {
	return []Step{
		{
			// releaseExcessCIDRsMultiPool, updateLocalNode: it removes a block from its list, on
			// the version that it has seen, once it has restored its pods. It has allocated
			// nothing of the block since it decided that. With Thresholds it keeps no reserve.
			Returns, ANode | ABlock,
			func(m *Model, s *State, a Action) bool {
				n := &s.Nodes[a.Node]
				unused := m.published(s, a.Node, a.Block) && !m.pods(s, a.Node, a.Block)
				needed := m.Thresholds && n.Waiting
				return n.Agent == Serving && unused && !needed && m.mayReturn(s.Blocks[a.Block])
			},
			func(m *Model, s *State, a Action) {
				for _, i := range m.addresses(a.Block) {
					s.Nodes[a.Node].Addresses[i].Published = false
				}
				m.NodeWritten(s, a.Node, NoLeader)
			},
		},
	}
}

// mayReturn reports whether the agent may return a block in its phase. If a patch has listed a block
// that cools down, a leader drains it again before the agent returns it: only a cache that lags for
// longer does not show that.
func (m *Model) mayReturn(b Block) bool {
	return b.Phase != CoolingDown || m.OldCaches || m.Off(DrainAgain)
}

// publishable reports whether an address may be published. An entry does not withhold a block that
// is assigned whole.
func (m *Model) publishable(at Address) bool { return m.Whole || at.Entry == NoEntry }

// serves reports whether addresses of the block may be published: it is in service. A block that is
// assigned whole is listed again while it drains if an address of it may be in use, and with
// Thresholds only if a pod waits.
func (m *Model) serves(s *State, a Action) bool {
	b := s.Blocks[a.Block]
	switch {
	case !m.Whole:
		return b.Phase == InService
	case m.Thresholds:
		return b.Phase == InService && !b.Asked && s.Nodes[a.Node].Waiting
	}
	return b.Phase != CoolingDown
}

// returned reports whether a block in service that is not published has left its node: the agent has
// returned it. With Thresholds the block is published again instead if the node needs it.
func (m *Model) returned(s *State, b Block) bool {
	return m.Whole && b.Owner != 0 && (!m.Thresholds || b.Asked || !s.Nodes[b.Owner-1].Waiting)
}
