//go:build linux

package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/test/cluster/kube"
)

// compared returns Cilium's own modes and ours; the others are measured against the first.
// Everything else is the same: nodes, values, datapath.
func compared() []setup {
	return []setup{
		{name: "cluster-pool", peer: true, cilium: []string{"test/cluster/values/cluster-pool.yaml"}},
		{name: "multi-pool", peer: true, cilium: []string{"test/cluster/values/multi-pool.yaml"}},
		crdSetup("crd with our operator"),
	}
}

// crdSetup returns the setup that docs/install.md installs.
func crdSetup(name string) setup {
	return setup{name: name, pools: []string{"examples/pools.yaml"}, labels: poolLabel}
}

// lap is one measurement in all setups.
type lap struct {
	what       string
	deployment string
	from, to   int
}

var laps = []lap{
	{"6 to 60 pods over all nodes", "web", 6, 60},
	{fmt.Sprintf("%d pods at once on one node", burstPods), "burst", 0, burstPods},
	{fmt.Sprintf("%d pods at once on one node, again", burstPods), "burst", 0, burstPods},
}

// compareScenario measures the time until all pods are Ready, and compares it with Cilium's
// own allocation of addresses. The table reports which is faster but does not judge it.
func compareScenario(ctx context.Context, t *trial) error {
	setups := compared()
	times := make([][]time.Duration, len(setups))
	for i, s := range setups {
		if err := t.startWith(ctx, s); err != nil {
			return err
		}
		var err error
		if times[i], err = t.runLaps(ctx); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		total, lacked, example, err := t.failedSandboxes(ctx)
		if err != nil {
			return err
		}
		t.say("%s: %d sandboxes failed, %d for lack of an address: %s", s.name, total, lacked, example)
		const what = "sandboxes that failed for lack of an address: "
		if s.peer {
			t.note(what+s.name, lacked)
		} else {
			t.check(what+s.name, lacked, lacked == 0)
		}
		t.collect(t.name + "-" + strings.Fields(s.name)[0])
	}
	for i, lap := range laps {
		var values []string
		for j, s := range setups {
			values = append(values, fmt.Sprintf("%s %.1f s (%.2f)", s.name, times[j][i].Seconds(), times[j][i].Seconds()/times[0][i].Seconds()))
		}
		t.note(lap.what+", all Ready after (ratio)", strings.Join(values, ", "))
	}
	return nil
}

func (t *trial) runLaps(ctx context.Context) ([]time.Duration, error) {
	if err := t.cluster.Apply(ctx, webManifest); err != nil {
		return nil, err
	}
	var times []time.Duration
	for _, lap := range laps {
		if _, err := t.resize(ctx, lap.deployment, lap.from); err != nil {
			return nil, err
		}
		took, err := t.resize(ctx, lap.deployment, lap.to)
		if err != nil {
			return nil, err
		}
		t.say("%s: %.1f s", lap.what, took.Seconds())
		times = append(times, took)
		if _, err := t.resize(ctx, lap.deployment, lap.from); err != nil {
			return nil, err
		}
		if err := t.awaitGone(ctx, lap.deployment, lap.from); err != nil {
			return nil, err
		}
	}
	return times, nil
}

// resize scales a Deployment and waits until all its pods are Ready.
func (t *trial) resize(ctx context.Context, deployment string, replicas int) (time.Duration, error) {
	began := time.Now()
	if _, err := t.cluster.Kubectl(ctx, "scale", "deployment", deployment, fmt.Sprintf("--replicas=%d", replicas)); err != nil {
		return 0, err
	}
	err := t.awaitPods(ctx, deployment, replicas)
	return time.Since(began), err
}

// awaitGone waits until a Deployment has no more pods than it should. Pods that terminate
// count too, as they would slow down the next measurement.
func (t *trial) awaitGone(ctx context.Context, app string, want int) error {
	return kube.Await(ctx, podsTimeout, fmt.Sprintf("%s has %d pods", app, want), func(ctx context.Context) (bool, string) {
		pods, err := t.probes(ctx, app)
		return err == nil && len(pods) == want, fmt.Sprintf("%d pods, %v", len(pods), err)
	})
}
