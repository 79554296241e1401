package bed

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

// Only stored objects count as writes. Refused requests are counted separately, and leases
// not at all.
func TestCounts(t *testing.T) {
	counts := Counts{Requests: map[string]float64{}, Lists: map[string]float64{}}
	for _, line := range []string{
		"# TYPE apiserver_request_total counter", "", "up 1",
		`apiserver_request_total{code="201",resource="podipblocks",subresource="",verb="POST"} 5`,
		`apiserver_request_total{code="200",resource="ciliumnodes",subresource="",verb="PATCH"} 4`,
		`apiserver_request_total{code="200",resource="ciliumnodes",subresource="status",verb="PATCH"} 1`,
		`apiserver_request_total{code="200",component="other",resource="ciliumnodes",subresource="status",verb="PATCH"} 2`,
		`apiserver_request_total{code="409",resource="ciliumnodes",subresource="status",verb="PATCH"} 2`,
		`apiserver_request_total{code="200",resource="leases",subresource="",verb="PUT"} 1e+02`,
		`apiserver_request_total{code="200",resource="pods",subresource="",verb="LIST"} 1`,
		`apiserver_request_total{code="0",resource="pods",subresource="",verb="WATCH"} 2`,
		`apiserver_watch_list_duration_seconds_count{group="",resource="pods",version="v1"} 1`,
	} {
		harness.Must(t, counts.add(line))
	}
	if diff := cmp.Diff(Counts{Requests: map[string]float64{
		"POST podipblocks": 5, "PATCH ciliumnodes": 4, "PATCH ciliumnodes/status": 3, "PATCH ciliumnodes/status 409": 2,
		"PUT leases": 100, "LIST pods": 1, "WATCH pods": 2,
	}, Lists: map[string]float64{"pods": 2}}, counts); diff != "" {
		t.Error(diff)
	}
	if got := counts.Writes(); got != 12 {
		t.Errorf("%v writes, not 12", got)
	}
	if got := counts.Writes("ciliumnodes"); got != 7 {
		t.Errorf("%v writes of CiliumNodes, not 7", got)
	}
	if got := counts.Failed(); got != 2 {
		t.Errorf("%v refused, not 2", got)
	}
	if got := counts.Sub(counts).Writes(); got != 0 {
		t.Errorf("%v writes since then, not 0", got)
	}
	if counts.add(`apiserver_request_total{verb="PUT"} many`) == nil {
		t.Error("a number that is none is accepted")
	}
}

func TestEvents(t *testing.T) {
	event := []byte(`{"type":"MODIFIED","object":{"apiVersion":"cilium.io/v2","metadata":{"managedFields":[{"manager":"bench",` +
		`"fieldsV1":{"f:spec":{"f:ipam":{"f:podCIDRs":{}}}}}],"name":"bench-00007","ownerReferences":[{"name":"other"}]},` +
		`"spec":{"ipam":{"podCIDRs":["10.0.0.0/27","10.0.0.32/27"]}}}}`)
	if got := Name(event); got != "bench-00007" {
		t.Errorf("name %q", got)
	}
	if got := Listed(event, "podCIDRs"); got != 2 {
		t.Errorf("%d podCIDRs, not 2", got)
	}
	if got := Listed(event, "cidrs"); got != 0 {
		t.Errorf("%d cidrs, not 0", got)
	}
}

// No two nodes share a block, and all blocks lie within the pool.
func TestBlocksAreApart(t *testing.T) {
	w := World{Nodes: 5000, Blocks: 3}
	pool := netip.MustParsePrefix(PoolCIDR)
	seen := map[netip.Prefix]bool{}
	for i := range w.Nodes {
		for j := range w.Blocks {
			cidr := w.block(i, j)
			if seen[cidr] || cidr != cidr.Masked() || !pool.Contains(cidr.Addr()) {
				t.Fatalf("block %d of node %d is %s", j, i, cidr)
			}
			seen[cidr] = true
		}
	}
}
