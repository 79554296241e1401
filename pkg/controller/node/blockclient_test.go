package node

import (
	"context"
	"strconv"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// pages answers lists of blocks page by page, as the API server does.
type pages struct {
	client.Reader
	t      *testing.T
	blocks [][]string
}

func (p pages) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	o := (&client.ListOptions{}).ApplyOptions(opts)
	if o.Limit != blocksPerPage {
		p.t.Errorf("lists %d at a time, want %d", o.Limit, blocksPerPage)
	}
	at := 0
	if o.Continue != "" {
		var err error
		if at, err = strconv.Atoi(o.Continue); err != nil {
			return err
		}
	}
	page := list.(*v1alpha1.PodIPBlockList)
	for _, cidr := range p.blocks[at] {
		page.Items = append(page.Items, *inService(cidr))
	}
	if at+1 < len(p.blocks) {
		page.Continue = strconv.Itoa(at + 1)
	}
	return nil
}

// Blocks from all pages enter the ledger if they overlap one of the CIDRs, and no others do.
func TestReadOverlapping(t *testing.T) {
	b := newBed(t)
	b.r.Blocks.Live = pages{t: t, blocks: [][]string{{"10.0.0.0/30", "10.0.0.4/30"}, {"10.0.0.8/30"}, {}, {"10.0.0.12/30"}}}
	if err := b.r.Blocks.readOverlapping(t.Context(), fixtures.Prefixes("10.0.0.4/32", "10.0.0.12/32")); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, k := range b.Ledger.NodeBlocks("n") {
		got = append(got, k.CIDR.String())
	}
	if len(got) != 2 || got[0] != "10.0.0.4/30" || got[1] != "10.0.0.12/30" {
		t.Errorf("blocks taken in are %v", got)
	}
}
