package pool

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// hour returns n hours after noon.
func hour(n int) time.Time { return fixtures.Noon().Add(time.Duration(n) * time.Hour) }

// claimed returns a block of node n that has been in service since an hour.
func claimed(cidr, node string, since int) crd.Block {
	b := fixtures.Block(cidr, "p", node, 1)
	b.Created = hour(since)
	return b
}

// coolingDown returns the same block, cooling down since an hour.
func coolingDown(b crd.Block, since int, reason expand.Reason) crd.Block {
	b = fixtures.At(b, 2, ipalloc.CoolingDown)
	b.Since, b.Reason = hour(since), reason
	return b
}

func cameBack(cidr, node string, since, until int, reason string) v1alpha1.ReturnedBlock {
	return v1alpha1.ReturnedBlock{
		CIDR: cidr, NodeName: node, Since: metav1.NewTime(hour(since)), Until: metav1.NewTime(hour(until)), Reason: reason,
	}
}

// many returns returned blocks, one per hour, starting at hour 0.
func many(n int) []v1alpha1.ReturnedBlock {
	var out []v1alpha1.ReturnedBlock
	for i := range n {
		out = append(out, cameBack(fmt.Sprintf("10.1.%d.0/30", i), "n", -1, i, "Returned"))
	}
	return out
}

func TestNoteReturned(t *testing.T) {
	first := claimed("10.0.0.0/30", "a", 1)
	listed := cameBack("10.0.0.0/30", "a", 1, 3, "Returned")
	full := maxReturned
	tests := map[string]struct {
		was       []v1alpha1.ReturnedBlock
		wasSince  *metav1.Time
		blocks    []crd.Block
		want      []v1alpha1.ReturnedBlock
		wantSince time.Time
	}{
		"the record begins": {
			blocks: []crd.Block{first}, wantSince: hour(9),
		},
		"a block comes back": {
			blocks: []crd.Block{coolingDown(first, 3, expand.Returned)},
			want:   []v1alpha1.ReturnedBlock{listed}, wantSince: hour(9),
		},
		"its object goes": {
			was: []v1alpha1.ReturnedBlock{listed}, wasSince: since(0),
			want: []v1alpha1.ReturnedBlock{listed}, wantSince: hour(0),
		},
		"another node claims it": {
			was: []v1alpha1.ReturnedBlock{listed}, wasSince: since(0),
			blocks: []crd.Block{claimed("10.0.0.0/30", "b", 4)},
			want:   []v1alpha1.ReturnedBlock{listed}, wantSince: hour(0),
		},
		"and gives it back": {
			was: []v1alpha1.ReturnedBlock{listed}, wasSince: since(0),
			blocks:    []crd.Block{coolingDown(claimed("10.0.0.0/30", "b", 4), 5, expand.NodeGone)},
			want:      []v1alpha1.ReturnedBlock{listed, cameBack("10.0.0.0/30", "b", 4, 5, "NodeGone")},
			wantSince: hour(0),
		},
		"a Node that was gone is back, or this process lags": {
			was: []v1alpha1.ReturnedBlock{listed}, wasSince: since(0),
			blocks: []crd.Block{first}, want: []v1alpha1.ReturnedBlock{listed}, wantSince: hour(0),
		},
		"it cools down since earlier, as a process that lags believes": {
			was: []v1alpha1.ReturnedBlock{listed}, wasSince: since(0),
			blocks: []crd.Block{coolingDown(first, 2, expand.NodeGone)}, want: []v1alpha1.ReturnedBlock{listed}, wantSince: hour(0),
		},
		"and goes again": {
			was: []v1alpha1.ReturnedBlock{listed}, wasSince: since(0),
			blocks: []crd.Block{coolingDown(first, 6, expand.NodeGone)},
			want:   []v1alpha1.ReturnedBlock{cameBack("10.0.0.0/30", "a", 1, 6, "NodeGone")}, wantSince: hour(0),
		},
		"the oldest makes room": {
			was: many(full), wasSince: since(-1),
			blocks:    []crd.Block{coolingDown(first, full, expand.Returned)},
			want:      append(many(full)[1:], cameBack("10.0.0.0/30", "a", 1, full, "Returned")),
			wantSince: hour(0),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := v1alpha1.PodIPPoolHistory{ReturnedBlocks: test.was, ReturnedBlocksSince: test.wasSince}
			noteAll(&s, hour(9), test.blocks...)
			if diff := cmp.Diff(test.want, s.ReturnedBlocks, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("returned (-want +got):\n%s", diff)
			}
			if s.ReturnedBlocksSince == nil || !s.ReturnedBlocksSince.Time.Equal(test.wantSince) {
				t.Errorf("it goes back to %v, want %v", s.ReturnedBlocksSince, test.wantSince)
			}
		})
	}
}

func since(n int) *metav1.Time {
	at := metav1.NewTime(hour(n))
	return &at
}

// noteAll records which blocks of a pool cool down.
func noteAll(s *v1alpha1.PodIPPoolHistory, now time.Time, blocks ...crd.Block) {
	ledger := state.ReadyLedger(blocks...)
	usage := usageOf(nil, ledger.SizeInNodes("p"), ledger.PoolBlocks("p"), ledger.Free)
	noteReturned(s, usage.coolingDown, now)
}

// It makes no difference whether blocks are recorded together or one after the other, in any
// order.
func TestNoteReturnedInAnyOrder(t *testing.T) {
	blocks := manyCoolingDown(3 * maxReturned)
	again := blocks[len(blocks)-1] // it was in service meanwhile, and cools down a second time
	again.Since = again.Since.Add(time.Minute)
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 1))
		random.Shuffle(len(blocks), func(i, j int) { blocks[i], blocks[j] = blocks[j], blocks[i] })
		together := v1alpha1.PodIPPoolHistory{ReturnedBlocks: many(maxReturned), ReturnedBlocksSince: since(-1)}
		oneByOne := *together.DeepCopy()
		noteReturned(&together, append(slices.Clone(blocks), again), hour(9))
		for i := range blocks {
			noteReturned(&oneByOne, blocks[i:i+1], hour(9))
		}
		noteReturned(&oneByOne, []crd.Block{again}, hour(9))
		if diff := cmp.Diff(oneByOne, together); diff != "" {
			t.Fatalf("seed %d, one by one (-) and together (+):\n%s", seed, diff)
		}
	}
}

// More blocks may cool down than are listed. Another reconcile must change nothing, nor claim
// that the record goes back further than it does.
func TestNoteReturnedAtRest(t *testing.T) {
	var blocks []crd.Block
	for i := range 2 * maxReturned {
		cidr := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i), 0}), 30)
		blocks = append(blocks, coolingDown(claimed(cidr.String(), "n", 0), i%7, expand.NodeGone))
	}
	s := v1alpha1.PodIPPoolHistory{ReturnedBlocks: many(maxReturned), ReturnedBlocksSince: since(-1)}
	noteAll(&s, hour(9), blocks...)
	before := s.DeepCopy()
	slices.Reverse(blocks)
	noteAll(&s, hour(10), blocks...)
	if !equality.Semantic.DeepEqual(before, &s) {
		t.Errorf("the history drifts:\n%s", cmp.Diff(before, &s))
	}
	if len(s.ReturnedBlocks) != maxReturned || s.ReturnedBlocks[0].Until.Before(s.ReturnedBlocksSince) {
		t.Errorf("%d are listed, from %v on; the record says it goes back to %v", len(s.ReturnedBlocks), s.ReturnedBlocks[0].Until, s.ReturnedBlocksSince)
	}
}
