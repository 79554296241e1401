package state

import (
	"slices"
	"testing"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// A certain recovery outlasts the cooldown of gone Nodes and each running agent; another ends with either.
func TestRecoveryMayEnd(t *testing.T) {
	const cooldown = 10 * time.Minute
	for name, test := range map[string]struct {
		certain bool
		waiting int
		after   time.Duration
		want    bool
	}{
		"perhaps, an agent is silent":            {waiting: 1, after: time.Minute},
		"perhaps, an agent is silent for long":   {waiting: 1, after: cooldown, want: true},
		"perhaps, all have reported":             {want: true},
		"certain, all have reported":             {certain: true, after: time.Minute},
		"certain, all have reported, later":      {certain: true, after: cooldown, want: true},
		"certain, an agent is silent for longer": {certain: true, waiting: 1, after: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			r := &Recovery{}
			r.Begin(test.certain, fixtures.Noon())
			if got := r.MayEnd(test.waiting, cooldown, fixtures.Noon().Add(test.after)); got != test.want {
				t.Errorf("it may end: %t", got)
			}
		})
	}
}

// A recovery that becomes certain starts anew, and one that is certain stays so.
func TestRecoveryBecomesCertain(t *testing.T) {
	changes := 0
	r := &Recovery{changed: func() { changes++ }}
	r.Begin(false, fixtures.Noon())
	r.Recovered("n")
	r.Begin(false, fixtures.Noon())
	if !r.HasRecovered("n") {
		t.Error("it began twice")
	}
	r.Begin(true, fixtures.Noon())
	r.Begin(false, fixtures.Noon())
	if r.HasRecovered("n") || !r.Certain() {
		t.Errorf("recovered: %t, certain: %t", r.HasRecovered("n"), r.Certain())
	}
	r.End()
	r.End()
	if r.Active() || changes != 3 {
		t.Errorf("active: %t, after %d changes", r.Active(), changes)
	}
}

// Only running agents can report: one that is down, or that serves another IPAM, is not waited for. One without a
// CiliumNode has joined since the snapshot.
func TestAwaitsReport(t *testing.T) {
	c := &Cluster{Ledger: ReadyLedger(), Agents: NewAgents(time.Minute), Recovery: &Recovery{}}
	c.Recovery.Begin(true, fixtures.Noon())
	for _, name := range []string{"reported", "runs", "starts", "down", "other", "joined"} {
		cn := fixtures.CiliumNode(name, "1")
		if name == "other" {
			cn = fixtures.CiliumNode(name, "1", "10.0.0.0/24")
		}
		if name != "joined" {
			c.Ledger.UpsertCiliumNode(ciliumnode.CRD.View(cn))
		}
		pod := fixtures.AgentPod(name, "c", name != "down")
		pod.Spec.NodeName = name
		since := fixtures.Noon()
		if name == "starts" {
			since = since.Add(time.Hour)
		}
		c.Agents.Set(ReadAgent(pod), since)
	}
	c.Recovery.Recovered("reported")
	if got := c.AwaitsReport(fixtures.Noon().Add(time.Hour)); !slices.Equal(got, []string{"joined", "runs", "starts"}) {
		t.Errorf("it awaits the reports of %v", got)
	}
}
