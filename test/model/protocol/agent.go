package protocol

import "slices"

// agents returns the steps that agents take on their own (Cilium v1.20.1, pkg/ipam/crd.go; the
// light agent of test/agent is the same, line by line). An agent reads its CiliumNode by a
// watch, which lags: it can allocate an address before it sees the mark. If it has not seen
// that an address was added, or an entry deleted, this is as if it had not acted yet; and an
// address leaves its pool only after its own answer.
func agents() []Step {
	return []Step{
		{
			// allocateNext, isIPInReleaseHandshake.
			Allocates, ANode | AnAddress,
			func(m *Model, s *State, a Action) bool {
				n, at := &s.Nodes[a.Node], s.at(a)
				return n.Agent == Serving && at.Published && !at.Pod && at.Entry != Ready && (n.Waiting || !m.Thresholds)
			},
			func(_ *Model, s *State, a Action) { s.at(a).Pod, s.Nodes[a.Node].Waiting = true, false },
		}, {
			// updateLocalNodeResource, refreshNode: it answers all marks, and reports its
			// use, in one write of the version that it has seen.
			Reports, ANode,
			func(m *Model, s *State, a Action) bool { return s.Nodes[a.Node].reports(m.Cilium) },
			func(m *Model, s *State, a Action) {
				s.Nodes[a.Node].report()
				m.NodeWritten(s, a.Node, NoLeader)
			},
		}, {
			// The same, if the pod is gone since the agent saw the mark. It refuses an address
			// that is in no pool as soon as it runs, before it is open.
			RefusesLate, ANode | AnAddress,
			func(m *Model, s *State, a Action) bool {
				refuses := s.Nodes[a.Node].Agent == Serving || !s.at(a).Published
				return !m.Thresholds && refuses && s.at(a).Entry == Marked
			},
			func(m *Model, s *State, a Action) {
				n := &s.Nodes[a.Node]
				s.at(a).Entry, n.Unreported = Refused, n.Agent != Serving
				m.NodeWritten(s, a.Node, NoLeader)
			},
		}, {
			AgentStarts, ANode,
			func(_ *Model, s *State, a Action) bool { return s.Nodes[a.Node].Agent == Down },
			func(_ *Model, s *State, a Action) { s.Nodes[a.Node].Agent = Opened },
		}, {
			// restoreOldEndpoints: a pod loses its network if the agent refuses its address.
			AgentRestores, ANode,
			func(_ *Model, s *State, a Action) bool { return s.Nodes[a.Node].Agent == Opened },
			func(m *Model, s *State, a Action) { s.Nodes[a.Node].restore(m.Cilium.RefusesMarked) },
		}, {
			// The same, before it has seen any mark that was set since it started.
			RestoresAll, ANode,
			func(m *Model, s *State, a Action) bool {
				return !m.Thresholds && m.Cilium.RefusesMarked && s.Nodes[a.Node].Agent == Opened
			},
			func(_ *Model, s *State, a Action) { s.Nodes[a.Node].restore(false) },
		},
	}
}

// reports is true if the agent has something to write.
func (n *Node) reports(cilium Cilium) bool {
	switch {
	case n.Agent == Down || n.Agent == Opened && !cilium.AnswersEarly:
		return false
	case n.answers():
		return true
	}
	return n.Agent == Serving && n.Unreported
}

// answers reports whether the agent has a mark to answer.
func (n *Node) answers() bool {
	return !n.Deaf && slices.ContainsFunc(n.Addresses[:], func(at Address) bool { return at.Entry == Marked })
}

// report answers as answerOne of the light agent does: an address that no pod has, as far as
// the agent knows, becomes ready.
func (n *Node) report() {
	for i := range n.Addresses {
		at := &n.Addresses[i]
		switch {
		case at.Entry != Marked || n.Deaf:
		case !at.Published || n.Agent == Serving && at.Pod:
			at.Entry = Refused
		default:
			at.Entry = Ready
		}
	}
	n.Unreported = n.Agent == Opened
}

func (n *Node) restore(refusesMarked bool) {
	n.Agent = Serving
	for i := range n.Addresses {
		at := &n.Addresses[i]
		refused := at.Entry == Ready || at.Entry == Marked && refusesMarked
		at.Pod = at.Pod && at.Published && !refused
	}
}

// chance returns the steps that may happen at any time but need not: crashes, pods and people.
func chance() []Step {
	return []Step{
		{
			AgentCrashes, ANode,
			func(_ *Model, s *State, a Action) bool { return s.Nodes[a.Node].Agent != Down },
			func(_ *Model, s *State, a Action) { s.Nodes[a.Node].Agent, s.Nodes[a.Node].Deaf = Down, false },
		}, {
			// A leader may die at any time; another process takes its place.
			Dies, ALeader,
			func(_ *Model, s *State, a Action) bool { return s.Leaders[a.Leader] != Leader{} },
			func(_ *Model, s *State, a Action) { s.Leaders[a.Leader] = Leader{} },
		}, {
			// setOwnNodeWithoutPoolUpdate: a change of only the metadata crosses the answer.
			AgentForgets, ANode,
			func(m *Model, s *State, a Action) bool {
				n := &s.Nodes[a.Node]
				return m.Thresholds && n.Agent == Serving && n.answers()
			},
			func(m *Model, s *State, a Action) {
				m.NodeWritten(s, a.Node, NoLeader)
				s.Nodes[a.Node].Deaf = true
			},
		}, {
			PodCame, ANode,
			func(m *Model, s *State, a Action) bool { return m.Thresholds && !s.Nodes[a.Node].Waiting },
			func(_ *Model, s *State, a Action) { s.Nodes[a.Node].Waiting = true },
		}, {
			PodGoes, ANode | AnAddress,
			func(_ *Model, s *State, a Action) bool { return s.at(a).Pod },
			func(_ *Model, s *State, a Action) { s.at(a).Pod = false },
		}, {
			// kubectl delete podipblock: its finalizer keeps the object.
			PersonDeletes, ABlock,
			func(m *Model, s *State, a Action) bool {
				b := s.Blocks[a.Block]
				return m.Thresholds && b.Owner != 0 && !b.Asked
			},
			func(m *Model, s *State, a Action) {
				s.Blocks[a.Block].Asked = true
				m.BlockWritten(s, a.Block)
			},
		},
	}
}
