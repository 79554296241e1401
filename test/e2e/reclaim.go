//go:build linux

package main

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/e2e/bed"
)

const (
	pingEvery = 10 * time.Millisecond
	keepEvery = 20 // of 120 pods, 6 stay
)

// soon returns flags under which a reclaim starts within seconds. The handshake itself
// keeps its defaults.
func soon() []string {
	return []string{"--reclaim-idle-for=5s", "--agent-settle-time=5s", "--cooldown=5s"}
}

// reclaim deletes all but 6 scattered pods of 120, while the 6 are pinged from another node,
// and waits until the blocks have been returned.
func reclaim(ctx context.Context, e *env) error {
	n1, probe, pods, err := e.loaded(ctx, surgePods, soon()...)
	if err != nil {
		return err
	}
	keep, drop := scattered(pods)
	before, err := e.CiliumNode(ctx, n1.Name)
	if err != nil {
		return err
	}
	flows, err := startPings(probe, keep)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := e.deletePods(ctx, drop); err != nil {
		return err
	}
	e.Logf("%d pods deleted in %.0f s", len(drop), time.Since(began).Seconds())
	began = time.Now()
	waitErr := e.Eventually(ctx, "the blocks have gone back", func(ctx context.Context) error {
		return e.compact(ctx, n1.Name)
	})
	took := time.Since(began)
	e.judgePings(flows, "packets lost by the six, pinged from the other node every 10 ms")
	after, err := e.CiliumNode(ctx, n1.Name)
	if err != nil {
		return err
	}
	e.check(waitErr == nil, "blocks before and after", "%d, %d", len(before.Spec.IPAM.PodCIDRs), len(after.Spec.IPAM.PodCIDRs))
	e.note("addresses before and after; from the last deletion until it was so", "%d, %d; %.0f s",
		len(before.Spec.IPAM.Pool), len(after.Spec.IPAM.Pool), took.Seconds())
	if waitErr != nil {
		return waitErr
	}
	e.checkKept(ctx, n1, keep, "pods whose address stayed")
	e.checkRoutes(ctx, n1, probe.Node())
	return e.judgeRules(ctx)
}

// pair starts an operator, a node for the load, and another node with one pod that
// pings.
func (e *env) pair(ctx context.Context, operatorFlags ...string) (load *bed.Node, probe *bed.Pod, err error) {
	if err := e.start(ctx); err != nil {
		return nil, nil, err
	}
	if err := e.pool(ctx); err != nil {
		return nil, nil, err
	}
	return e.twoNodes(ctx, operatorFlags...)
}

// loaded calls pair and adds pods to the first node, which are not judged.
func (e *env) loaded(ctx context.Context, count int, operatorFlags ...string) (load *bed.Node, probe *bed.Pod, pods []*bed.Pod, err error) {
	if load, probe, err = e.pair(ctx, operatorFlags...); err == nil {
		pods, err = e.load(ctx, load, count)
	}
	return load, probe, pods, err
}

// twoNodes does the same as pair for existing pools.
func (e *env) twoNodes(ctx context.Context, operatorFlags ...string) (load *bed.Node, probe *bed.Pod, err error) {
	if err := e.watch(ctx); err != nil {
		return nil, nil, err
	}
	if e.operator, err = e.StartOperator(operatorFlags...); err != nil {
		return nil, nil, err
	}
	if load, err = e.node(ctx, "n1"); err != nil {
		return nil, nil, err
	}
	other, err := e.node(ctx, "n2")
	if err != nil {
		return nil, nil, err
	}
	probe, err = other.Run(ctx, "probe")
	return load, probe, err
}

// compact returns an error while a node holds more than it needs: except in one block in
// service of each family, every address in its pool must be used, and none may be on its way
// to release.
func (e *env) compact(ctx context.Context, name string) error {
	cn, err := e.CiliumNode(ctx, name)
	if err != nil {
		return err
	}
	if n := len(cn.Status.IPAM.ReleaseIPs); n > 0 {
		return fmt.Errorf("%d addresses are being released", n)
	}
	whole := map[bool]int{} // by whether they are IPv4
	for _, cidr := range cn.Spec.IPAM.PodCIDRs {
		ipv4 := cidr.Addr().Is4()
		whole[ipv4] += 0
		published, used, err := count(cn, cidr.String())
		switch {
		case err != nil:
			return err
		case published == wholeBlock(cidr.Bits(), ipv4) && used < published:
			whole[ipv4]++
		case published != used:
			return fmt.Errorf("%s has %d addresses, %d used", cidr, published, used)
		}
	}
	for ipv4, n := range whole {
		if n != 1 {
			return fmt.Errorf("%d blocks are in service, IPv4 %t", n, ipv4)
		}
	}
	blocks := &v1alpha1.PodIPBlockList{}
	if err := e.Client.List(ctx, blocks); err != nil {
		return err
	}
	held := 0
	for _, b := range blocks.Items {
		if b.Spec.NodeName == name {
			held++
		}
	}
	if held != len(cn.Spec.IPAM.PodCIDRs) {
		return fmt.Errorf("%d PodIPBlocks, %d podCIDRs", held, len(cn.Spec.IPAM.PodCIDRs))
	}
	return nil
}

// wholeBlock returns how many addresses a block has for pods.
func wholeBlock(bits int, ipv4 bool) int {
	if ipv4 {
		return 1<<(32-bits) - 2
	}
	return 1<<(128-bits) - 2
}

