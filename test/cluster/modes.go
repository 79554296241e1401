//go:build linux

package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/test/cluster/kube"
)

//go:embed manifests/crowd.yaml
var crowdManifest string

// crowdPods are more than a block of examples/ has addresses for, in either family.
const crowdPods = 70

// modeSetups returns the ways to install the operator in addition to docs/install.md, each
// with the values of examples/ for it.
func modeSetups() []setup {
	pools := []string{"examples/pools.yaml"}
	return []setup{
		{name: "multi-pool", labels: poolLabel, pools: pools, cilium: []string{"examples/cilium-values-multi-pool.yaml"}, operator: []string{"examples/values-multi-pool.yaml"}},
		{name: "kubernetes", labels: poolLabel, oneBlock: true, cilium: []string{"examples/cilium-values-kubernetes.yaml"},
			operator: []string{"examples/values-pools.yaml", "examples/values-kubernetes.yaml"}},
		{name: "dual-stack", labels: "node-restriction.kubernetes.io/dual-stack=true", dualStack: true,
			pools: []string{"examples/pool-dual-stack.yaml"}, cilium: []string{"examples/cilium-values-dual-stack.yaml"}},
		{name: "tunnel", labels: poolLabel, pools: pools, cilium: []string{"test/cluster/values/tunnel.yaml"}},
	}
}

// modeScenarios returns one scenario for each setup.
func modeScenarios() []scenario {
	var out []scenario
	for _, s := range modeSetups() {
		out = append(out, scenario{name: "modes-" + s.name, alone: true, run: func(ctx context.Context, t *trial) error {
			began := time.Now()
			if err := t.startWith(ctx, s); err != nil {
				return err
			}
			t.check("agents, operator, nodes, DNS and probes Ready, after", seconds(began), true)
			return t.works(ctx, s)
		}})
	}
	return out
}

// works judges a cluster with more pods on a node than a block has addresses: Services answer
// on every node, and pods reach each other.
func (t *trial) works(ctx context.Context, s setup) error {
	served, asked, err := t.servedFrom(ctx)
	if err != nil {
		return err
	}
	t.check("the Service answers each node and a pod on each", fmt.Sprintf("%d of %d", served, asked), served == asked)
	if err := t.meet(ctx, "probe", "pods of all nodes reach each other"); err != nil {
		return err
	}
	if err := t.crowd(ctx, s); err != nil {
		return err
	}
	if err := t.meet(ctx, "crowd", "pods of other nodes reach one of each block"); err != nil {
		return err
	}
	_, lacked, example, err := t.failedSandboxes(ctx)
	if err != nil {
		return err
	}
	if lacked > 0 {
		t.say("for example: %s", example)
	}
	t.check("sandboxes that failed for lack of an address", lacked, lacked == 0)
	return t.checkOperator(ctx)
}

// crowd starts more pods on one node than its first block has addresses.
func (t *trial) crowd(ctx context.Context, s setup) error {
	before, err := t.burstBlocks(ctx)
	if err != nil {
		return err
	}
	if err := t.cluster.Apply(ctx, crowdManifest); err != nil {
		return err
	}
	if err := t.scale(ctx, "crowd", crowdPods); err != nil {
		return err
	}
	after, err := t.burstBlocks(ctx)
	if err != nil {
		return err
	}
	grown := after > before
	if s.oneBlock {
		grown = after == 1
	}
	t.check("blocks of "+burstNode+" before and with these pods", fmt.Sprintf("%d, %d", before, after), grown)
	return nil
}

// meet makes the probe of each node request the pods of an app on other nodes, at each of
// their addresses: one pod of each block.
func (t *trial) meet(ctx context.Context, app, what string) error {
	reached, asked, err := t.reach(ctx, app, true)
	t.check(what, fmt.Sprintf("%d of %d", reached, asked), reached == asked && asked > 0)
	return err
}

// reach counts the addresses that probes of other nodes reach. With patience each gets some
// time for that, else a single request.
func (t *trial) reach(ctx context.Context, app string, patience bool) (reached, asked int, err error) {
	from, err := t.probes(ctx, "probe")
	if err != nil {
		return 0, 0, err
	}
	targets, err := t.onePerBlock(ctx, app)
	if err != nil {
		return 0, 0, err
	}
	for _, probe := range from {
		for _, target := range targets {
			if target.node == probe.Spec.NodeName {
				continue
			}
			asked++
			if t.reaches(ctx, probe.Name, target.address, patience) {
				reached++
			}
		}
	}
	return reached, asked, nil
}

func (t *trial) reaches(ctx context.Context, probe, address string, patience bool) bool {
	url := "http://" + net.JoinHostPort(address, "8080") + "/"
	if !patience {
		_, err := t.ask(ctx, probe, url)
		return err == nil
	}
	err := kube.Await(ctx, 20*time.Second, probe+" reaches "+url, func(ctx context.Context) (bool, string) {
		out, err := t.ask(ctx, probe, url)
		return err == nil, fmt.Sprint(out, err)
	})
	if err != nil {
		t.say("%v", err)
	}
	return err == nil
}

type target struct{ node, address string }

// onePerBlock returns one address for each node's block that has a pod of the app; every block
// must have such a pod.
func (t *trial) onePerBlock(ctx context.Context, app string) ([]target, error) {
	blocks, err := query[blockList](ctx, t.bed, "podipblocks")
	if err != nil {
		return nil, err
	}
	pods, err := t.probes(ctx, app)
	if err != nil {
		return nil, err
	}
	var targets []target
	seen := map[string]bool{}
	for _, pod := range pods {
		for _, ip := range pod.Status.PodIPs {
			cidr := blocks.of(ip.IP)
			if cidr == "" {
				return nil, fmt.Errorf("pod %s has %s, which is in no block", pod.Name, ip.IP)
			}
			if !seen[cidr] {
				seen[cidr] = true
				targets = append(targets, target{pod.Spec.NodeName, ip.IP})
			}
		}
	}
	if len(targets) == 0 {
		return nil, errors.New("no pod of " + app + " has an address")
	}
	return targets, nil
}

// of returns the block that contains an address.
func (l blockList) of(address string) string {
	ip, err := netip.ParseAddr(address)
	if err != nil {
		return ""
	}
	i := slices.IndexFunc(l.Items, func(b block) bool {
		cidr, err := netip.ParsePrefix(b.Spec.CIDR)
		return err == nil && cidr.Contains(ip)
	})
	if i < 0 {
		return ""
	}
	return l.Items[i].Spec.CIDR
}
