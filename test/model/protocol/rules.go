package protocol

import "github.com/cilium-pool/cilium-pool-operator/test/model/explore"

// Rule is one of the rules in docs/contributing/architecture.md, or a part of one.
type Rule string

// Rules. The first word is the number in docs/contributing/architecture.md.
const (
	OnePool     Rule = "1 one-pool"    // no address is in two nodes' pools, or has two pods
	Claimed     Rule = "1 claimed"     // a published address lies in a block of that node
	CooledDown  Rule = "1 cooled-down" // a block is deleted once a cooldown has passed without a published address
	Agreed      Rule = "2 agreed"      // no address leaves a pool before the agent agreed
	InUse       Rule = "2 in-use"      // no address leaves a pool while a pod has it
	Conditional Rule = "4 conditional" // decisions based on an old version have no effect
	// Restored is promised only with the change to Cilium that docs/reliability.md
	// proposes: an agent that starts restores every pod.
	Restored Rule = "restored"
)

// Promised returns the rules that always hold.
func Promised() []Rule { return []Rule{OnePool, Claimed, CooledDown, Agreed, InUse, Conditional} }

// check is a rule, with the condition that breaks it.
type check struct {
	Rule
	broken func(m *Model, before *State, a Action, after *State) bool
}

func checks(rules []Rule) []check {
	if rules == nil {
		rules = Promised()
	}
	all := map[Rule]func(*Model, *State, Action, *State) bool{
		OnePool: func(m *Model, _ *State, _ Action, after *State) bool {
			return m.anyAddress(func(i int) bool {
				published, pods := 0, 0
				for n := range m.Nodes {
					at := after.Nodes[n].Addresses[i]
					published += int(bit(at.Published))
					pods += int(bit(at.Pod))
				}
				return published > 1 || pods > 1
			})
		},
		Claimed: func(m *Model, _ *State, _ Action, after *State) bool {
			return m.anyOnNode(after, func(a Action, at *Address) bool { return at.Published && !after.owns(a) })
		},
		CooledDown: func(_ *Model, before *State, a Action, _ *State) bool {
			return a.Verb == Deletes && !before.Blocks[a.Block].Withdrawn
		},
		Agreed: func(_ *Model, before *State, a Action, _ *State) bool {
			return a.Verb == Removes && before.at(a).Entry != Ready
		},
		InUse: func(m *Model, _ *State, _ Action, after *State) bool {
			return m.anyOnNode(after, func(_ Action, at *Address) bool { return at.Pod && !at.Published })
		},
		Conditional: func(m *Model, before *State, a Action, _ *State) bool {
			switch a.Verb {
			case Publishes, Removes, Deletes:
				return before.Leaders[a.Leader].Stale
			case CoolsDown:
				return !m.Whole && before.Blocks[a.Block].Phase != Draining
			}
			return false
		},
		Restored: func(m *Model, before *State, a Action, after *State) bool {
			return (a.Verb == AgentRestores || a.Verb == RestoresAll) && m.anyAddress(func(i int) bool {
				return before.Nodes[a.Node].Addresses[i].Pod && !after.Nodes[a.Node].Addresses[i].Pod
			})
		},
	}
	var out []check
	for _, r := range rules {
		out = append(out, check{r, all[r]})
	}
	return out
}

// broken returns the first rule that a step breaks, or "".
func (m *Model) broken(before *State, a Action, after *State) string {
	for i := range m.checked {
		if m.checked[i].broken(m, before, a, after) {
			return string(m.checked[i].Rule)
		}
	}
	return ""
}

func (m *Model) anyAddress(is func(i int) bool) bool {
	for i := range m.Blocks * m.Addresses {
		if is(i) {
			return true
		}
	}
	return false
}

func (m *Model) anyOnNode(s *State, is func(Action, *Address) bool) bool {
	for n := range m.Nodes {
		if m.anyAddress(func(i int) bool {
			a := m.action(n, i)
			return is(a, s.at(a))
		}) {
			return true
		}
	}
	return false
}

// Settled is the goal that writes cease once chance has ceased: rule 8 of
// docs/contributing/architecture.md.
const Settled = "8 settled"

// Fairness returns the fairness of a step: a step other than chance eventually happens if it
// stays possible.
func (m *Model) Fairness(a Action) explore.Fairness {
	if a.Verb.chance() {
		return explore.Chance
	}
	return explore.Weak
}

// Writes reports whether a step writes to the API server.
func Writes(a Action) bool {
	switch a.Verb {
	case ReadsBlock, ReadsNode, DecidesRemoval, CooldownPasses, Allocates, AgentStarts, AgentRestores, RestoresAll:
		return false
	}
	return true
}

// Goals returns the goals of progress: a demand that can be met, and a drain that can finish.
func (m *Model) Goals() []explore.Goal[Key] {
	var out []explore.Goal[Key]
	for n := range m.Nodes {
		out = append(out, explore.Goal[Key]{Name: "demand of node " + nodeName(n), Unmet: func(k Key) bool {
			s := k.State()
			return s.Nodes[n].Waiting && m.canHave(&s, n)
		}})
	}
	for b := range m.Blocks {
		out = append(out, explore.Goal[Key]{Name: "drain of block " + blockName(b), Unmet: func(k Key) bool {
			s := k.State()
			block := s.Blocks[b]
			return block.Owner != 0 && block.Asked && !m.pods(&s, int(block.Owner-1), b)
		}})
	}
	return out
}

// canHave reports whether there is an address for a pod of the node: in a block without a
// pod of any node, or in one of its own that may stay.
func (m *Model) canHave(s *State, node int) bool {
	for b := range m.Blocks {
		unused := true
		for n := range m.Nodes {
			unused = unused && !m.pods(s, n, b)
		}
		own := int(s.Blocks[b].Owner) == node+1 && !s.Blocks[b].Asked && m.free(s, node, b)
		if unused || own {
			return true
		}
	}
	return false
}