// count returns the number of a CIDR's addresses in a node's pool, and of those in use.
func count(cn *ciliumv2.CiliumNode, cidr string) (published, used int, err error) {
	prefix, err := netip.ParsePrefix(cidr)
	if err != nil {
		return 0, 0, fmt.Errorf("read podCIDRs: %w", err)
	}
	for ip := range cn.Spec.IPAM.Pool {
		if addr, err := netip.ParseAddr(ip); err == nil && prefix.Contains(addr) {
			published++
			if _, ok := cn.Status.IPAM.Used[ip]; ok {
				used++
			}
		}
	}
	return published, used, nil
}

func startPings(from *bed.Pod, to []*bed.Pod) ([]*bed.Pings, error) {
	var flows []*bed.Pings
	for _, p := range to {
		f, err := from.Ping(p.Address, pingEvery)
		if err != nil {
			return nil, err
		}
		flows = append(flows, f)
	}
	return flows, nil
}

// judgePings stops the flows and checks that no packet was lost.
func (e *env) judgePings(flows []*bed.Pings, what string) {
	total := e.countPings(flows)
	e.check(total.Lost == 0 && total.Sent > 0, what, "%d of %d, slowest %d ms", total.Lost, total.Sent, total.Slowest.Milliseconds())
}

// countPings stops the flows and adds up their counts.
func (e *env) countPings(flows []*bed.Pings) (total bed.Count) {
	for _, f := range flows {
		c, err := f.Stop()
		if err != nil {
			e.Logf("%v", err)
		}
		if c.Lost > 0 {
			e.Logf("%d of %d pings to %s lost, the first %.1f s ago", c.Lost, c.Sent, f.Target(), time.Since(c.FirstLost).Seconds())
		}
		total.Sent += c.Sent
		total.Lost += c.Lost
		total.Slowest = max(total.Slowest, c.Slowest)
	}
	return total
}

// checkKept checks that the agent has every one of the pods, at its address,
// which is in the node's pool.
func (e *env) checkKept(ctx context.Context, n *bed.Node, pods []*bed.Pod, what string) {
	missing := 0
	err := e.Eventually(ctx, "the agent has its pods", func(ctx context.Context) (err error) {
		missing, err = n.Has(ctx, pods)
		return err
	})
	cn, getErr := e.CiliumNode(ctx, n.Name)
	if getErr == nil {
		for _, p := range pods {
			if !slices.ContainsFunc(p.Addresses, func(a netip.Addr) bool { _, ok := cn.Spec.IPAM.Pool[a.String()]; return !ok }) {
				continue
			}
			missing++
			err = fmt.Errorf("%s of %s are not all in the pool", p.Addresses, p.Name)
		}
	}
	if err != nil || getErr != nil {
		e.Logf("%v %v", err, getErr)
	}
	e.check(err == nil && getErr == nil, what, "%d of %d", len(pods)-missing, len(pods))
}

// checkRoutes checks that the other node routes to the blocks of n, and to no other part of
// the pool except its own.
func (e *env) checkRoutes(ctx context.Context, n, other *bed.Node) {
	var want, got []string
	err := e.Eventually(ctx, "the routes follow", func(ctx context.Context) error {
		cn, err := e.CiliumNode(ctx, n.Name)
		if err != nil {
			return err
		}
		want, got = podCIDRs(cn), nil
		own, err := e.CiliumNode(ctx, other.Name)
		if err != nil {
			return err
		}
		routes, err := other.Routes(ctx)
		if err != nil {
			return err
		}
		for _, r := range routes {
			if isBlock(r.To) && !slices.Contains(podCIDRs(own), r.To.String()) && e.leads(r, n) {
				got = append(got, r.To.String())
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			return fmt.Errorf("routes %v, podCIDRs %v", got, want)
		}
		return nil
	})
	if err != nil {
		e.Logf("%v", err)
	}
	e.check(err == nil, "routes of the other node to it, podCIDRs", "%d, %d", len(got), len(want))
}

// scattered splits pods: every keepEvery-th stays, the others do not.
func scattered(pods []*bed.Pod) (keep, drop []*bed.Pod) {
	for i, p := range pods {
		if i%keepEvery == 0 {
			keep = append(keep, p)
		} else {
			drop = append(drop, p)
		}
	}
	return keep, drop
}

// isBlock reports whether a prefix may be a block of the pool: neither the whole pool nor a
// single pod.
func isBlock(p netip.Prefix) bool {
	for _, cidr := range []string{poolCIDR, poolCIDR6} {
		whole := netip.MustParsePrefix(cidr)
		if whole.Contains(p.Addr()) {
			return whole.Bits() < p.Bits() && !p.IsSingleIP()
		}
	}
	return false
}

// leads reports whether a route of another node leads to n: into the tunnel, or straight to
// its address.
func (e *env) leads(r bed.Route, n *bed.Node) bool {
	if !e.options.Native {
		return r.Device == "cilium_host"
	}
	return r.Device == "eth0" && slices.Contains(n.Addresses, r.Via)
}

func podCIDRs(cn *ciliumv2.CiliumNode) []string {
	var out []string
	for _, c := range cn.Spec.IPAM.PodCIDRs {
		out = append(out, c.String())
	}
	slices.Sort(out)
	return out
}
