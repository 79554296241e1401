package node

import (
	"errors"
	"strings"
	"testing"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cilium-pool/cilium-pool-operator/pkg/config"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/common"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// carrier is the CiliumNode of node n, without addresses.
func carrier() *ciliumv2.CiliumNode {
	cn := fixtures.CiliumNode("n", "")
	cn.UID = "cn-uid"
	return cn
}

var things = schema.GroupResource{Resource: "things"}

// A write that the API server refuses is reported once, however often it is tried, and so is
// its end. A conflict does not end it.
func TestRefusedWriteIsShown(t *testing.T) {
	bare := func(t *testing.T) *bed {
		return newBed(t, fixtures.Node(), carrier(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"))
	}
	tests := map[string]struct {
		bed    func(*testing.T) *bed
		refuse string
		want   string
	}{
		"addresses":               {bare, "patch CiliumNode", `write "publish" of CiliumNode n: `},
		"a block that is to come": {bare, "create PodIPBlock", `write "create" of PodIPBlock 10.0.0.0-30: `},
		"a CiliumNode that is to come": {func(t *testing.T) *bed {
			return newBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"))
		}, "create CiliumNode", `write "create" of CiliumNode n: `},
		"a block": {resting, "patch PodIPBlock", `write "finalizer" of PodIPBlock 10.0.0.12-30: `},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := test.bed(t)
			no := apierrors.NewForbidden(things, "x", errors.New("not\x1b[1m today"))
			b.Refuse = map[string]error{test.refuse: no}
			var got []string
			for range 5 {
				if _, err := b.reconcile(); !errors.Is(err, no) {
					t.Fatalf("the write is not refused, but %v", err)
				}
				got = append(got, b.EventsOf(config.ReasonWriteRefused)...)
			}
			if len(got) != 1 || !strings.Contains(got[0], test.want) || !strings.Contains(got[0], "not[1m today. Grant") {
				t.Fatalf("refused five times: %q, want one with %q", got, test.want)
			}
			b.Refuse[test.refuse] = apierrors.NewConflict(things, "x", errors.New("changed"))
			if _, err := b.reconcile(); err != nil || len(b.EventsOf(config.ReasonWriteAccepted)) > 0 {
				t.Errorf("a conflict ends it, or %v", err)
			}
			b.Refuse = nil
			b.step()
			if ends := b.EventsOf(config.ReasonWriteAccepted); len(ends) != 1 {
				t.Errorf("its end: %q", ends)
			}
		})
	}
}

// It is reported on the block to be changed, or else on the Node: that is where users look.
func TestRefusedWriteIsShownOn(t *testing.T) {
	b := resting(t)
	refused := func(kind, name string) *common.Refusal { return &common.Refusal{Kind: kind, Name: name} }
	block, ok := b.r.Reporter.concerned(t.Context(), "n", refused("PodIPBlock", "10.0.0.12-30")).(*v1alpha1.PodIPBlock)
	if !ok || block.Name != "10.0.0.12-30" || block.UID != "uid-10.0.0.12/30" {
		t.Errorf("a write of a block is shown on %v", block)
	}
	for _, other := range []*common.Refusal{refused("PodIPBlock", "10.0.0.8-30"), refused("CiliumNode", "n"), refused("Node", "n")} {
		if node, ok := b.r.Reporter.concerned(t.Context(), "n", other).(*corev1.Node); !ok || node.Name != "n" || node.UID != "node-uid" {
			t.Errorf("a write of %s %s is shown on %v", other.Kind, other.Name, node)
		}
	}
}
