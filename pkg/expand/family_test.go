package expand

import "testing"

// notRun says that the agent does not run the family: it reports nothing of it.
func notRun(s *State) { s.NotRun = true }

func TestDecideFamilyNotRun(t *testing.T) {
	runDecide(t, map[string]decideCase{
		"no pod is demand, and nothing is claimed": {
			state: node(pods(20), notRun),
			want:  []string{"needs 0 of 0"},
		},
		"nor beside a block that it has": {
			state: node(full("10.0.0.0/29"), pods(20), notRun),
			want:  []string{"needs 0 of 6"},
		},
		"nor for what people ask of the CiliumNode": {
			state: node(notRun, limits(Limits{MinAllocate: 10, PreAllocate: 10})),
			want:  []string{"needs 0 of 0"},
		},
		"a block that has to go says what it waits for, and its addresses stay": {
			state: node(full("10.0.0.0/29", draining(CIDRDraining), request(CIDRDraining)), pods(20), notRun),
			want:  []string{"needs 0 of 0", "10.0.0.0/29 waits for FamilyNotRun"},
		},
		"it starts to drain without a replacement": {
			state: node(full("10.0.0.0/29", request(CIDRDraining)), pods(20), notRun),
			want:  []string{"needs 0 of 0", "drain 10.0.0.0/29 CIDRDraining", "10.0.0.0/29 waits for FamilyNotRun"},
		},
		"a pod whose status has an address of the family keeps that": {
			state: node(full("10.0.0.0/29", draining(CIDRDraining), request(CIDRDraining)), pod("a/a", "10.0.0.1"), notRun),
			want:  []string{"needs 0 of 0", "10.0.0.0/29 waits for Pods a/a"},
		},
	})
}
