package state_test

import (
	"errors"
	"testing"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// Addresses that a CiliumNode names stay taken when their block's object is removed, even
// if podCIDRs does not list the block and the CiliumNode does not change.
func TestLedgerKeepsWhatIsNamedOfARemovedBlock(t *testing.T) {
	removed := fixtures.Block("10.0.0.0/30", "p", "n", 1)
	for name, tear := range map[string]func(*state.Ledger){
		"the watch shows that it is gone": func(l *state.Ledger) { l.Remove(fixtures.At(removed, 3, ipalloc.InService)) },
		"seen live to be gone":            func(l *state.Ledger) { l.Remove(removed) },
		"recreated, and gone again": func(l *state.Ledger) {
			again := fixtures.Block("10.0.0.0/30", "p", "m", 4)
			l.Upsert(again)
			l.Remove(again)
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := state.ReadyLedger(removed)
			cn := fixtures.CiliumNode("n", "2")
			cn.Spec.IPAM.Pool = fixtures.AllocationMap("10.0.0.1", "10.0.0.2")
			l.UpsertCiliumNode(ciliumnode.NewView(cn))
			tear(l)
			pools := []*crd.Pool{fixtures.PoolOf(t, fixtures.PodIPPool("p", 1, "10.0.0.0/30"))}
			if cidr, _, err := l.Claim(ipalloc.IPv4, "m", "", pools); !errors.Is(err, ipalloc.ErrExhausted) {
				t.Errorf("claimed %s, %v; want that nothing is left", cidr, err)
			}
			if !l.UpsertCiliumNode(ciliumnode.NewView(fixtures.CiliumNode("n", "5"))) {
				t.Error("that nothing is named any more changes nothing")
			}
			if _, _, err := l.Claim(ipalloc.IPv4, "m", "", pools); err != nil {
				t.Errorf("once nothing is named: %v", err)
			}
		})
	}
}

// A forgotten CiliumNode keeps no CIDR taken, with any later removals.
func TestLedgerKeepsNothingForAForgottenNode(t *testing.T) {
	removed := fixtures.Block("10.0.0.0/30", "p", "n", 1)
	l := state.ReadyLedger(removed)
	cn := fixtures.CiliumNode("n", "2")
	cn.Spec.IPAM.Pool = fixtures.AllocationMap("10.0.0.1")
	l.UpsertCiliumNode(ciliumnode.NewView(cn))
	l.RemoveCiliumNode(ciliumnode.NewView(cn))
	l.ForgetCiliumNode("n")
	l.Remove(removed)
	if _, _, err := l.Claim(ipalloc.IPv4, "m", "", []*crd.Pool{fixtures.PoolOf(t, fixtures.PodIPPool("p", 1, "10.0.0.0/30"))}); err != nil {
		t.Error(err)
	}
}
