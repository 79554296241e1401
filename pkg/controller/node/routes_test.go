package node

import (
	"context"
	"net/netip"
	"slices"
	"testing"

	"github.com/cilium-pool/cilium-pool-operator/test/fakeapi"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// network notes when it is asked to announce, and announces some blocks.
type network struct {
	*bed
	announces []netip.Prefix
}

func (n *network) Announce(_ context.Context, node string) {
	n.Calls = append(n.Calls, "announce "+node)
}

func (n *network) Announces(_ string, cidr netip.Prefix) bool {
	return slices.Contains(n.announces, cidr)
}

// Blocks are announced before addresses of them are published, and not without need.
func TestAnnounceBeforePublish(t *testing.T) {
	b := newBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"))
	b.r.Routes = &network{bed: b}
	b.step()
	created, announced, published := slices.Index(b.Calls, "create PodIPBlock"), slices.Index(b.Calls, "announce n"), slices.Index(b.Calls, "patch CiliumNode")
	if created < 0 || announced < created || published != announced+1 {
		t.Errorf("calls %v", b.Calls)
	}
	b.settle()
	if len(b.Calls) > 0 {
		t.Errorf("settled: calls %v", b.Calls)
	}
}

// No other node gets a block that is still announced.
func TestAnnouncedBlockIsNotDeleted(t *testing.T) {
	b := resting(t)
	n := &network{bed: b, announces: fixtures.Prefixes("10.0.0.12/30")}
	b.r.Routes = n
	if writes := fakeapi.WritesOf(b.step()); len(writes) > 0 {
		t.Errorf("announced: writes %v", writes)
	}
	n.announces = nil
	b.settle()
	if len(b.Blocks()) != 1 {
		t.Errorf("announced no more: blocks %v", b.Blocks())
	}
}
