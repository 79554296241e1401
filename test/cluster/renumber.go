//go:build linux

package main

import (
	"context"
	"errors"
	"net/netip"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cilium-pool/cilium-pool-operator/test/harness/script"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant/budgets"
)

// flow is a pod that pings the address of another one.
type flow struct {
	from, to     string
	fromID, toID types.UID
	address      string
}

// cmdFlows makes a pod of each node with an address of a range ping such pods of the other nodes.
func cmdFlows(ctx context.Context, e *env, a *script.Arguments) error {
	within, err := netip.ParsePrefix(a.Word())
	if err != nil {
		return err
	}
	pods, err := e.pods(ctx, "--selector=app=crowd")
	inside := map[string]corev1.Pod{}
	count := 0
	for _, p := range pods {
		if addr, err := netip.ParseAddr(p.Status.PodIP); err == nil && within.Contains(addr) {
			count++
			inside[p.Spec.NodeName] = p
		}
	}
	e.Check(count < len(pods) && len(inside) == e.options.nodes, "pods in "+within.String()+", elsewhere; on nodes", "%d, %d; %d", count, len(pods)-count, len(inside))
	for _, from := range inside {
		for _, to := range inside {
			if from.Name == to.Name {
				continue
			}
			if _, err := e.ask(ctx, from.Name, "http://127.0.0.1:8080/ping?peer="+to.Status.PodIP); err != nil {
				return err
			}
			e.flows = append(e.flows, flow{from: from.Name, to: to.Name, fromID: from.UID, toID: to.UID, address: to.Status.PodIP})
		}
	}
	return err
}

// cmdUnharmed checks that the pods of all flows still run, and have lost no ping.
func cmdUnharmed(ctx context.Context, e *env, _ *script.Arguments) error {
	now, results := map[string]types.UID{}, map[string]map[string]losses{}
	pods, err := e.pods(ctx, "--selector=app=crowd")
	for _, p := range pods {
		now[p.Name] = p.UID
	}
	for _, f := range e.flows {
		if now[f.from] == f.fromID && results[f.from] == nil && err == nil {
			results[f.from], err = e.pingsOf(ctx, f.from)
		}
	}
	sum, judged := lostByStaying(e.flows, now, results)
	e.Check(unharmed(e.flows, sum, judged), "flows between pods that were not evicted; pings lost", "%d of %d; %s", judged, len(e.flows), sum)
	return err
}

// lostByStaying adds up the losses between pods that both still exist, and counts these flows.
// results are the reports of pods, by the address that they ping.
func lostByStaying(flows []flow, now map[string]types.UID, results map[string]map[string]losses) (sum losses, judged int) {
	for _, f := range flows {
		if r, reported := results[f.from][f.address]; reported && now[f.from] == f.fromID && now[f.to] == f.toID {
			judged++
			sum = sum.add(r)
		}
	}
	return sum, judged
}

func unharmed(flows []flow, sum losses, judged int) bool {
	return sum.Lost == 0 && sum.Sent > 0 && judged == len(flows) && len(flows) > 0
}

// cmdBudgets starts to watch pods, or judges their budgets in the end.
func cmdBudgets(ctx context.Context, e *env, a *script.Arguments) (err error) {
	if !a.Take("held") {
		least := map[string]int{}
		for _, w := range a.Rest {
			app, n, _ := strings.Cut(w, "=")
			if least[app], err = strconv.Atoi(n); err != nil {
				return err
			}
		}
		e.watch, err = e.watchPods(ctx, budgets.New(least))
		return err
	}
	if e.watch == nil {
		return errors.New("no budgets are watched")
	}
	b, err := e.watch.end(ctx)
	for _, broken := range b.Broken {
		e.say("%s", broken)
	}
	e.Check(len(b.Broken) == 0 && b.Begun(), "fewest Ready pods of each budget, budgets", "%v, %v", b.Lowest, b.Least)
	e.Check(len(b.Evicted) > 0, "pods that the Eviction API deleted", "%d", len(b.Evicted))
	return err
}
