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
)

// report sends reports of the first nodes in turn, rate per second and total in all; -1:
// until ctx ends. The returned function waits for the end and returns how many were sent.
func (r *run) report(ctx context.Context, rate, nodes, total int) func() (int, error) {
	var sent int
	var err error
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		// Let a report under way complete, or it could not be counted.
		underWay := context.WithoutCancel(ctx)
		sent, err = pace{rate: rate, total: total, atOnce: reporters}.run(ctx, func(n int) error {
			return r.reportOne(underWay, n%nodes, n)
		})
	}()
	return func() (int, error) {
		<-ended
		return sent, err
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

// reporters is how many agents report concurrently at most.
const reporters = 16

// resting is how long a contender has to be idle before rest begins: cilium-operator in
// cluster-pool mode writes every node back 15 s after its start.
const resting = 20 * time.Second

// rest measures while pods come and go and agents write what agents of the mode write, and
// nothing crosses a threshold. In crd mode agents report each change. In cluster-pool mode
// they write nothing, and in multi-pool mode nothing until the pods of a node cross a
// multiple of its pre-allocation, which these do not (pkg/nodediscovery/nodediscovery.go,
// pkg/ipam/multipool_manager.go, neededIPCeil, v1.20.1).
func rest(peers bool, rate, reportsPerNode int) measure {
	m := measure{name: "rest", rounds: 2, world: bed.World{Blocks: 1, Used: 15}, contenders: []contender{bare("watch"), operator(), inMultiPool()},
		run: func(ctx context.Context, r *run) error {
			return restRun(ctx, r, rate, reportsPerNode*r.world.Nodes)
		}}
	if peers {
		slow := ciliumOperator(clusterPool, bed.ClusterPool, true)
		slow.rounds = 1
		m.contenders = append(m.contenders, slow, ciliumOperator(multiPool, bed.MultiPool, true))
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
	if _, err := r.IdleFor(ctx, r.process, resting); err != nil {
		return err
	}
	before, err := r.Usage(ctx, r.process)
	if err != nil {
		return err
	}
	seen := o.Seen()
	pods := reports / 10
	if r.world.Mode != bed.CRD {
		// There is nothing but pods: fewer would be over before the contender collects
		// garbage once.
		pods, reports = 4*pods, 0
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

// churn creates and deletes bound pods, one after the other.
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
