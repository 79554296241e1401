//go:build linux

package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cilium-pool/cilium-pool-operator/test/cluster/kube"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant/budgets"
)

//go:embed manifests/renumber.yaml
var renumberManifest string

const (
	// oldRange and stayRange are the CIDRs of the pool beijing in examples/pools.yaml.
	oldRange  = "100.66.224.0/19"
	stayRange = "100.67.0.0/20"
	newRange  = "100.69.0.0/19"
	// crowdedPods are more than the first blocks of three nodes have addresses for.
	crowdedPods = 75
	setPolicy   = `kubectl patch podippool beijing --type=json -p '[{"op":"add","path":"/spec/ipv4/cidrs/0/allocationPolicy","value":"%s"}]'`
	renumber    = "kubectl cilium-pool drain " + oldRange + " --to " + newRange + " --evict --restart-agents --yes --timeout=15m"
	// routesTimeout is the time for agents to follow the podCIDRs of other nodes.
	routesTimeout = 30 * time.Second
)

// renumberScenario moves three nodes from one CIDR of their pool to another, with evictions
// and restarts of agents, while pods with addresses of a third CIDR ping each other.
func renumberScenario(ctx context.Context, t *trial) error {
	s := setup{name: "two CIDRs", labels: poolLabel, pools: []string{"examples/pools.yaml"}}
	if err := t.startWith(ctx, s); err != nil {
		return err
	}
	if _, err := t.shell(ctx, quicken); err != nil {
		return err
	}
	if err := t.spreadOverRanges(ctx); err != nil {
		return err
	}
	flows, err := t.pingAcross(ctx)
	if err != nil {
		return err
	}
	agents, err := t.agentPods(ctx)
	if err != nil {
		return err
	}
	watch, err := t.watchPods(ctx, budgets.New(map[string]int{"shop": 5, "store": 2}))
	if err != nil {
		return err
	}
	began := time.Now()
	_, err = t.shell(ctx, renumber)
	t.check("kubectl cilium-pool drain --to --restart-agents succeeds, after", seconds(began), err == nil)
	if err != nil {
		t.say("%v", err)
	}
	judge, watchErr := watch.end(ctx)
	return errors.Join(watchErr, t.judgeRenumbered(ctx, judge, flows, agents))
}

// spreadOverRanges starts pods until each node has some with addresses of either CIDR.
func (t *trial) spreadOverRanges(ctx context.Context) error {
	if err := t.cluster.Apply(ctx, renumberManifest); err != nil {
		return err
	}
	if err := t.workloadsReady(ctx); err != nil {
		return err
	}
	if _, err := t.shell(ctx, fmt.Sprintf(setPolicy, "Cordon")); err != nil {
		return err
	}
	if err := t.scale(ctx, "crowd", crowdedPods); err != nil {
		return err
	}
	_, err := t.shell(ctx, fmt.Sprintf(setPolicy, "Allocate"))
	return err
}

func (t *trial) workloadsReady(ctx context.Context) error {
	for _, what := range []string{"deployment/crowd", "deployment/shop", "statefulset/store", "daemonset/probe"} {
		if err := t.rollout(ctx, "default", what, podsTimeout); err != nil {
			return err
		}
	}
	return nil
}

// pingAcross makes a pod of each node with an address of the range that stays ping such pods
// of the other nodes.
func (t *trial) pingAcross(ctx context.Context) ([]flow, error) {
	pods, err := t.probes(ctx, "crowd")
	if err != nil {
		return nil, err
	}
	stay, counts := map[string]corev1.Pod{}, map[bool]int{}
	for _, p := range pods {
		addr, err := netip.ParseAddr(p.Status.PodIP)
		if err != nil {
			return nil, fmt.Errorf("pod %s: %w", p.Name, err)
		}
		stays := netip.MustParsePrefix(stayRange).Contains(addr)
		if counts[stays]++; stays {
			stay[p.Spec.NodeName] = p
		}
	}
	t.check("pods of the crowd in "+oldRange+", in "+stayRange+"; on nodes", fmt.Sprintf("%d, %d; %d", counts[false], counts[true], len(stay)), len(stay) == t.options.nodes)
	var flows []flow
	for _, from := range stay {
		for _, to := range stay {
			if from.Name == to.Name {
				continue
			}
			if _, err := t.ask(ctx, from.Name, "http://127.0.0.1:8080/ping?peer="+to.Status.PodIP); err != nil {
				return nil, err
			}
			flows = append(flows, flow{from: from.Name, to: to.Name, fromID: from.UID, toID: to.UID, address: to.Status.PodIP})
		}
	}
	return flows, nil
}

