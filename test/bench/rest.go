package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"sync"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/test/bench/bed"
)

// react: the agents of all nodes report at a given rate, and pods are bound that make
// their nodes need a block. It measures from the response to the pod's create until a
// watch shows the addresses.
func react(rate, bursts int, spacing time.Duration) measure {
	return measure{name: fmt.Sprintf("react at %d reports/s", rate), rounds: 2, world: bed.World{Blocks: 1, Used: 24},
		contenders: []contender{bare("react"), operator()},
		run: func(ctx context.Context, r *run) error {
			return reactRun(ctx, r, rate, min(bursts, r.world.Nodes/2), spacing)
		},
	}
}

func reactRun(ctx context.Context, r *run, rate, bursts int, spacing time.Duration) error {
	o, err := r.observe(ctx, bed.CiliumNodes)
	if err != nil {
		return err
	}
	if err := r.ready(ctx); err != nil {
		return err
	}
	o.Expect(bursts, func(event []byte) bool { return podCIDRs(event, 2) })
	before, err := r.Usage(ctx, r.process)
	if err != nil {
		return err
	}
	reporting, stop := context.WithCancel(ctx)
	defer stop()
	// The first half of the nodes only reports, the other half bursts.
	feed := r.report(reporting, rate, r.world.Nodes/2, -1)
	bound, err := r.burst(ctx, bursts, spacing)
	if err != nil {
		return err
	}
	_, _, at, err := o.Wait(ctx)
	stop()
	sent, reportErr := feed()
	if err != nil {
		return err
	}
	if reportErr != nil {
		return reportErr
	}
	r.reacted(bound, at)
	if err := r.spent(ctx, before, nil, bed.Observed{}); err != nil {
		return err
	}
	r.values["reports"] = float64(sent)
	r.values["writes per burst"] = r.counts.Writes("podipblocks", "ciliumnodes") - float64(sent)
	r.values["writes per burst"] /= float64(bursts)
	return nil
}

// reacted notes how long it took from what happened to each node until it was
// published.
func (r *run) reacted(happened, published map[string]time.Time) {
	var took []float64
	for node, at := range published {
		took = append(took, at.Sub(happened[node]).Seconds()*1000)
	}
	r.values["p50 ms"], r.values["p99 ms"], r.values["max ms"] = percentile(took, 50), percentile(took, 99), percentile(took, 100)
}

// burst binds one pod to each of the last nodes, and returns when the API server had
// answered each.
func (r *run) burst(ctx context.Context, bursts int, spacing time.Duration) (map[string]time.Time, error) {
	return spaced(ctx, bursts, spacing, func(k int) (node int, err error) {
		node = r.world.Nodes - 1 - k
		if err := r.Client.Create(ctx, bed.BoundPod(node, fmt.Sprintf("burst-%05d", node), netip.Addr{})); err != nil {
			return 0, fmt.Errorf("bind a pod: %w", err)
		}
		return node, nil
	})
}

