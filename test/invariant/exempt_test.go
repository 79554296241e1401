package invariant_test

import (
	"testing"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/google/go-cmp/cmp"

	"github.com/cilium-pool/cilium-pool-operator/test/invariant"
)

// TestExemptionIsNarrow checks that an exemption excuses its rule, its subject and its text, in
// versions written while it is active, and no others.
func TestExemptionIsNarrow(t *testing.T) {
	w := newWorld(t)
	checker := w.watch(invariant.Options{})
	w.cilium("b", func(cn *ciliumv2.CiliumNode) { publish(cn, "172.16.0.2") })
	foreign := func(node, ip string) {
		w.cilium(node, func(cn *ciliumv2.CiliumNode) { unpublish(cn, ip) })
	}
	exempt := invariant.Exemption{Rule: 7, Subject: "CiliumNode a", Text: "172.16.0.1 left the pool"}
	end, err := checker.Exempt(w.Ctx, exempt)
	w.Must(err)
	foreign("a", "172.16.0.1")                                                                   // excused
	foreign("b", "172.16.0.2")                                                                   // of another subject
	w.cilium("a", func(cn *ciliumv2.CiliumNode) { unpublish(cn, "10.9.0.1") })                   // against another rule
	w.cilium("a", func(cn *ciliumv2.CiliumNode) { listCIDRs(cn, "10.9.0.0/30", "10.9.0.8/30") }) // in another way, and more
	w.Must(end(w.Ctx))
	w.cilium("a", func(cn *ciliumv2.CiliumNode) { publish(cn, "172.16.0.1") })
	foreign("a", "172.16.0.1") // after its end
	w.Must(checker.Sync(w.Ctx))
	want := []string{"7 CiliumNode b", "2 CiliumNode a", "3 CiliumNode a", "7 CiliumNode a", "7 CiliumNode a"}
	if diff := cmp.Diff(want, briefly(checker.Violations())); diff != "" {
		t.Errorf("violations (-want +got):\n%s\n%v", diff, checker.Violations())
	}
}

// TestExemptionsThatExcuseNothing checks that they are errors, as are exemptions without a
// bound.
func TestExemptionsThatExcuseNothing(t *testing.T) {
	w := newWorld(t)
	checker := w.watch(invariant.Options{})
	for _, e := range []invariant.Exemption{{}, {Rule: 1, Subject: "CiliumNode a"}, {Rule: 1, Text: "x"}, {Subject: "CiliumNode a", Text: "x"}} {
		if _, err := checker.Exempt(w.Ctx, e); err == nil {
			t.Errorf("%+v is in force", e)
		}
	}
	end, err := checker.Exempt(w.Ctx, invariant.Exemption{Rule: 7, Subject: "CiliumNode a", Text: "left the pool"})
	w.Must(err)
	if end(w.Ctx) == nil {
		t.Error("an exemption that excused nothing ends without an error")
	}
}
