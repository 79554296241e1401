package bed

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseSeries(t *testing.T) {
	type series struct {
		Name   string
		Labels map[string]string
		Value  float64
	}
	tests := map[string]struct {
		line string
		want *series // nil: not a series
	}{
		"comment":   {line: "# TYPE apiserver_request_total counter"},
		"empty":     {line: ""},
		"no labels": {line: "up 1", want: &series{"up", map[string]string{}, 1}},
		"labels": {
			line: `apiserver_request_total{code="201",resource="podipblocks",verb="POST"} 5`,
			want: &series{"apiserver_request_total", map[string]string{"code": "201", "resource": "podipblocks", "verb": "POST"}, 5},
		},
		"large value": {line: `x{a="b"} 1.5e+09`, want: &series{"x", map[string]string{"a": "b"}, 1.5e9}},
		"no number":   {line: "up down"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var got *series
			if n, l, v, ok := parseSeries(test.line); ok {
				got = &series{n, l, v}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Only stored objects count as writes. Refused requests are counted separately, and leases
// not at all.
func TestWrites(t *testing.T) {
	counts := Counts{Requests: map[string]float64{
		"POST podipblocks": 5, "PATCH ciliumnodes": 4, "PATCH ciliumnodes/status": 3, "PATCH ciliumnodes/status 409": 2,
		"PUT leases": 100, "GET ciliumnodes": 7, "LIST pods": 1, "WATCH pods": 2,
	}}
	if got := counts.Writes(); got != 12 {
		t.Errorf("%v writes, not 12", got)
	}
	if got := counts.Writes("ciliumnodes"); got != 7 {
		t.Errorf("%v writes of CiliumNodes, not 7", got)
	}
	if got := counts.Failed(); got != 2 {
		t.Errorf("%v refused, not 2", got)
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
	const nodes, blocks = 5000, 3
	pool := netip.MustParsePrefix(PoolCIDR)
	seen := map[netip.Prefix]bool{}
	for i := range nodes {
		for j := range blocks {
			cidr := Block(BlockOf(i, j, blocks))
			if seen[cidr] || cidr != cidr.Masked() || !pool.Contains(cidr.Addr()) {
				t.Fatalf("block %d of node %d is %s", j, i, cidr)
			}
			seen[cidr] = true
		}
	}
}
