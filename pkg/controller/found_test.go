package controller

import (
	"errors"
	"testing"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// Addresses that a CiliumNode names stay taken when their block's object goes,
// though podCIDRs does not list it and the CiliumNode does not change.
func TestLedgerKeepsWhatIsNamedOfATornBlock(t *testing.T) {
	torn := block("10.0.0.0/30", "p", "n", 1)
	for name, tear := range map[string]func(*Ledger){
		"the watch shows that it is gone": func(l *Ledger) { l.Gone(at(torn, 3, ipalloc.InService)) },
		"seen live to be gone":            func(l *Ledger) { l.Deleted(torn) },
		"made again, and gone again": func(l *Ledger) {
			again := block("10.0.0.0/30", "p", "m", 4)
			l.Observed(again)
			l.Gone(again)
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := readyLedger(torn)
			cn := ciliumNode("n", "2")
			cn.Spec.IPAM.Pool = allocationMap("10.0.0.1", "10.0.0.2")
			l.ObservedNode(ciliumnode.Keep(cn))
			tear(l)
			pools := []*crd.Pool{poolOf(t, podIPPool("p", 1, "10.0.0.0/30"))}
			if cidr, _, err := l.Claim(ipalloc.IPv4, "m", pools); !errors.Is(err, ipalloc.ErrExhausted) {
				t.Errorf("claimed %s, %v; want that nothing is left", cidr, err)
			}
			if !l.ObservedNode(ciliumnode.Keep(ciliumNode("n", "5"))) {
				t.Error("that nothing is named any more changes nothing")
			}
			if _, _, err := l.Claim(ipalloc.IPv4, "m", pools); err != nil {
				t.Errorf("once nothing is named: %v", err)
			}
		})
	}
}

// A CiliumNode that is gone for good keeps nothing, whatever goes later.
func TestLedgerKeepsNothingForAForgottenNode(t *testing.T) {
	torn := block("10.0.0.0/30", "p", "n", 1)
	l := readyLedger(torn)
	cn := ciliumNode("n", "2")
	cn.Spec.IPAM.Pool = allocationMap("10.0.0.1")
	l.ObservedNode(ciliumnode.Keep(cn))
	l.GoneNode(ciliumnode.Keep(cn))
	l.ForgetNode("n")
	l.Gone(torn)
	if _, _, err := l.Claim(ipalloc.IPv4, "m", []*crd.Pool{poolOf(t, podIPPool("p", 1, "10.0.0.0/30"))}); err != nil {
		t.Error(err)
	}
}
