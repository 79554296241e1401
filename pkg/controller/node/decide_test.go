package node

import (
	"testing"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/pacing"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// If two nodes see the same budget and the first one uses it up, the second one reclaims no block.
func TestDecideAfterAnotherTookTheBudget(t *testing.T) {
	for name, taken := range map[string]bool{"the budget is there": false, "another node was faster": true} {
		t.Run(name, func(t *testing.T) {
			cn := fixtures.Publishing(fixtures.CiliumNode("n", "", "10.0.0.0/29", "10.0.0.8/29"), "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6",
				"10.0.0.9", "10.0.0.10", "10.0.0.11", "10.0.0.12", "10.0.0.13", "10.0.0.14")
			cn.Status.IPAM.Used = fixtures.AllocationMap("10.0.0.1")
			b := newBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), cn, fixtures.BlockObject("10.0.0.0/29", ipalloc.InService), fixtures.BlockObject("10.0.0.8/29", ipalloc.InService))
			b.r.Agents.Set(state.ReadAgent(fixtures.AgentPod("1", "c", true)), fixtures.Noon())
			b.r.Pacing = pacing.New(10, 0) // one at once
			b.Clock.SetTime(fixtures.Noon().Add(time.Hour))
			o, err := b.r.observe(t.Context(), "n")
			if err != nil {
				t.Fatal(err)
			}
			now := b.Clock.Now()
			b.r.memory.remember(seen("n", o.uid()), &state.Share{Family: ipalloc.IPv4}, expand.Memory{IdleSince: []time.Time{fixtures.Noon()}})
			if taken && !b.r.Pacing.Take(&crd.Pool{Name: "p"}, 1, now) {
				t.Fatal("there is no budget")
			}
			want := 1
			if taken {
				want = 0
			}
			if got := reclaims(b.r.decide(t.Context(), o)[0].plan); got != want {
				t.Errorf("%d blocks are reclaimed, want %d", got, want)
			}
		})
	}
}
