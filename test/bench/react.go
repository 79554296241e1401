package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/test/bench/bed"
)

const (
	// reactSeconds is for how long pods are bound, if there are enough nodes.
	reactSeconds = 20
	// binders is how many pods are bound concurrently at most: twice what a contender has
	// in flight, so that pods arrive at close to their rate while the API server is busy.
	binders = 64
	// reactReports is how many agents report each second while pods are bound.
	reactReports = 30
	// reactLimit is the goal for the 99th percentile, as a ratio to the floor's.
	reactLimit = 1.3
)

// reactRates returns the rates at which pods are bound, per second.
func reactRates() []int { return []int{30, 200, 1000} }

func reactName(rate int) string { return fmt.Sprintf("react at %d pods/s", rate) }

// reactions returns the measures for all rates.
func reactions(seconds int) []measure {
	var out []measure
	for _, rate := range reactRates() {
		out = append(out, react(rate, seconds))
	}
	return out
}

// react binds pods, each to a node that needs another block for it, while agents of other
// nodes report. It measures from the response to a pod's create until a watch shows the
// addresses.
func react(rate, seconds int) measure {
	return measure{name: reactName(rate), rounds: 2, world: bed.World{Blocks: 1, Used: 24},
		contenders: []contender{bare("react"), operator()},
		run: func(ctx context.Context, r *run) error {
			return reactRun(ctx, r, rate, reactPods(rate, seconds, r.world.Nodes))
		},
	}
}

// reactPods returns how many pods are bound: at most one per node, and none on the first
// half of the nodes, which only report.
func reactPods(rate, seconds, nodes int) int { return min(rate*seconds, nodes/2) }

func reactRun(ctx context.Context, r *run, rate, pods int) error {
	if pods < 1 {
		return errors.New("half of the nodes get pods: there must be two or more")
	}
	o, err := r.observe(ctx, bed.CiliumNodes)
	if err != nil {
		return err
	}
	if err := r.ready(ctx); err != nil {
		return err
	}
	o.Expect(pods, func(event []byte) bool { return podCIDRs(event, 2) })
	before, err := r.Usage(ctx, r.process)
	if err != nil {
		return err
	}
	reporting, stop := context.WithCancel(ctx)
	defer stop()
	feed := r.report(reporting, reactReports, r.world.Nodes/2, -1)
	begin := time.Now()
	bound, err := pace{rate: rate, total: pods, atOnce: binders}.nodes(ctx, func(k int) (node int, err error) {
		node = r.world.Nodes - 1 - k
		return node, r.bindTo(ctx, node)
	})
	if err != nil {
		return err
	}
	_, last, at, err := o.Wait(ctx)
	stop()
	sent, reportErr := feed()
	if err != nil {
		return err
	}
	if reportErr != nil {
		return reportErr
	}
	r.values["seconds"] = last.Sub(begin).Seconds()
	r.reacted(bound, at)
	if err := r.spent(ctx, before, nil, bed.Observed{}); err != nil {
		return err
	}
	r.values["pods"], r.values["reports"], r.values["pods/s reached"] = float64(pods), float64(sent), reached(bound)
	r.values["writes per burst"] = (r.counts.Writes("podipblocks", "ciliumnodes") - float64(sent)) / float64(pods)
	return nil
}

// reacted records how long it took from the event on each node until the node was
// published.
func (r *run) reacted(happened, published map[string]time.Time) {
	var took []float64
	for node, at := range published {
		took = append(took, at.Sub(happened[node]).Seconds()*1000)
	}
	r.values["p50 ms"], r.values["p99 ms"], r.values["max ms"] = percentile(took, 50), percentile(took, 99), percentile(took, 100)
}