// agentPods returns the UIDs of the agents' pods, by node.
func (t *trial) agentPods(ctx context.Context) (map[string]types.UID, error) {
	pods, err := query[corev1.PodList](ctx, t.bed, "pods", "--namespace=kube-system", "--selector=k8s-app=cilium")
	out := map[string]types.UID{}
	for _, p := range pods.Items {
		out[p.Spec.NodeName] = p.UID
	}
	return out, err
}

func (t *trial) judgeRenumbered(ctx context.Context, b *budgets.Judge, flows []flow, agents map[string]types.UID) error {
	if err := t.workloadsReady(ctx); err != nil {
		return err
	}
	r, err := t.renumbered(ctx, b, flows)
	if err != nil {
		return err
	}
	now, err := t.agentPods(ctx)
	if err != nil {
		return err
	}
	restarted := 0
	for node, uid := range agents {
		if now[node] != uid {
			restarted++
		}
	}
	t.note("agents restarted", fmt.Sprintf("%d of %d", restarted, len(agents)))
	t.check("pods that the Eviction API deleted", len(b.Evicted), len(b.Evicted) > 0)
	t.check("fewest Ready pods of shop (budget 5), of store (budget 2)", fmt.Sprintf("%d, %d", b.Lowest["shop"], b.Lowest["store"]), len(r.broken) == 0 && b.Begun())
	t.check("flows between pods that were not evicted; pings lost", fmt.Sprintf("%d of %d; %s", r.judged, r.flows, r.pings), r.unharmed())
	t.check("what blocks, CiliumNodes, pools and routes name of "+oldRange, len(r.left), len(r.left) == 0)
	for _, what := range append(r.broken, r.left...) {
		t.say("%s", what)
	}
	out, err := t.shell(ctx, "kubectl cilium-pool check")
	t.check("kubectl cilium-pool check finds nothing", err == nil, err == nil)
	if err != nil {
		t.say("%s", out)
	}
	return t.checkOperator(ctx)
}

// renumbered collects the results of the move.
func (t *trial) renumbered(ctx context.Context, b *budgets.Judge, flows []flow) (renumbered, error) {
	r := renumbered{flows: len(flows), broken: b.Broken}
	results, now := map[string]map[string]losses{}, map[string]types.UID{}
	pods, err := t.probes(ctx, "crowd")
	if err != nil {
		return r, err
	}
	for _, p := range pods {
		now[p.Name] = p.UID
	}
	for _, f := range flows {
		if now[f.from] != f.fromID || results[f.from] != nil {
			continue
		}
		if results[f.from], err = t.pingsOf(ctx, f.from); err != nil {
			return r, err
		}
	}
	r.pings, r.judged = lostByStaying(flows, now, results)
	read := false
	err = kube.Await(ctx, routesTimeout, "nothing names "+oldRange, func(ctx context.Context) (bool, string) {
		left, err := t.leftOf(ctx, netip.MustParsePrefix(oldRange))
		if err == nil {
			read, r.left = true, left
		}
		return err == nil && len(left) == 0, fmt.Sprint(left, err)
	})
	if !read {
		return r, err
	}
	return r, nil // judged by what is left at the end
}

// leftOf returns the names of blocks, CiliumNodes, pools and routes of nodes that name a
// range.
func (t *trial) leftOf(ctx context.Context, old netip.Prefix) ([]string, error) {
	var left []string
	for what, path := range map[string]string{"podipblocks": "{.items[*].spec}", "podippools": "{.items[*].spec}", "ciliumnodes": "{.items[*]}"} {
		text, err := t.cluster.Kubectl(ctx, "get", what, "--output=jsonpath="+path)
		if err != nil {
			return nil, err
		}
		for _, word := range harness.AddressesIn(text, old) {
			left = append(left, what+" name "+word)
		}
	}
	for number := 1; number <= t.options.nodes; number++ {
		node := kube.NodeName(number)
		text, err := t.cluster.State.Run(ctx, node, "ip", "-4", "route", "show", "table", "all")
		if err != nil {
			return nil, err
		}
		for _, word := range harness.AddressesIn(text, old) {
			left = append(left, node+" routes "+word)
		}
	}
	return left, nil
}
