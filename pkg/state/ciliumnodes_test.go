package state

import (
	"testing"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// A CiliumNode that comes between the look at its node and what follows from that
// look is not forgotten: what it names would be given to others.
func TestLedgerForgetsNoCiliumNodeThatIsThere(t *testing.T) {
	l := ReadyLedger()
	l.UpsertCiliumNode(ciliumnode.ToStored(fixtures.CiliumNode("n", "1", "10.0.0.0/30")))
	l.RemoveCiliumNode(ciliumnode.ToStored(fixtures.CiliumNode("n", "2", "10.0.0.0/30")))
	if l.CiliumNode("n") != nil {
		t.Fatal("it is not gone")
	}
	l.UpsertCiliumNode(ciliumnode.ToStored(fixtures.CiliumNode("n", "3", "10.0.0.0/30"))) // its agent has just made it
	l.AssumeCiliumNode("n", "4")
	if l.ForgetCiliumNode("n") {
		t.Error("something it names is no longer taken")
	}
	if l.CiliumNode("n") == nil {
		t.Error("it is forgotten")
	}
	if !l.Behind("n", "3") {
		t.Error("this process's last write to it is forgotten")
	}
	if n := l.Free(ipalloc.Cut{Ranges: fixtures.Prefixes("10.0.0.0/30"), BlockBits: 30}); n != 0 {
		t.Errorf("%d blocks are free, want none", n)
	}
}

// That a CiliumNode was restored is known until it is gone for good, and of no other
// CiliumNode with its name.
func TestLedgerForgetsRestored(t *testing.T) {
	l, view := NewLedger(), &ciliumnode.View{Name: "n", UID: "u"}
	l.MarkRestored("n", "u")
	if !l.Restored(view) || l.Restored(&ciliumnode.View{Name: "n", UID: "v"}) {
		t.Error("restored is the other one")
	}
	l.ForgetCiliumNode("n")
	if l.Restored(view) {
		t.Error("it is remembered after it has gone for good")
	}
}
