package controller

import (
	"testing"

	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// A watch that lags for a moment is counted; one that stays behind is logged, once.
func TestWatchThatStaysBehindIsTold(t *testing.T) {
	b := newBed(t, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"))
	b.settle()
	l := newLogged(t, b)
	b.r.Ledger.AssumeCiliumNode("n", "999999")
	b.lags = true
	look := func() {
		t.Helper()
		result, err := b.r.Reconcile(l.ctx, requestOf("n"))
		if err != nil || result.RequeueAfter != behindRetry {
			t.Fatalf("look again in %s, %v", result.RequeueAfter, err)
		}
	}
	want := func(counted, lines int) {
		t.Helper()
		if got := exported(t, b.r.Metrics.behind)["cilium_pool_watch_behind_total CiliumNode"]; int(got) != counted {
			t.Errorf("counted %v times, want %d", got, counted)
		}
		if got := l.lines.FilterMessageSnippet("the operator's own last write").Len(); got != lines {
			t.Errorf("logged %d times, want %d: %v", got, lines, l.lines.All())
		}
	}
	look()
	look()
	want(2, 0) // within a moment
	for range 3 {
		b.clock.SetTime(b.clock.Now().Add(behindRetry))
		look()
	}
	want(5, 1)

	b.r.Ledger.ForgetAssumedCiliumNode("n") // the watch shows it
	if _, err := b.r.Reconcile(l.ctx, requestOf("n")); err != nil {
		t.Fatal(err)
	}
	b.r.Ledger.AssumeCiliumNode("n", "999999")
	look()
	want(6, 1)
	b.clock.SetTime(b.clock.Now().Add(behindRetry))
	look()
	want(7, 2)
}
