package state

import (
	"errors"
	"testing"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// A CIDR that an agent has closed brings that agent no address: its node does not claim it
// while this agent runs. It is free for all others.
func TestClaimsNothingClosed(t *testing.T) {
	tests := map[string]struct{ node, agent, want string }{
		"to its node":               {"n", "c", "10.0.0.4/30"},
		"once the agent restarted":  {"n", "d", "10.0.0.0/30"},
		"while no agent is known":   {"n", "", "10.0.0.0/30"},
		"another node may have it":  {"m", "c", "10.0.0.0/30"},
		"it is free for all others": {"m", "d", "10.0.0.0/30"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := fixtures.Block("10.0.0.0/30", "p", "n", 1)
			b.Closed = expand.Closed{Agent: "c", Since: fixtures.Noon()}
			l := ReadyLedger(b)
			l.Remove(b)
			pools := []*crd.Pool{fixtures.PoolOf(t, fixtures.PodIPPool("p", 1, "10.0.0.0/29"))}
			cidr, _, err := l.Claim(ipalloc.IPv4, test.node, test.agent, pools)
			if err != nil || cidr != fixtures.Prefix(test.want) {
				t.Errorf("%s, %v; want %s", cidr, err, test.want)
			}
		})
	}
}

// If only closed CIDRs are left, the claim finds none; and those passed over stay free.
func TestClosedIsPassedOver(t *testing.T) {
	b := fixtures.Block("10.0.0.0/30", "p", "n", 1)
	b.Closed = expand.Closed{Agent: "c", Since: fixtures.Noon()}
	l := ReadyLedger(b)
	l.Remove(b)
	pools := []*crd.Pool{fixtures.PoolOf(t, fixtures.PodIPPool("p", 1, "10.0.0.0/30"))}
	if cidr, _, err := l.Claim(ipalloc.IPv4, "n", "c", pools); !errors.Is(err, ipalloc.ErrExhausted) {
		t.Errorf("%s, %v; want none", cidr, err)
	}
	if cidr, _, err := l.Claim(ipalloc.IPv4, "m", "c", pools); err != nil || cidr != b.CIDR {
		t.Errorf("another node gets %s, %v", cidr, err)
	}
	l.Upsert(fixtures.Block("10.0.0.0/30", "p", "m", 2))
	l.Remove(fixtures.Block("10.0.0.0/30", "p", "m", 2))
	if cidr, _, err := l.Claim(ipalloc.IPv4, "n", "c", pools); err != nil || cidr != b.CIDR {
		t.Errorf("once another node had it, %s, %v", cidr, err)
	}
}

func TestContainer(t *testing.T) {
	a := NewAgents(time.Minute)
	if got := a.Container("n"); got != "" {
		t.Errorf("of no agent: %q", got)
	}
	a.Set(ReadAgent(fixtures.AgentPod("1", "c", true)), fixtures.Noon())
	if got := a.Container("n"); got != "c" {
		t.Errorf("%q, want c", got)
	}
	a.Set(ReadAgent(fixtures.AgentPod("2", "d", false)), fixtures.Noon())
	if got := a.Container("n"); got != "" {
		t.Errorf("while one pod replaces another: %q", got)
	}
}
