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
	// Until is when the last address of the block was unpublished; nil: the node still holds
	// it.
	Until *time.Time `json:"until,omitempty"`
	// Reason is why the block was returned.
	Reason string `json:"reason,omitempty"`
}

func (t *tenure) covers(at time.Time) bool {
	return !at.Before(t.Since) && (t.Until == nil || at.Before(*t.Until))
}

// tenures returns those of all known blocks that contain an address, the oldest first: those of
// existing blocks, and those in pools' histories.
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
			// The object of a block that cools down has the same information, and is more
			// accurate if the block went back into service.
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

// recordSince returns how far back the histories of all these pools go; nil: not all pools have
// one, or there are none.
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
