package expand

import "testing"

func adopting(s *State) { s.Adopting = true }

// Until a node's agent has started in the new mode, the operator only publishes its addresses: it
// claims no block even if pods wait, drains and marks none even on request, and takes no entry for
// an answer.
func TestDecideAdopting(t *testing.T) {
	runDecide(t, map[string]decideCase{
		"pods wait": {
			state: node(lone("10.0.0.0/30"), pods(20), adopting),
			want:  []string{"needs 20 of 2", "publish 10.0.0.1-10.0.0.2"},
		},
		"a block is asked back": {
			state: node(lone("10.0.0.0/30"), lone("10.0.0.4/30", request(Deleted)), adopting),
			want:  []string{"needs 0 of 2", "publish 10.0.0.1-10.0.0.2"},
		},
		"its agent requests more, in multi-pool mode": {
			state: node(lone("10.0.0.0/30"), listing(20), adopting),
			want:  []string{"needs 0 of 2", "assign 10.0.0.0/30"},
		},
	})
}
