package audit

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cilium-pool/cilium-pool-operator/pkg/clusterread"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// spoiled has a warning and two errors, one of them for five addresses.
func spoiled() world {
	w := healthy()
	w.publish("a", "10.0.0.10", "10.0.0.11", "10.0.0.12", "10.0.0.13", "10.0.0.14", "192.0.2.7")
	w.pod("x", "a", "192.0.2.8")
	return w
}

func TestText(t *testing.T) {
	w := spoiled()
	r := NewReport(w.Objects, 2, Check(w.Objects, settings()))
	var got bytes.Buffer
	if err := r.Text(&got); err != nil {
		t.Fatal(err)
	}
	want := `ERRORS
  AddressOnTwoNodes  CiliumNode/a  10.0.0.10, 10.0.0.11, 10.0.0.12 and 2 more: in the pools of a and b
      fix: Move pods off 10.0.0.10 on a, then take 10.0.0.10 out of spec.ipam.pool there: kubectl edit ciliumnode a. If the agent itself has 10.0.0.10 (router, health, ingress), restart it then. Find out who wrote it.
  PodAddressUnowned  Pod/default/x  192.0.2.8: runs on a with an address of no block and no pool entry
      fix: Pin the block of 192.0.2.8 to the pod's node (see Pin a block), or delete the pod x; it gets another address.
WARNINGS
  ForeignPoolEntry  CiliumNode/a  192.0.2.7: in the pool, in no block and in no PodIPPool
      fix: Leave it if you know who wrote it. Else take 192.0.2.7 out of spec.ipam.pool once no pod uses it: kubectl edit ciliumnode a.
2 errors, 1 warning. Looked 2 times at 2 Nodes, 2 CiliumNodes with 18 addresses, 3 pods, 1 PodIPPool, 2 PodIPBlocks and 2 agents.
`
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Errorf("text (-want +got):\n%s", diff)
	}
}

func TestTextOfNothing(t *testing.T) {
	s := &clusterread.Objects{Time: now}
	r := NewReport(s, 1, Check(s, settings()))
	var got bytes.Buffer
	if err := r.Text(&got); err != nil {
		t.Fatal(err)
	}
	want := "0 errors, 0 warnings. Looked once at 0 Nodes, 0 CiliumNodes with 0 addresses, 0 pods, 0 PodIPPools, 0 PodIPBlocks and 0 agents.\n"
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Errorf("text (-want +got):\n%s", diff)
	}
}

func TestJSON(t *testing.T) {
	w := spoiled()
	r := NewReport(w.Objects, 2, Check(w.Objects, settings()))
	var got bytes.Buffer
	if err := r.JSON(&got); err != nil {
		t.Fatal(err)
	}
	var back Report
	if err := json.Unmarshal(got.Bytes(), &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(r, back); diff != "" {
		t.Errorf("read back (-want +got):\n%s", diff)
	}
	if n := len(back.Findings[0].Subjects); n != 5 {
		t.Errorf("%d addresses, want all 5", n)
	}
	if strings.Contains(got.String(), "null") {
		t.Errorf("null in %s", got.String())
	}
}

// Findings of only one look are dropped, address by address.
func TestPersisting(t *testing.T) {
	first, second := spoiled(), spoiled()
	second.unpublish("a", "10.0.0.10", "192.0.2.7")
	second.publish("a", "10.0.0.200")
	before, after := Check(first.Objects, settings()), Check(second.Objects, settings())
	var want []string
	for _, a := range []string{"10.0.0.11", "10.0.0.12", "10.0.0.13", "10.0.0.14"} {
		want = append(want, "AddressOnTwoNodes CiliumNode/a CiliumNode/b "+a)
	}
	want = append(want, "PodAddressUnowned Pod/default/x 192.0.2.8")
	if got := joinShort(Persisting(before, after)); got != strings.Join(want, ", ") {
		t.Errorf("persisting: %s, want %s", got, want)
	}
}

// A mark that the operator keeps setting again is as old as its first sighting.
func TestStandSince(t *testing.T) {
	var last *clusterread.Objects
	for minute := range 7 {
		w := healthy()
		w.Time = now.Add(time.Duration(minute) * time.Minute)
		w.entry("a", "10.0.0.4", expand.Marked, w.Time.Add(-time.Second))
		if minute < 3 {
			w.entry("b", "10.0.0.12", expand.Marked, time.Time{})
		}
		if last != nil {
			w.DateBackTo(last)
		}
		last = w.Objects
	}
	if got := joinShort(Check(last, settings())); got != "StuckHandshake CiliumNode/a 10.0.0.4" {
		t.Errorf("found %s", got)
	}
}

// A drain that makes no progress is found by watching, even if the CiliumNode does not say
// when it changed.
func TestDrainSeenToStand(t *testing.T) {
	for name, test := range map[string]struct {
		version func(minute int) string
		want    string
	}{
		"stands": {func(int) string { return "7" }, "DrainStuck PodIPBlock/10.0.0.0-29 CiliumNode/a 10.0.0.0/29"},
		"moves":  {strconv.Itoa, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var last *clusterread.Objects
			for minute := range 7 {
				w := healthy()
				w.Time = now.Add(time.Duration(minute) * time.Minute)
				w.phase("10.0.0.0-29", ipalloc.Draining, expand.Deleted, long)
				w.free("a", "10.0.0.2")
				cn := w.cn("a")
				cn.Used, cn.Changed, cn.ResourceVersion = nil, time.Time{}, test.version(minute)
				if last != nil {
					w.DateBackTo(last)
				}
				if got := w.Undated(); got != 1 {
					t.Errorf("minute %d: %d undated, want 1", minute, got)
				}
				last = w.Objects
			}
			if got := joinShort(Check(last, settings())); got != test.want {
				t.Errorf("found %s, want %s", got, test.want)
			}
		})
	}
}
