//go:build linux

package main

import (
	"context"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/cilium-pool/cilium-pool-operator/test/harness/script"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant/budgets"
)

// cmdBudgets starts to watch pods, or judges their budgets in the end.
func cmdBudgets(ctx context.Context, e *env, a *script.Arguments) (err error) {
	if a.Take("held") {
		if err := e.rules.Sync(ctx); err != nil {
			return err
		}
		b := e.budgets
		for _, broken := range b.Broken {
			e.say("%s", broken)
		}
		e.Check(len(b.Broken) == 0 && b.Begun(), "fewest Ready pods of each budget, budgets", "%v, %v", b.Lowest, b.Least)
		e.Check(len(b.Evicted) > 0, "pods that the Eviction API deleted", "%d", len(b.Evicted))
		return nil
	}
	least := map[string]int{}
	for _, w := range a.Rest {
		app, n, _ := strings.Cut(w, "=")
		if least[app], err = strconv.Atoi(n); err != nil {
			return err
		}
	}
	e.budgets = budgets.New(least)
	pods, err := e.pods(ctx)
	if err != nil {
		return err
	}
	for i := range pods {
		e.budgets.See(&pods[i], false)
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", e.cluster.Kubeconfig())
	if err != nil {
		return err
	}
	e.rules, err = invariant.Watch(ctx, cfg, invariant.Options{OnChange: func(c invariant.Change) {
		switch pod, is := c.New.(*corev1.Pod); {
		case is:
			e.budgets.See(pod, false)
		case c.Kind == invariant.KindPod:
			e.budgets.See(c.Old.(*corev1.Pod), true)
		}
	}})
	return err
}
