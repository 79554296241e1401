//go:build linux

package main

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/cilium-pool/cilium-pool-operator/test/e2e/bed"
)

// Flags that override what the example values set.
var (
	noRanges         = []string{"--ipv4-range=auto", "--ipv6-range=auto"}
	noEndpointRoutes = []string{"--enable-endpoint-routes=false"}
)

// route starts one agent with the example values, and others without those that concern
// routes. It checks which routes each agent installs, and whether its node reaches its own
// pod.
func route(ctx context.Context, e *env) error {
	e.options.Values = []string{"cilium-values-dual-stack.yaml"}
	n, _, err := e.startIPv6(ctx, true)
	if err != nil {
		return err
	}
	if err := e.judgeAgent(ctx, n, "values of the examples", 0, true); err != nil {
		return err
	}
	for _, agent := range []struct {
		name, what string
		flags      []string
		madeUp     int // routes to addresses that belong to no node or pod
		reached    bool
	}{
		{"norange", "without ipv4-range and ipv6-range", noRanges, 0, true},
		{"noroutes", "without endpointRoutes", noEndpointRoutes, 0, false},
		{"neither", "without either", append(slices.Clone(noRanges), noEndpointRoutes...), 2, false},
	} {
		n, err := e.AddNode(ctx, agent.name)
		if err != nil {
			return err
		}
		n.Flags = agent.flags
		if err := e.bringUp(ctx, n, nil); err != nil {
			return err
		}
		if err := e.judgeAgent(ctx, n, agent.what, agent.madeUp, agent.reached); err != nil {
			return err
		}
		if err := n.KillAgent(ctx); err != nil {
			return err
		}
	}
	return e.judgeRules(ctx)
}

// judgeAgent checks how many made-up routes an agent installs, and whether its node reaches
// its own pod.
func (e *env) judgeAgent(ctx context.Context, n *bed.Node, what string, want int, reached bool) error {
	if err := e.ownPod(ctx, n, what, reached); err != nil {
		return err
	}
	routes, err := n.Routes(ctx)
	if err != nil {
		return err
	}
	found := madeUp(routes)
	e.check(len(found) == want, what+": routes to addresses of no node or pod", "%d %v", len(found), found)
	return nil
}

// ownPod pings a pod from its own node.
func (e *env) ownPod(ctx context.Context, n *bed.Node, what string, reached bool) error {
	p, err := n.Run(ctx, "pod-"+n.Name)
	if err != nil {
		return err
	}
	sent, lost := 0, 0
	for _, a := range p.Addresses {
		flow, err := n.Ping(a, pingEvery)
		if err != nil {
			return err
		}
		if err := pause(ctx, probeTime); err != nil {
			return err
		}
		count, err := flow.Stop()
		if err != nil {
			return err
		}
		sent, lost = sent+count.Sent, lost+count.Lost
	}
	e.check(sent > 0 && (lost == 0) == reached, what+": packets lost from the node to its own pod, as kubelet's probes", "%d of %d", lost, sent)
	return nil
}

// madeUp returns the routes to Cilium's device whose destination is neither in the
// pool nor in one of the unused ranges of the examples.
func madeUp(routes []bed.Route) []string {
	var found []string
	for _, r := range routes {
		known := slices.ContainsFunc([]string{poolCIDR, poolCIDR6, "169.254.254.0/24", "100::/96", "fe80::/10"}, func(cidr string) bool {
			return netip.MustParsePrefix(cidr).Contains(r.To.Addr())
		})
		if r.Device == "cilium_host" && !known {
			found = append(found, fmt.Sprint(r.To))
		}
	}
	return found
}
