package node

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/pacing"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/test/fakeapi"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// firstTwo is a node in crd mode with its first two blocks.
const firstTwo = "blocks 10.0.0.0/30 10.0.0.4/30; lists 10.0.0.0/30 10.0.0.4/30; pool 10.0.0.1 10.0.0.2 10.0.0.5 10.0.0.6"

func TestReconcileFirstBlocks(t *testing.T) {
	b := newBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"))
	if diff := cmp.Diff([]string{"create CiliumNode", "create PodIPBlock", "create PodIPBlock", "patch CiliumNode"}, b.step()); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	b.is(firstTwo)
	b.Check("at the end")
	b.settled()
}

// No decision is made before all informers have synced: until then other nodes' blocks are unknown.
func TestReconcileWaitsUntilAllIsRead(t *testing.T) {
	b := newBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"))
	b.r.Cluster.Ledger = state.NewLedger()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.r.Reconcile(ctx, fakeapi.RequestOf("n")); !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
	if len(b.Calls) > 0 {
		t.Errorf("calls are %v", b.Calls)
	}
}

// Whichever write is the last one, or loses its response, the rules hold and the node ends up in
// its right state.
func TestReconcileSurvivesEveryWrite(t *testing.T) {
	survivesEveryWrite(t, ciliumnode.CRD, 4, firstTwo)
}

// If no other pool selects the node, it keeps its blocks of an invalid pool, and reports its
// shortage.
func TestReconcileUnderAnInvalidPoolAlone(t *testing.T) {
	b := newBed(t, fixtures.Node(), fixtures.Invalidated(fixtures.PodIPPool("p", 1, "10.0.0.0/29")),
		publishing(fixtures.CiliumNode("n", "", "10.0.0.0/30"), "10.0.0.1", "10.0.0.2"), inService("10.0.0.0/30"))
	b.r.Reporter.NodeCondition = true
	b.startAgent()
	b.pods(5)
	b.settle()
	b.is("blocks 10.0.0.0/30; lists 10.0.0.0/30; pool 10.0.0.1 10.0.0.2")
	b.hasShortage(v1alpha1.NodePoolsExhausted)
	b.reportsShortage("no pool that serves this node (p: invalid) has a free block")
}

func TestDefinite(t *testing.T) {
	kind := schema.GroupResource{Resource: "podipblocks"}
	tests := map[string]struct {
		err  error
		want bool
	}{
		"refused by validation":   {apierrors.NewInvalid(schema.GroupKind{Kind: "PodIPBlock"}, "x", nil), true},
		"not allowed":             {apierrors.NewForbidden(kind, "x", nil), true},
		"unknown token":           {apierrors.NewUnauthorized("x"), true},
		"too many requests":       {apierrors.NewTooManyRequests("x", 1), true},
		"no such kind":            {apierrors.NewNotFound(kind, "x"), true},
		"timeout in the server":   {apierrors.NewServerTimeout(kind, "create", 1), false},
		"timeout":                 {apierrors.NewTimeoutError("x", 1), false},
		"internal error":          {apierrors.NewInternalError(fakeapi.ErrLine), false},
		"unavailable":             {apierrors.NewServiceUnavailable("x"), false},
		"the line is dead":        {fakeapi.ErrLine, false},
		"we were asked to stop":   {context.Canceled, false},
		"an unknown status error": {&apierrors.StatusError{ErrStatus: metav1.Status{Code: 599}}, false},
	}
	for name, test := range tests {
		if got := provesFailed(test.err); got != test.want {
			t.Errorf("%s: definite is %t", name, got)
		}
	}
}

// If both families of a node see the same budget, the second one reclaims no more than is left.
func TestDecideForFamiliesThatShareTheBudget(t *testing.T) {
	cn := publishing(fixtures.CiliumNode("n", "", "10.0.0.0/29", "10.0.0.8/29", "fd00::/125", "fd00::8/125"), "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6",
		"10.0.0.9", "10.0.0.10", "10.0.0.11", "10.0.0.12", "10.0.0.13", "10.0.0.14", "fd00::1", "fd00::2", "fd00::3", "fd00::4", "fd00::5", "fd00::6",
		"fd00::9", "fd00::a", "fd00::b", "fd00::c", "fd00::d", "fd00::e")
	cn.Status.IPAM.Used = fixtures.AllocationMap("10.0.0.1", "fd00::1")
	pool := fixtures.DualStack()
	pool.Spec.IPv6.BlockSize = 125
	objects := []client.Object{fixtures.Node(), pool, cn}
	for _, cidr := range cn.Spec.IPAM.PodCIDRs {
		objects = append(objects, fixtures.BlockObject(cidr.String(), ipalloc.InService))
	}
	b := newBed(t, objects...)
	b.agentSince(0)
	b.r.Pacing = pacing.New(10, 0) // one at once
	b.at(time.Hour)
	o := b.observe()
	for _, f := range ipalloc.Families() {
		b.memoryOf(o.uid(), f).IdleSince = []time.Time{fixtures.Noon()}
	}
	var got []netip.Prefix
	for _, p := range b.r.decide(t.Context(), o) {
		got = append(got, reclaims(p.plan)...)
	}
	if len(got) != 1 || got[0] != fixtures.Prefix("10.0.0.8/29") {
		t.Errorf("reclaimed are %v, want one block", got)
	}
}

// Users who may create pods with spec.nodeName cannot push a node to its block limit: the
// kubelet admits at most allocatable.pods of them.
func TestReconcilePodsBeyondMaxPods(t *testing.T) {
	for name, test := range map[string]struct {
		maxPods      string // "": the Node does not say
		want         int    // blocks of two addresses
		withoutAgent bool
	}{
		"a bound":  {maxPods: "3", want: 3}, // 3 pods, and 2 addresses for the agent
		"no bound": {want: 16},              // maxBlocksPerNode
		// As many as with no pod: no agent there can assign these an address.
		"no agent": {want: 2, withoutAgent: true},
	} {
		t.Run(name, func(t *testing.T) {
			node := fixtures.Node()
			if test.maxPods != "" {
				node.Status.Allocatable = corev1.ResourceList{corev1.ResourcePods: resource.MustParse(test.maxPods)}
			}
			b := newBed(t, node, fixtures.PodIPPool("p", 1, "10.0.0.0/24"))
			if !test.withoutAgent {
				b.startAgent()
			}
			b.pods(500)
			b.settle()
			b.Check("after the flood")
			if got := len(b.Blocks()); got != test.want {
				t.Errorf("%d blocks, want %d", got, test.want)
			}
		})
	}
}
