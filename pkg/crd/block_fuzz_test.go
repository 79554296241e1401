package crd_test

import (
	"net/netip"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// FuzzBlockFrom reads any block. An accepted block names its CIDR in the only valid notation.
// Of a rejected one, the addresses are read if possible, and never others than the object
// names.
func FuzzBlockFrom(f *testing.F) {
	f.Add("10.20.0.0-27", "10.20.0.0/27", "p", "n")
	f.Add("fd00--40-122", "fd00::40/122", "p", "n")
	f.Add("10.0.0.1-27", "10.0.0.1/27", "p", "")
	f.Add("FD00--122", "FD00::/122", "", "n")
	f.Add("0--ffff-10.0.0.0-122", "::ffff:10.0.0.0/122", "p", "n")
	f.Add("0--ffff-0.0.0.0-100", "::ffff:0.0.0.1/100", "p", "n")
	f.Add("10.0.0.0-08", "10.0.0.0/08", "p", "n")
	f.Add("fe80---64", "fe80::%eth0/64", "p", "n")
	f.Fuzz(func(t *testing.T, name, cidr, pool, node string) {
		b, err := crd.BlockFrom(&v1alpha1.PodIPBlock{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       v1alpha1.PodIPBlockSpec{CIDR: cidr, PoolName: pool, NodeName: node},
		})
		named, parses := netip.ParsePrefix(cidr)
		switch {
		case b.CIDR.IsValid() && (parses != nil || b.CIDR != named.Masked()):
			t.Errorf("of %q is read %s", cidr, b.CIDR)
		case b.CIDR.IsValid() && b.CIDR.Addr().Is4In6():
			t.Errorf("%q is read as %s, which agents take for IPv4", cidr, b.CIDR)
		case err != nil:
			return
		case !b.CIDR.IsValid() || b.CIDR.String() != cidr || crd.BlockName(b.CIDR) != name:
			t.Errorf("block %q of %q is accepted as %s", name, cidr, b.CIDR)
		case b.Pool == "" || b.Node == "":
			t.Errorf("a block of pool %q and node %q is accepted", b.Pool, b.Node)
		}
	})
}

// FuzzBlockPhases takes a block through any phases and reads back the result: at most one
// condition, of the last phase, dated no earlier than the phase began and no later than a second
// after.
func FuzzBlockPhases(f *testing.F) {
	f.Add([]byte{1, 2, 0, 1, 1, 2, 2}, int64(300_000_000))
	f.Add([]byte{2, 1, 0, 0}, int64(0))
	f.Add([]byte{5, 4, 3, 10, 255}, int64(999_999_999))
	reasons := []expand.Reason{expand.Reclaim, expand.Deleted, expand.NodeGone}
	f.Fuzz(func(t *testing.T, steps []byte, nanos int64) {
		obj := crd.NewBlock(netip.MustParsePrefix("10.0.0.0/27"), "p", "n", "u")
		now := noon().Add(time.Duration(nanos % int64(time.Hour)))
		entered := now
		phase, reason := ipalloc.InService, expand.None
		for _, step := range steps {
			now = now.Add(time.Duration(step) * 7 * time.Millisecond)
			was := phase
			phase, reason = ipalloc.Phase(step%3), reasons[int(step/3)%len(reasons)]
			if phase != was {
				entered = now
			}
			if phase == ipalloc.InService {
				reason = expand.None
			}
			crd.SetBlockPhase(obj, phase, reason, "why", now)
		}
		b, err := crd.BlockFrom(obj)
		if err != nil {
			t.Fatal(err)
		}
		if b.Phase != phase || b.Reason != reason {
			t.Errorf("is %s for %q, want %s for %q", b.Phase, b.Reason, phase, reason)
		}
		if left := len(obj.Status.Conditions); left > 1 || left == 0 && phase != ipalloc.InService {
			t.Errorf("conditions %v in phase %s", obj.Status.Conditions, phase)
		}
		if phase != ipalloc.InService && (b.Since.Before(entered) || b.Since.Sub(entered) >= time.Second) {
			t.Errorf("in its phase since %s, and entered it at %s", b.Since, entered)
		}
	})
}
