package informer

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// counted is a feed with pools p0, p1 and so on, each 10.i.0.0/16, that counts its queued items.
// Node w0 waits for blocks of p0, and so on.
type counted struct {
	*Feed
	nodes, pools []string
}

func newCounted(t testing.TB, pools int) *counted {
	f := &counted{Feed: newBed()}
	for i := range pools {
		obj := fixtures.PodIPPool(fmt.Sprintf("p%d", i), i+1, fmt.Sprintf("10.%d.0.0/16", i))
		obj.Spec.IPv4.BlockSize = 24
		f.Pools.Set(obj)
		f.Awaiting.Set(fmt.Sprintf("w%d", i), true, true, [2][]*crd.Pool{{f.Pools.Get(obj.Name)}})
	}
	f.Ledger.Changed = f.SpaceChanged
	f.queues[NodeQueue] = listening{add: func(name string) { f.nodes = append(f.nodes, name) }}
	f.queues[PoolQueue] = listening{add: func(name string) { f.pools = append(f.pools, name) }}
	return f
}

// news returns the items queued since the last call. By then the nodes have been reconciled.
func (f *counted) news() string {
	for _, name := range f.nodes {
		f.Awaiting.Begin(name)
		f.Awaiting.End(name)
	}
	slices.Sort(f.nodes)
	slices.Sort(f.pools)
	out := fmt.Sprint("nodes ", slices.Compact(f.nodes), ", pools ", slices.Compact(f.pools))
	f.nodes, f.pools = nil, nil
	return out
}

// TestWhatComesFreeWakes checks that, in each way that addresses are freed or taken, exactly
// the nodes that wait for them and the pools that contain them are queued.
func TestWhatComesFreeWakes(t *testing.T) {
	held := fixtures.Block("10.1.0.0/24", "p1", "n", 1)
	naming := func(version string, cidrs ...string) *ciliumnode.View {
		return ciliumnode.NewView(fixtures.CiliumNode("n", version, cidrs...))
	}
	claim := func(f *counted) netip.Prefix {
		cidr, _, err := f.Ledger.Claim(ipalloc.IPv4, "n", "", []*crd.Pool{f.Pools.Get("p1")})
		if err != nil {
			t.Fatal(err)
		}
		return cidr
	}
	const woken = "nodes [w1], pools [p1]"
	for name, test := range map[string]struct {
		before, do func(f *counted)
		want       string
	}{
		"a block is published": {
			func(f *counted) { f.Ledger.Upsert(held) },
			func(f *counted) { f.onCiliumNode(naming("2", "10.1.0.0/24")) },
			"nodes [n], pools []",
		},
		"a block is withdrawn, and cools down": {
			func(f *counted) { f.Ledger.Upsert(held); f.onCiliumNode(naming("2", "10.1.0.0/24")) },
			func(f *counted) { f.onCiliumNode(naming("3")) },
			"nodes [n], pools []",
		},
		"the watch shows that a block is gone": {
			func(f *counted) { f.Ledger.Upsert(held) },
			func(f *counted) { f.Ledger.Remove(held) },
			woken,
		},
		"this process has deleted a block, or found it deleted": {
			func(f *counted) { f.Ledger.Upsert(held) },
			func(f *counted) { f.Ledger.Remove(held) },
			woken,
		},
		"a CiliumNode no longer names what is no block": {
			func(f *counted) { f.onCiliumNode(naming("2", "10.1.0.0/24", "10.2.7.0/24")) },
			func(f *counted) { f.onCiliumNode(naming("3", "10.2.7.0/24")) },
			"nodes [n w1], pools [p1]",
		},
		"it names more: no other node can have that": {
			func(f *counted) { f.onCiliumNode(naming("2")) },
			func(f *counted) { f.onCiliumNode(naming("3", "10.1.0.0/24")) },
			"nodes [n], pools [p1]",
		},
		"a CiliumNode that named it is forgotten": {
			func(f *counted) {
				f.onCiliumNode(naming("2", "10.1.0.0/24"))
				f.Ledger.RemoveCiliumNode(naming("3", "10.1.0.0/24"))
			},
			func(f *counted) { f.Ledger.ForgetCiliumNode("n") },
			woken,
		},
		"a claim was refused, or is found not to have been written": {
			func(f *counted) { claim(f) },
			func(f *counted) { f.Ledger.Forget("n", fixtures.Prefix("10.1.0.0/24")) },
			woken,
		},
		"a claim is answered after its block was shown to be gone": {
			func(f *counted) { claim(f); f.Ledger.Remove(held) },
			func(f *counted) { f.Ledger.Assume(held) },
			woken,
		},
		"a claim that another node won": {
			func(f *counted) { claim(f) },
			func(f *counted) { f.Ledger.Assume(fixtures.Block("10.1.0.0/24", "p1", "m", 5)) },
			"nodes [], pools []",
		},
		"a block removed by force, once its CiliumNode does not name it": {
			func(f *counted) {
				f.Ledger.Upsert(held)
				f.Ledger.UpsertCiliumNode(naming("3", "10.1.0.0/24"))
				f.Ledger.Remove(held)
			},
			func(f *counted) { f.onCiliumNode(naming("4")) },
			"nodes [n w1], pools [p1]",
		},
		"addresses of no pool": {
			func(f *counted) { f.onCiliumNode(naming("2", "192.0.2.0/24")) },
			func(f *counted) { f.onCiliumNode(naming("3")) },
			"nodes [n], pools []",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newCounted(t, 5)
			test.before(f)
			f.news()
			test.do(f)
			if diff := cmp.Diff(test.want, f.news()); diff != "" {
				t.Error(diff)
			}
		})
	}
}
