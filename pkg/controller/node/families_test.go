package node

import (
	"strings"
	"testing"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/event"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/test/fakeapi"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

func TestFamilyNotRunIsNotClaimed(t *testing.T) {
	b := newBed(t, fixtures.Node(), fixtures.DualStack(), fixtures.IPv4Agent(), fixtures.BlockObject("10.0.0.0/29", ipalloc.InService))
	b.r.Agents.Set(state.ReadAgent(fixtures.AgentPod("1", "c", true)), fixtures.Noon())
	b.Clock.SetTime(fixtures.Noon().Add(time.Hour))
	b.settle()
	if len(b.Blocks()) != 1 {
		t.Errorf("blocks are %+v, want the IPv4 one alone", b.Blocks())
	}
	if got := b.EventsOf(event.ReasonFamilyNotRun); len(got) != 1 || !strings.Contains(got[0], "the agent does not run ipv6, which pool p has") {
		t.Errorf("events %q, want one that names family and pool", got)
	}

	// It starts anew. It may run IPv6 from now on, and wait for addresses; or just be
	// slow. Only the one that does not come up for long is taken for waiting.
	b.r.Agents.Set(state.ReadAgent(fixtures.AgentPod("1", "d", false)), b.Clock.Now())
	b.settle()
	if len(b.Blocks()) != 1 {
		t.Errorf("blocks are %+v a moment after the agent started, want the IPv4 one alone", b.Blocks())
	}
	result, err := b.r.Reconcile(t.Context(), fakeapi.RequestOf("n"))
	if err != nil || result.RequeueAfter != time.Minute {
		t.Errorf("the node is looked at again after %s, %v; want when the agent has been down for a minute", result.RequeueAfter, err)
	}
	b.Clock.SetTime(b.Clock.Now().Add(time.Minute))
	b.settle()
	if !b.has("fd00::/126") {
		t.Errorf("blocks are %+v, want an IPv6 one, for which the agent waits", b.Blocks())
	}
	b.Check("at the end")
}
