package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/test/bench/bed"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

const (
	reportsPerSecond = 400
	// reporters is the maximum number of agents that report at the same time.
	reporters = 16
	// resting is the idle time of a contender before the steady state: cilium-operator
	// in cluster-pool mode writes every node back 15 s after its start.
	resting = 20 * time.Second
)

// steady measures while pods come and go and agents report, and no node crosses a threshold.
// In crd mode agents report each change. In cluster-pool mode they do not write, and in
// multi-pool mode not until the pods of a node cross a multiple of its pre-allocation
// (pkg/nodediscovery/nodediscovery.go, pkg/ipam/multipool_manager.go, neededIPCeil, v1.20.1).
func steady() measure {
	return measure{name: "steady", run: steadyRun, world: bed.World{Blocks: 1, Used: 15},
		contenders: []contender{bare("watch"), operator(), inMultiPool(), observer()},
		checks: func(contender, float64) []check {
			return append(always(), equal("own writes", 0), equal("pool writes", 0))
		}}
}

func steadyRun(ctx context.Context, r *run) error {
	if err := r.ready(ctx, resting); err != nil {
		return err
	}
	before, err := r.Usage(ctx, r.process)
	if err != nil {
		return err
	}
	reports := max(r.world.Nodes, 500)
	pods := reports / 10
	if r.world.Mode != bed.CRD {
		// No agent reports. Fewer pods would be over before the contender collects garbage once.
		pods, reports = 4*pods, 0
	}
	reported := make(chan error, 1)
	go func() { reported <- r.report(ctx, r.world.Nodes, reports, reportsPerSecond) }()
	if err := r.churn(ctx, pods); err != nil {
		return err
	}
	if err := <-reported; err != nil {
		return err
	}
	if err := r.spent(ctx, before, 0); err != nil {
		return err
	}
	r.values["own writes"] = r.values["writes"] - float64(reports+2*pods)
	return nil
}

// report sends a number of reports of the first nodes in turn.
func (r *run) report(ctx context.Context, nodes, reports, perSecond int) error {
	begin := time.Now()
	return harness.Parallel(ctx, reports, reporters, func(ctx context.Context, n int) error {
		if err := harness.Sleep(ctx, time.Until(begin.Add(time.Duration(n)*time.Second/time.Duration(perSecond)))); err != nil {
			return err
		}
		i := n % nodes
		body, err := json.Marshal(map[string]any{"status": map[string]any{"ipam": map[string]any{"used": r.world.Report(i, n+1)}}})
		if err != nil {
			return err
		}
		cn := &ciliumv2.CiliumNode{ObjectMeta: metav1.ObjectMeta{Name: bed.NodeName(i)}}
		if err := r.Client.Status().Patch(ctx, cn, client.RawPatch(types.MergePatchType, body)); err != nil {
			return fmt.Errorf("report of node %d: %w", i, err)
		}
		return nil
	})
}

// churn creates and deletes bound pods, one after the other.
func (r *run) churn(ctx context.Context, pods int) error {
	for k := range pods {
		pod := bed.BoundPod(k%r.world.Nodes, fmt.Sprintf("churn-%06d", k), netip.Addr{})
		if err := r.Client.Create(ctx, pod); err != nil {
			return fmt.Errorf("bind a pod: %w", err)
		}
		if err := r.Client.Delete(ctx, pod, client.GracePeriodSeconds(0)); err != nil {
			return fmt.Errorf("delete a pod: %w", err)
		}
	}
	return nil
}
