package controller

import (
	"context"
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cilium-pool/cilium-pool-operator/pkg/apiclient"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/informer"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// probed is an operator whose queue and lists a test moves by hand.
type probed struct {
	*health
	clock *testclock.FakeClock
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]
	// list lists Services, with the error fails.
	list    func()
	fails   error
	missing []string
}

func newProbed(t *testing.T) *probed {
	p := &probed{clock: testclock.NewFakeClock(time.Unix(0, 0))}
	feed := informer.NewFeed()
	feed.Ledger = state.NewLedger()
	reads := &apiclient.Reads{Now: p.clock.Now}
	from := toolscache.ToListerWatcherWithContext(reads.Of("Service", &toolscache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) { return nil, p.fails },
	}))
	p.list = func() { _, _ = from.ListWithContext(t.Context(), metav1.ListOptions{}) }
	p.queue = feed.NewNodeQueue("", workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	t.Cleanup(p.queue.ShutDown)
	p.health = &health{feed: feed, reads: reads, missing: func() ([]string, error) { return p.missing, nil }, clock: p.clock}
	return p
}

func (p *probed) add(node string) {
	p.queue.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: node}})
}

// A replica is Ready while it waits for CRDs, once it has read everything, and while a list fails for less
// than a minute.
func TestReady(t *testing.T) {
	p := newProbed(t)
	for _, step := range []struct {
		why   string
		do    func()
		ready bool
	}{
		{"no CRDs", func() { p.missing = []string{"CRD"} }, true},
		{"they come", func() { p.missing = nil }, false},
		{"Services may not be listed", func() { p.fails = errors.New("forbidden"); p.list() }, false},
		{"nor later", func() { p.clock.Step(time.Hour); p.list() }, false},
		{"everything has been read", func() { p.fails = nil; p.list(); p.feed.Ledger.SetReady() }, true},
		{"a list fails", func() { p.fails = errors.New("timeout"); p.list() }, true},
		{"for a minute", func() { p.clock.Step(time.Minute); p.list() }, false},
		{"and no more", func() { p.fails = nil; p.list() }, true},
	} {
		step.do()
		if err := p.ready(nil); (err == nil) != step.ready {
			t.Errorf("%s: %v", step.why, err)
		}
	}
}

// An operator is alive unless all its workers hang.
func TestAlive(t *testing.T) {
	take := func(p *probed) {
		node, _ := p.queue.Get()
		p.queue.Done(node)
	}
	for name, test := range map[string]struct {
		// each happens every minute for an hour
		each func(*probed)
		dead bool
	}{
		"nothing to do":                     {each: func(*probed) {}},
		"workers take nodes":                {each: func(p *probed) { p.add("a"); p.add("b"); take(p) }},
		"workers are slow":                  {each: func(p *probed) { p.add("a"); p.add("b"); p.clock.Step(8 * time.Minute); take(p) }},
		"workers hang":                      {each: func(p *probed) { p.add("a") }, dead: true},
		"the API server refuses all":        {each: func(p *probed) { p.add("a"); p.fails = errors.New("gone"); p.list() }},
		"new nodes come while workers hang": {each: func(p *probed) { p.add(p.clock.Now().String()) }, dead: true},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProbed(t)
			p.feed.Ledger.SetReady()
			dead := false
			for range 60 {
				test.each(p)
				dead = dead || p.alive(nil) != nil
				p.clock.Step(time.Minute)
			}
			if dead != test.dead {
				t.Errorf("dead: %v", dead)
			}
		})
	}
	t.Run("everything is yet to be read", func(t *testing.T) {
		p := newProbed(t)
		for range 60 {
			p.add("a")
			if err := p.alive(nil); err != nil {
				t.Fatal(err)
			}
			p.clock.Step(time.Minute)
		}
		p.feed.Ledger.SetReady()
		if err := p.alive(nil); err != nil {
			t.Errorf("and has just been: %v", err)
		}
	})
}
