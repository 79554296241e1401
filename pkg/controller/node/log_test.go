package node

import (
	"fmt"
	"strings"
	"testing"
	"time"

	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	"github.com/go-logr/zapr"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/event"
	"github.com/cilium-pool/cilium-pool-operator/test/fakeapi"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// logged is a bed that captures its log at level info.
type logged struct {
	*bed
	lines *observer.ObservedLogs
	// holders are the lines that say who held a block, with their fields.
	holders []string
}

// live simulates d on node n: every 20 seconds the operator reconciles it, and its agent reports its
// own two addresses and agrees to each release. It returns the number of logged lines.
func (l *logged) live(core zapcore.Core, d time.Duration) int {
	l.T.Helper()
	ctx := log.IntoContext(l.T.Context(), zapr.NewLogger(zap.New(core)))
	for end := l.Clock.Now().Add(d); l.Clock.Now().Before(end); l.Clock.SetTime(l.Clock.Now().Add(20 * time.Second)) {
		l.Watch()
		_, err := l.r.Reconcile(ctx, fakeapi.RequestOf("n"))
		l.must(err)
		cn := l.raw()
		changed := len(cn.Status.IPAM.Used) == 0
		cn.Status.IPAM.Used = ipamtypes.AllocationMap{"10.0.0.1": {Owner: "router"}, "10.0.0.2": {Owner: "health"}}
		for key, status := range cn.Status.IPAM.ReleaseIPs {
			if status == "marked-for-release" {
				cn.Status.IPAM.ReleaseIPs[key], changed = "ready-for-release", true
			}
		}
		if changed {
			l.must(l.API.Status().Update(l.T.Context(), cn))
		}
	}
	lines := l.lines.TakeAll()
	for _, e := range lines {
		if f := e.ContextMap(); f["reason"] != nil {
			l.holders = append(l.holders, fmt.Sprintln(e.Message, f["block"], f["node"], f["pool"], f["reason"], f["since"], f["until"]))
		}
	}
	return len(lines)
}

// The lines that docs/operations.md lists for a block: 2 when it is claimed, 8 when it is
// released. At rest, and while a pool is exhausted, no line is repeated.
func TestLogLinesPerBlock(t *testing.T) {
	pool := fixtures.PodIPPool("p", 1, "10.0.0.0/28")
	pool.Spec.IPv4.BlockSize = 29
	core, lines := observer.New(zapcore.InfoLevel)
	l := &logged{bed: newBed(t, fixtures.Node(), pool), lines: lines}
	l.settleAgent()
	names := strings.Split("abcdefgh", "")
	bind := func(names []string) {
		for _, name := range names {
			l.r.Cluster.Pods.Set(podOn(name), l.Clock.Now())
		}
	}
	for _, step := range []struct {
		what  string
		do    func()
		lasts time.Duration
		want  int
	}{
		{"first block", func() {}, time.Minute, 2},
		{"rest", func() {}, 30 * time.Minute, 0},
		{"second block", func() { bind(names[:3]) }, 10 * time.Minute, 2},
		{"the pool is exhausted", func() { bind(names[3:]) }, 30 * time.Minute, 1},
		{"reclaim", func() {
			for _, name := range names {
				l.r.Cluster.Pods.Delete(podOn(name).PodKey, fixtures.Noon())
			}
		}, 30 * time.Minute, 8},
	} {
		step.do()
		if got := l.live(core, step.lasts); got != step.want {
			t.Errorf("%s: %d lines, want %d", step.what, got, step.want)
		}
	}
	want := []string{
		"claimed 10.0.0.0/29 n p NeedsAddresses <nil> <nil>\n", "claimed 10.0.0.8/29 n p NeedsAddresses <nil> <nil>\n",
		"returned 10.0.0.8/29 n p Returned 0001-01-01 00:00:00 +0000 UTC <nil>\n",
		"freed 10.0.0.8/29 n p Returned 0001-01-01 00:00:00 +0000 UTC 2026-01-01 13:22:40 +0000 UTC\n",
	}
	if diff := cmp.Diff(want, l.holders); diff != "" {
		t.Errorf("who held the blocks (-want +got):\n%s", diff)
	}
	if n := len(l.Blocks()); n != 1 {
		t.Errorf("%d blocks are left, want one", n)
	}
	claimed := l.EventsOf(event.ReasonBlockClaimed)
	if len(claimed) != 2 || !strings.Contains(claimed[1], "block 10.0.0.8/29 of pool p on node n: claimed, as the node wants ") {
		t.Errorf("events of two claims: %q", claimed)
	}
	if l.Events.Last.Changed("n", planTopics[0]+"", "") {
		t.Error("a plan is remembered")
	}
}
