package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/config"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/common"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/test/fakeapi"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// pages answers lists of blocks page by page, as the API server does.
type pages struct {
	client.Reader
	t      *testing.T
	blocks []string // of each page
}

func (p pages) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	o := (&client.ListOptions{}).ApplyOptions(opts)
	if o.Limit != blocksPerPage {
		p.t.Errorf("lists %d at a time, want %d", o.Limit, blocksPerPage)
	}
	page, at := list.(*v1alpha1.PodIPBlockList), len(o.Continue)
	for _, cidr := range strings.Fields(p.blocks[at]) {
		page.Items = append(page.Items, *inService(cidr))
	}
	if at+1 < len(p.blocks) {
		page.Continue = o.Continue + "x"
	}
	return nil
}

// Blocks from all pages enter the ledger if they overlap one of the CIDRs, and no others do.
func TestReadOverlapping(t *testing.T) {
	b := newBed(t)
	b.r.Blocks.Live = pages{t: t, blocks: []string{"10.0.0.0/30 10.0.0.4/30", "10.0.0.8/30", "", "10.0.0.12/30"}}
	b.must(b.r.Blocks.readOverlapping(t.Context(), fixtures.Prefixes("10.0.0.4/32", "10.0.0.12/32")))
	if diff := cmp.Diff(fixtures.Prefixes("10.0.0.4/30", "10.0.0.12/30"), crd.CIDRs(b.Ledger.NodeBlocks("n")), fixtures.CompareNetip()); diff != "" {
		t.Errorf("blocks taken in (-want +got):\n%s", diff)
	}
}

var errDenied = apierrors.NewForbidden(things, "x", errors.New("denied request: not here"))

// A write that fails, for good or for long, stops only its dependents.
func TestReconcileCarriesOn(t *testing.T) {
	marked := bare()
	marked.Status.IPAM.ReleaseIPs = map[string]ipamtypes.IPReleaseStatus{"10.9.9.9": "do-not-release"}
	unfinalized := inService("10.0.0.4/30")
	unfinalized.Finalizers = nil
	started := bare()
	started.Spec.BootID = "boot"
	first := fixtures.PodIPPool("first", 1, "10.1.0.0/28")
	first.Spec.Priority = 1
	one, pair := []string{"10.0.0.1", "10.0.0.2"}, []string{"10.0.1.1", "10.0.1.2"}
	tests := map[string]struct {
		objects []client.Object
		refuse  []string
		lost    string // the write that never gets an answer
		want    []string
		lasts   bool   // the failure remains
		lacks   string // with pods that wait
	}{
		"the other family's claim": {
			[]client.Object{fixtures.DualStack(), bare(), inService("10.0.0.0/30"), inService("10.0.0.4/30")}, []string{"create PodIPBlock"}, "",
			[]string{"10.0.0.1", "10.0.0.2", "10.0.0.5", "10.0.0.6"}, true, "ipv6: the node needs more addresses, and the operator cannot give them: creating block fd00::",
		},
		"a claim that is never answered": {
			[]client.Object{fixtures.PodIPPool("p", 1, "10.0.0.0/28"), bare(), inService("10.0.0.0/30")}, nil, "create PodIPBlock",
			one, true, "creating block 10.0.0.4/30",
		},
		"one CIDR": {
			[]client.Object{fixtures.PodIPPool("p", 1, "10.0.0.0/28"), bare()}, []string{"create 10.0.0.0-30", "create 10.0.0.4-30"}, "",
			[]string{"10.0.0.10", "10.0.0.13", "10.0.0.14", "10.0.0.9"}, false, "",
		},
		"one pool": {
			[]client.Object{first, fixtures.PodIPPool("p", 1, "10.0.0.0/29"), started}, []string{"create 10.1.0.0-30", "create 10.1.0.4-30", "create 10.1.0.8-30", "create 10.1.0.12-30"}, "",
			[]string{"10.0.0.1", "10.0.0.2", "10.0.0.5", "10.0.0.6"}, false, "",
		},
		"the handshake": {
			[]client.Object{fixtures.PodIPPool("p", 1, "10.0.0.0/30"), marked, inService("10.0.0.0/30")}, []string{"patch CiliumNode status"}, "",
			one, true, "",
		},
		"a drain": {
			[]client.Object{fixtures.Draining(v1alpha1.Maintenance{}), publishing(fixtures.CiliumNode("n", "", "10.0.0.0/30"), one...), inService("10.0.0.0/30"), inService("10.0.1.0/30")},
			[]string{"update PodIPBlock status"}, "", slices.Concat(one, pair, []string{"10.0.1.5", "10.0.1.6"}), true, "",
		},
		"a block to restore": {
			[]client.Object{fixtures.PodIPPool("p", 1, "10.0.0.0/28"), publishing(fixtures.CiliumNode("n", "", "10.0.0.4/30"), "10.0.0.5"), inService("10.0.0.0/30"), inService("10.0.0.8/30")},
			[]string{"create 10.0.0.4-30"}, "", []string{"10.0.0.1", "10.0.0.10", "10.0.0.2", "10.0.0.5", "10.0.0.9"}, true, "",
		},
		"a finalizer": {
			[]client.Object{fixtures.PodIPPool("p", 1, "10.0.0.0/29"), bare(), inService("10.0.0.0/30"), unfinalized}, nil, "",
			one, false, "block 10.0.0.4/30 lacks",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, append(test.objects, fixtures.Node())...)
			b.r.Reporter.NodeCondition = true
			if test.lacks != "" {
				b.startAgent() // pods count once it is there
			}
			b.pods(5 * min(len(test.lacks), 1))
			b.Refuse = map[string]error{}
			for _, write := range test.refuse {
				b.Refuse[write] = errDenied
			}
			b.Fate = func(write string) fakeapi.Fate {
				if write == test.lost {
					return fakeapi.Refused
				}
				return fakeapi.Done
			}
			lasted := false
			for range 4 {
				result, err := b.r.Reconcile(t.Context(), fakeapi.RequestOf("n"))
				lasted = err != nil || result.RequeueAfter == common.WatchRetry
				b.Watch()
				b.Clock.SetTime(b.Clock.Now().Add(common.MaxBackoff))
			}
			if got := b.published(); !slices.Equal(got, test.want) || lasted != test.lasts {
				t.Errorf("published %v, want %v; the failure lasts: %t", got, test.want, lasted)
			}
			if test.lacks != "" {
				b.hasShortage(reasonWriteFails)
				b.reportsShortage(test.lacks)
			}
		})
	}
}

