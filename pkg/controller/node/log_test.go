package node

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/go-logr/zapr"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/event"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/test/fakeapi"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// logged is a bed that captures its log at level info.
type logged struct {
	*bed
	ctx   context.Context
	lines *observer.ObservedLogs
	// holders are the lines that say who held a block, with their fields.
	holders []string
}

func newLogged(t *testing.T, b *bed) *logged {
	core, lines := observer.New(zapcore.InfoLevel)
	return &logged{b, log.IntoContext(t.Context(), zapr.NewLogger(zap.New(core))), lines, nil}
}

// live simulates d on node n: every 20 seconds the operator reconciles it and its agent
// answers. It returns the logged lines, shortened.
func (l *logged) live(d time.Duration) []string {
	l.T.Helper()
	for end := l.Clock.Now().Add(d); l.Clock.Now().Before(end); l.Clock.SetTime(l.Clock.Now().Add(20 * time.Second)) {
		l.Watch()
		if _, err := l.r.Reconcile(l.ctx, fakeapi.RequestOf("n")); err != nil {
			l.T.Fatal(err)
		}
		l.agent()
	}
	var out []string
	for _, e := range l.lines.TakeAll() {
		fields := e.ContextMap()
		line := e.Message
		if fields["reason"] != nil {
			l.holders = append(l.holders, fmt.Sprintln(line, fields["block"], fields["node"], fields["pool"], fields["reason"], fields["since"], fields["until"]))
		}
		for _, key := range []string{"block", "plan"} {
			if v, ok := fields[key].(string); ok {
				line += " " + v
			}
		}
		out = append(out, line)
	}
	return out
}

// agent reports its own two addresses and agrees to each release.
func (l *logged) agent() {
	l.T.Helper()
	cn := &ciliumv2.CiliumNode{}
	if err := l.API.Get(l.T.Context(), types.NamespacedName{Name: "n"}, cn); err != nil {
		l.T.Fatal(err)
	}
	changed := len(cn.Status.IPAM.Used) == 0
	cn.Status.IPAM.Used = ipamtypes.AllocationMap{"10.0.0.1": {Owner: "router"}, "10.0.0.2": {Owner: "health"}}
	for key, status := range cn.Status.IPAM.ReleaseIPs {
		if status == "marked-for-release" {
			cn.Status.IPAM.ReleaseIPs[key], changed = "ready-for-release", true
		}
	}
	if !changed {
		return
	}
	if err := l.API.Status().Update(l.T.Context(), cn); err != nil {
		l.T.Fatal(err)
	}
}

// The lines that docs/operations.md lists for a block: 2 when it is claimed, 8 when it is
// released. At rest, and while a pool is exhausted, no line is repeated.
func TestLogLinesPerBlock(t *testing.T) {
	pool := fixtures.PodIPPool("p", 1, "10.0.0.0/28")
	pool.Spec.IPv4.BlockSize = 29
	l := newLogged(t, newBed(t, fixtures.Node(), pool))
	l.r.Agents.Set(state.ReadAgent(fixtures.AgentPod("agent", "c", true)), fixtures.Noon().Add(-time.Hour))
	expect := func(what string, want int, lines []string) {
		t.Helper()
		if len(lines) != want {
			t.Errorf("%s: %d lines, want %d:\n%q", what, len(lines), want, lines)
		}
	}
	expect("first block", 2, l.live(time.Minute))
	expect("rest", 0, l.live(30*time.Minute))
	for _, name := range []string{"a", "b", "c"} {
		l.r.Pods.Set(state.ReadPod(fixtures.Pod(name, name, "n")), l.Clock.Now())
	}
	expect("second block", 2, l.live(10*time.Minute))
	for _, name := range []string{"d", "e", "f", "g", "h"} {
		l.r.Pods.Set(state.ReadPod(fixtures.Pod(name, name, "n")), l.Clock.Now())
	}
	expect("the pool is exhausted", 1, l.live(30*time.Minute))
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		l.r.Pods.Delete(state.ReadPod(fixtures.Pod(name, name, "n")).PodKey, fixtures.Noon())
	}
	expect("reclaim", 8, l.live(30*time.Minute))
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