// spaced calls do for one node after the other, and returns by name when it was done.
func spaced(ctx context.Context, n int, spacing time.Duration, do func(k int) (node int, err error)) (map[string]time.Time, error) {
	done := make(map[string]time.Time, n)
	tick := time.NewTicker(spacing)
	defer tick.Stop()
	for k := range n {
		node, err := do(k)
		if err != nil {
			return nil, err
		}
		done[bed.NodeName(node)] = time.Now()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return done, nil
}

// report sends reports of the first nodes in turn, rate a second, total in all
// or until ctx ends. The function returned waits for the end and says how many
// were sent.
func (r *run) report(ctx context.Context, rate, nodes, total int) func() (int, error) {
	const reporters = 16
	var wg sync.WaitGroup
	var mu sync.Mutex
	sent, failed := 0, error(nil)
	begin := time.Now()
	for range reporters {
		wg.Go(func() {
			for {
				mu.Lock()
				n := sent
				over := failed != nil || n == total || ctx.Err() != nil
				if !over {
					sent++
				}
				mu.Unlock()
				if over {
					return
				}
				timer := time.NewTimer(time.Until(begin.Add(time.Duration(n) * time.Second / time.Duration(rate))))
				select {
				case <-timer.C:
				case <-ctx.Done():
					timer.Stop()
					mu.Lock()
					sent--
					mu.Unlock()
					return
				}
				// A report under way is let end, or it could not be counted.
				if err := r.reportOne(context.WithoutCancel(ctx), n%nodes, n); err != nil {
					mu.Lock()
					failed = err
					mu.Unlock()
				}
			}
		})
	}
	return func() (int, error) {
		wg.Wait()
		return sent, failed
	}
}

func (r *run) reportOne(ctx context.Context, i, turn int) error {
	body, err := json.Marshal(map[string]any{"status": map[string]any{"ipam": map[string]any{"used": r.world.Report(i, turn+1)}}})
	if err != nil {
		return err
	}
	cn := &ciliumv2.CiliumNode{ObjectMeta: metav1.ObjectMeta{Name: bed.NodeName(i)}}
	if err := r.Client.Status().Patch(ctx, cn, client.RawPatch(types.MergePatchType, body)); err != nil {
		return fmt.Errorf("report for node %d: %w", i, err)
	}
	return nil
}

// resting is how long a contender has to be idle before rest begins: cilium-operator in
// cluster-pool mode writes every node back 15 s after its start.
const resting = 20 * time.Second

// rest: pods come and go, agents write what those of the mode write, and no threshold is
// crossed. In crd mode agents report each change. In cluster-pool mode they write
// nothing, and in multi-pool mode nothing until the pods of a node cross a multiple of
// its pre-allocation, which these do not (pkg/nodediscovery/nodediscovery.go,
// pkg/ipam/multipool_manager.go, neededIPCeil, v1.20.1).
func rest(peers bool, rate, reportsPerNode int) measure {
	own := operator("--mode=multi-pool")
	own.mode, own.name = bed.OwnMultiPool, oursMultiPool
	m := measure{name: "rest", rounds: 2, world: bed.World{Blocks: 1, Used: 15}, contenders: []contender{bare("watch"), operator(), own},
		run: func(ctx context.Context, r *run) error { return restRun(ctx, r, rate, reportsPerNode*r.world.Nodes) }}
	if peers {
		m.contenders = append(m.contenders, ciliumOperator(clusterPool, bed.ClusterPool, true), ciliumOperator(multiPool, bed.MultiPool, true))
	}
	return m
}

func restRun(ctx context.Context, r *run, rate, reports int) error {
	o, err := r.observe(ctx, bed.CiliumNodes)
	if err != nil {
		return err
	}
	if err := r.ready(ctx); err != nil {
		return err
	}
	if r.bench.peers { // else no contender has work to come
		if _, err := r.IdleFor(ctx, r.process, resting); err != nil {
			return err
		}
	}
	before, err := r.Usage(ctx, r.process)
	if err != nil {
		return err
	}
	seen := o.Seen()
	pods := reports / 10
	if r.world.Mode != bed.CRD {
		reports = 0
	}
	feed := r.report(ctx, rate, r.world.Nodes, reports)
	churned, podErr := r.churn(ctx, pods)
	sent, err := feed()
	if err != nil {
		return err
	}
	if podErr != nil {
		return podErr
	}
	if err := r.spent(ctx, before, o, seen); err != nil {
		return err
	}
	r.values["reports"], r.values["pods"] = float64(sent), float64(churned)
	if sent > 0 {
		r.values["cpu ms per 1000 reports"] = r.values["cpu s"] * 1e6 / float64(sent)
	}
	r.values["own writes"] = r.counts.Writes() - float64(sent) - 2*float64(churned)
	return nil
}

// churn binds pods and deletes them again, one after the other.
func (r *run) churn(ctx context.Context, pods int) (int, error) {
	for k := range pods {
		pod := bed.BoundPod(k%r.world.Nodes, fmt.Sprintf("churn-%06d", k), netip.Addr{})
		if err := r.Client.Create(ctx, pod); err != nil {
			return k, fmt.Errorf("bind a pod: %w", err)
		}
		if err := r.Client.Delete(ctx, pod, client.GracePeriodSeconds(0)); err != nil {
			return k, fmt.Errorf("delete a pod: %w", err)
		}
	}
	return pods, nil
}
