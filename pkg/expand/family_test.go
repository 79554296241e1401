package expand

import (
	"testing"
	"time"
)

// familyDisabled makes the agent not run the family: it reports no address of it.
func familyDisabled(s *State) { s.FamilyDisabled = true }

func TestDecideFamilyNotRun(t *testing.T) {
	const handshaking = "10.0.0.0/29 waits for Handshake"
	const unrun, report = "10.0.0.1-10.0.0.6", "233.252.0.1"
	leavingUnrun := full("10.0.0.0/29", draining(CIDRDraining), request(CIDRDraining))
	markedUnrun := entries(unrun, Marked)
	runDecide(t, map[string]decideCase{
		"once the marks have stood for long enough, the agent is asked for a report": {
			state:  node(leavingUnrun, markedUnrun, familyDisabled),
			memory: Memory{MarkedSince: since(2*time.Minute, unrun)},
			want:   []string{"needs 0 of 0", "ask", handshaking},
		},
		"the answer is about no address that a person has published": {
			state:  node(leavingUnrun, markedUnrun, published(report, ""), entries("233.252.0.2", DoNotRelease), familyDisabled),
			memory: Memory{MarkedSince: since(2*time.Minute, unrun)},
			want:   []string{"needs 0 of 1", "clear 233.252.0.2", "remove 10.0.0.1-10.0.0.6", handshaking},
		},
		"an answer to the mark from before is as good as the mark": {
			state: node(lone("10.0.0.0/29", draining(CIDRDraining), request(CIDRDraining), listed), published("10.0.0.1", ""),
				entries("10.0.0.1", Ready), entries(report, DoNotRelease), familyDisabled),
			memory: Memory{MarkedSince: since(2*time.Minute, "10.0.0.1")},
			want:   []string{"needs 0 of 0", "clear " + report, "remove 10.0.0.1", handshaking},
		},
		"an agent that restarts may run the family: the marks are withdrawn, so that it finds addresses": {
			state:    node(leavingUnrun, markedUnrun, familyDisabled, unsettled),
			memory:   Memory{MarkedSince: since(time.Hour, unrun)},
			want:     []string{"needs 0 of 0", "clear 10.0.0.1-10.0.0.6", "10.0.0.0/29 waits for AgentNotSettled"},
			remember: &Memory{},
		},
		"it starts to drain without a replacement": {
			state: node(full("10.0.0.0/29", request(CIDRDraining)), pods(20), familyDisabled),
			want:  []string{"needs 0 of 0", "drain 10.0.0.0/29 CIDRDraining", handshaking},
		},
		"a pod whose status has an address of the family keeps that": {
			state: node(full("10.0.0.0/29", draining(CIDRDraining), request(CIDRDraining)), pod("a/a", "10.0.0.1"), familyDisabled),
			want:  []string{"needs 0 of 0", "mark 10.0.0.2-10.0.0.6", "10.0.0.0/29 waits for Pods a/a"},
		},
		"nothing is marked just after a pod came whose status names no address: it may have one of before": {
			state: node(leavingUnrun, came("a/a", noon.Add(-time.Minute)), familyDisabled),
			want:  []string{"needs 0 of 0", "10.0.0.0/29 waits for PodAddress a/a", "again in 15m0s"},
		},
		"nor is it removed where it was marked": {
			state: node(lone("10.0.0.0/29", draining(CIDRDraining), request(CIDRDraining), listed), published("10.0.0.1", ""),
				entries("10.0.0.1", Marked), pod("a/a", "10.0.0.1"), familyDisabled),
			memory: Memory{MarkedSince: since(time.Hour, "10.0.0.1")},
			want:   []string{"needs 0 of 0", "clear 10.0.0.1", "10.0.0.0/29 waits for Pods a/a"},
		},
	})
}
