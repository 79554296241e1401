package controller

import (
	"testing"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// A CiliumNode that comes between the look at its node and what follows from that
// look is not forgotten: what it names would be given to others.
func TestLedgerForgetsNoCiliumNodeThatIsThere(t *testing.T) {
	l := readyLedger()
	l.ObservedNode(ciliumnode.Keep(ciliumNode("n", "1", "10.0.0.0/30")))
	l.GoneNode(ciliumnode.Keep(ciliumNode("n", "2", "10.0.0.0/30")))
	if l.Node("n") != nil {
		t.Fatal("it is not gone")
	}
	l.ObservedNode(ciliumnode.Keep(ciliumNode("n", "3", "10.0.0.0/30"))) // its agent has just made it
	l.WroteNode("n", "4")
	if l.ForgetNode("n") {
		t.Error("something it names is no longer taken")
	}
	if l.Node("n") == nil {
		t.Error("it is forgotten")
	}
	if !l.Behind("n", "3") {
		t.Error("this process's last write to it is forgotten")
	}
	if n := l.Free(ipalloc.Cut{Ranges: prefixes("10.0.0.0/30"), BlockBits: 30}); n != 0 {
		t.Errorf("%d blocks are free, want none", n)
	}
}
