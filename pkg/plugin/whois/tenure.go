package whois

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cluster"
)

// tenure is for how long a node held a block.
type tenure struct {
	Block string    `json:"block"`
	Node  string    `json:"node"`
	Since time.Time `json:"since"`
	// Until is when nothing of the block was published any more; nil: the node
	// holds it still.
	Until *time.Time `json:"until,omitempty"`
	// Reason is why the block came back.
	Reason string `json:"reason,omitempty"`
}

func (t *tenure) covers(at time.Time) bool {
	return !at.Before(t.Since) && (t.Until == nil || at.Before(*t.Until))
}

// tenures are those of all blocks with an address that are known of, the oldest
// first: those of blocks that there are, and those that pools' histories list.
func tenures(c *cluster.Cluster, a netip.Addr) []tenure {
	var all []tenure
	for _, b := range c.Blocks() {
		if b.CIDR.Contains(a) {
			all = append(all, tenureOf(b))
		}
	}
	there := slices.Clone(all)
	for _, h := range c.Histories {
		for _, r := range h.ReturnedBlocks {
			cidr, err := netip.ParsePrefix(r.CIDR)
			if err != nil || !cidr.Contains(a) {
				continue
			}
			until := r.Until.UTC()
			t := tenure{Block: crd.BlockName(cidr), Node: r.NodeName, Since: r.Since.UTC(), Until: &until, Reason: r.Reason}
			// The object of a block that cools down says the same, and knows better
			// where the block is its node's again.
			if !slices.ContainsFunc(there, func(b tenure) bool { return b.Block == t.Block && b.Since.Equal(t.Since) }) {
				all = append(all, t)
			}
		}
	}
	slices.SortFunc(all, func(a, b tenure) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Block, b.Block)) })
	return all
}

func tenureOf(b crd.Block) tenure {
	t := tenure{Block: b.Name, Node: b.Node, Since: b.Created.UTC()}
	if b.Phase == ipalloc.CoolingDown {
		until := b.Since.UTC()
		t.Until, t.Reason = &until, string(b.Reason)
	}
	return t
}

// recordSince is how far back the histories of pools go, all of them; nil: not all
// pools have one, or there are none.
func recordSince(c *cluster.Cluster, pools []string) *time.Time {
	var latest *time.Time
	for _, name := range pools {
		h := c.Histories[name]
		if h == nil || h.ReturnedBlocksSince == nil {
			return nil
		}
		since := h.ReturnedBlocksSince
		if latest == nil || since.After(*latest) {
			at := since.UTC()
			latest = &at
		}
	}
	return latest
}