// A lost race beside a refusal does not hide the refusal, which lasts.
func TestRefusalBesideALostRaceLasts(t *testing.T) {
	b := newBed(t, fixtures.Node())
	raced, refused := apierrors.NewConflict(things, "x", nil), common.RefusalOf("PodIPBlock", "x", "create", errDenied)
	for name, test := range map[string]struct {
		err  error
		want bool
	}{
		"a lost race":            {raced, false},
		"a refusal":              {refused, true},
		"a refusal, then a race": {errors.Join(refused, raced), true},
		"a race, then a refusal": {errors.Join(raced, fmt.Errorf("claiming: %w", refused)), true},
	} {
		if got := (&nodeMemory{}).noteFailure(test.err, b.Clock.Now()); got != test.want {
			t.Errorf("%s lasts: %t", name, got)
		}
	}
}

// A claim that an admission policy denies tries a few other blocks, of each pool. One that a role
// forbids tries none.
func TestRefusedClaimTriesOthers(t *testing.T) {
	for why, want := range map[string]int{
		`User "operator" cannot create resource "podipblocks"`:       1,
		"ValidatingAdmissionPolicy 'a' denied request: not this one": 2 * refusedTries,
	} {
		b := newBed(t, fixtures.Node(), carrier(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"), fixtures.PodIPPool("q", 2, "10.0.1.0/28"))
		b.Refuse = map[string]error{"create PodIPBlock": apierrors.NewForbidden(things, "x", errors.New(why))}
		calls, err := b.reconcile()
		calls = slices.DeleteFunc(calls, func(call string) bool { return call != "create PodIPBlock" })
		if len(calls) != want || err == nil {
			t.Errorf("%s: %d creates, want %d: %v", why, len(calls), want, err)
		}
	}
}

// A Node gets the taint also if its condition cannot be written.
func TestRefusedConditionDoesNotStopTheTaint(t *testing.T) {
	b := newBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/30"), foreignBlock("10.0.0.0/30"))
	b.r.Cluster.ShortageTaint, b.r.Reporter.NodeCondition = "short", true
	b.startAgent()
	b.r.Cluster.Pods.Set(podOn("a"), fixtures.Noon())
	b.Refuse = map[string]error{"patch Node status": errDenied}
	if _, err := b.reconcile(); !errors.Is(err, errDenied) {
		t.Fatalf("the condition is not refused, but %v", err)
	}
	if !slices.ContainsFunc(b.node().Spec.Taints, func(t corev1.Taint) bool { return t.Key == "short" }) {
		t.Error("the Node has no taint")
	}
}

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
		"addresses":   {bare, "patch CiliumNode", `write "publish" of CiliumNode n: `},
		"a new block": {bare, "create PodIPBlock", `write "create" of PodIPBlock 10.0.0.0-30: `},
		"a new CiliumNode": {func(t *testing.T) *bed {
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
			if len(got) != 1 || !strings.Contains(got[0], test.want) || !strings.Contains(got[0], "not[1m today. Change what forbids it") {
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
