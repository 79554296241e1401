//go:build linux

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"

	"github.com/cilium-pool/cilium-pool-operator/test/e2e/bed"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant/whole"
)

const (
	// wholeCooldown is longer than agents take to see their own writes.
	wholeCooldown = "--cooldown=10s"
	// spared is the agent's own address plus the most that it keeps free.
	spared = 1 + 16
	// killedPods need several blocks, together with the existing pods.
	killedPods = 90
)

// modesMultiPool runs nodes in multi-pool mode: they join, pods surge, most are
// deleted and blocks are returned, the agent and then the operator are killed.
// Cilium's own operator runs as well, with the flag that turns its IPAM off.
func modesMultiPool(ctx context.Context, e *env) error {
	flags := []string{"--leader-elect-lease-duration=4s", wholeCooldown}
	if err := e.startBeside(ctx, multiPoolMode, whole.InPools()); err != nil {
		return err
	}
	if err := e.operate(multiPoolMode, flags...); err != nil {
		return err
	}
	l := &wholeLife{env: e, ours: true}
	if err := l.run(ctx); err != nil {
		return err
	}
	if err := l.restartAgent(ctx, l.node, l.keep, l.probe, l.keep); err != nil {
		return err
	}
	if err := l.killOperators(ctx, append(flags, "--mode="+multiPoolMode)); err != nil {
		return err
	}
	return e.judgeWhole(ctx)
}

// modesMultiPoolPeer does the same with Cilium's own operator, as shipped except
// for the block size.
func modesMultiPoolPeer(ctx context.Context, e *env) error {
	e.options.IPAM, e.options.Values = multiPoolMode, []string{ciliumValues(multiPoolMode)}
	if err := e.start(ctx); err != nil {
		return err
	}
	_, err := e.StartCiliumOperator(ctx, fmt.Sprintf("--auto-create-cilium-pod-ip-pools=default=ipv4-cidrs:%s;ipv4-mask-size:%d", poolCIDR, blockSize))
	if err != nil {
		return err
	}
	l := &wholeLife{env: e}
	return l.run(ctx)
}

// wholeLife holds the steps that are run with either operator.
type wholeLife struct {
	*env
	ours  bool
	probe *bed.Pod // on a node of its own
	node  *bed.Node
	keep  []*bed.Pod
}

// run lets nodes join and pods surge, 4 and 16 at a time, and deletes most of the pods.
func (l *wholeLife) run(ctx context.Context) error {
	took, err := l.joinSome(ctx, "join", nil, nil)
	if err != nil {
		return err
	}
	l.note("Node created to agent ready, median of 3", "%.1f s", took.Seconds())
	if err := l.beginProbe(ctx); err != nil {
		return err
	}
	wide, err := l.surgeWhole(ctx, "wide", surgePods, 16)
	if err != nil {
		return err
	}
	if err := wide.KillAgent(ctx); err != nil {
		return err
	}
	if l.node, err = l.surgeWhole(ctx, "narrow", surgePods, 4); err != nil {
		return err
	}
	keep, drop := scattered(l.keep)
	return l.giveBack(ctx, keep, drop)
}

// beginProbe runs a pod on its own node.
func (l *wholeLife) beginProbe(ctx context.Context) error {
	other, err := l.begin(ctx, "probe")
	if err != nil {
		return err
	}
	pods, err := l.load(ctx, other, 1)
	l.probe = pods[0]
	return err
}

// begin brings up a node and checks that it has one block of each family.
func (l *wholeLife) begin(ctx context.Context, name string) (*bed.Node, error) {
	n, err := l.env.node(ctx, name)
	if err != nil {
		return nil, err
	}
	cn, err := l.CiliumNode(ctx, name)
	if err != nil {
		return nil, err
	}
	if l.ours {
		l.check(len(whole.AssignedTo(cn)) == l.families(), "blocks that "+name+" starts with", "%d", len(whole.AssignedTo(cn)))
	}
	return n, nil
}

// surgeWhole runs pods concurrently on their own node, and retries those that found no
// address. It sets l.keep to them.
func (l *wholeLife) surgeWhole(ctx context.Context, name string, count, width int) (*bed.Node, error) {
	n, err := l.begin(ctx, name)
	if err != nil {
		return nil, err
	}
	s := l.surgeSeen(ctx, n, "surge", count, width)
	l.noteSurge(s, width, l.ours)
	cn, err := l.CiliumNode(ctx, name)
	if err != nil {
		return nil, err
	}
	l.note("blocks at the end", "%d", len(whole.AssignedTo(cn)))
	began := time.Now()
	if err := l.attachRest(ctx, s.pods); err != nil {
		return nil, err
	}
	if s.noAddress+s.others > 0 {
		l.note("until the pods that failed had an address", "%.0f s", time.Since(began).Seconds())
	}
	l.keep = s.pods
	return n, nil
}

// giveBack deletes most pods, while the others are pinged from the other node every 5 ms, and
// waits until the node has no block that it does not need.
func (l *wholeLife) giveBack(ctx context.Context, keep, drop []*bed.Pod) error {
	before, err := l.CiliumNode(ctx, l.node.Name)
	if err != nil {
		return err
	}
	flows, err := flowsBetween(l.probe, keep, rapid)
	if err != nil {
		return err
	}
	if err := l.deletePods(ctx, drop); err != nil {
		return err
	}
	l.keep = keep
	began := time.Now()
	waitErr := l.Eventually(ctx, "the node has no block that it can do without", l.spare)
	if waitErr != nil {
		l.Logf("%v", waitErr)
	}
	took := time.Since(began)
	l.judgePings(flows, fmt.Sprintf("packets lost by the %d that stayed, both ways, every 5 ms", len(keep)))
	after, err := l.CiliumNode(ctx, l.node.Name)
	if err != nil {
		return err
	}
	with := 0
	for _, cidr := range whole.AssignedTo(after) {
		if inUse(after, cidr, keep) {
			with++
		}
	}
	l.check(waitErr == nil, "blocks before, after; of these with a pod or the router", "%d, %d; %d", len(whole.AssignedTo(before)), len(whole.AssignedTo(after)), with)
	l.note("from the last deletion until it was so", "%.0f s", took.Seconds())
	l.checkAssigned(ctx, l.node, keep, "pods whose address stayed")
	return waitErr
}

// spare returns an error while the node has a block more than it needs: nothing in it is in
// use and the others suffice, or, with our operator, the agent has returned it and it has not
// cooled down yet. The agent's request counts only once the agent has seen that pods were
// deleted.
func (l *wholeLife) spare(ctx context.Context) error {
	cn, err := l.CiliumNode(ctx, l.node.Name)
	if err != nil {
		return err
	}
	assigned, room, asked := whole.AssignedTo(cn), map[bool]int{}, map[bool]int{} // by whether they are IPv4
	for _, r := range cn.Spec.IPAM.Pools.Requested {
		if r.Pool == "default" {
			asked[true], asked[false] = r.Needed.IPv4Addrs, r.Needed.IPv6Addrs
		}
	}
	for ipv4, most := range asked {
		if most > len(l.keep)+spared {
			return fmt.Errorf("it requests %d addresses for %d pods; of IPv4: %t", most, len(l.keep), ipv4)
		}
	}
	for _, cidr := range assigned {
		room[cidr.Addr().Is4()] += wholeBlock(cidr.Bits(), cidr.Addr().Is4())
	}
	for _, cidr := range assigned {
		ipv4 := cidr.Addr().Is4()
		if !inUse(cn, cidr, l.keep) && room[ipv4]-wholeBlock(cidr.Bits(), ipv4) >= asked[ipv4] {
			return fmt.Errorf("%s is empty; %d of %d addresses are requested", cidr, asked[ipv4], room[ipv4])
		}
	}
	if !l.ours {
		return nil
	}
	held, err := l.blocksOf(ctx, l.node.Name)
	if err == nil && len(held) != len(assigned) {
		err = fmt.Errorf("%d PodIPBlocks, %d CIDRs assigned", len(held), len(assigned))
	}
	return err
}

// inUse reports whether a pod or the agent has an address of a CIDR.
func inUse(cn *ciliumv2.CiliumNode, cidr netip.Prefix, pods []*bed.Pod) bool {
	return countIn(pods, cidr.String()) > 0 || slices.ContainsFunc(whole.OwnAddresses(cn), cidr.Contains)
}

// checkAssigned checks that the agent has each of the pods at its address, and that
// this address lies in a CIDR assigned to the node.
func (e *env) checkAssigned(ctx context.Context, n *bed.Node, pods []*bed.Pod, what string) {
	missing := 0
	err := e.Eventually(ctx, "the agent has its pods", func(ctx context.Context) (err error) {
		missing, err = n.Has(ctx, pods)
		return err
	})
	cn, getErr := e.CiliumNode(ctx, n.Name)
	assigned := append(whole.AssignedTo(cn), prefixesOf(cn)...) // in kubernetes mode the agent writes podCIDRs
	for _, p := range pods {
		for _, a := range p.Addresses {
			if !slices.ContainsFunc(assigned, func(c netip.Prefix) bool { return c.Contains(a) }) {
				missing++
				err = fmt.Errorf("%s, at %s, lies in none of %v", p.Name, a, assigned)
			}
		}
	}
	if err != nil || getErr != nil {
		e.Logf("%v %v", err, getErr)
	}
	e.check(err == nil && getErr == nil, what, "%d of %d", len(pods)-missing, len(pods))
}

func prefixesOf(cn *ciliumv2.CiliumNode) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range cn.Spec.IPAM.PodCIDRs {
		out = append(out, p.Masked())
	}
	return out
}

// restartAgent kills and restarts an agent while a pod of another node pings its
// pods.
func (e *env) restartAgent(ctx context.Context, n *bed.Node, pods []*bed.Pod, probe *bed.Pod, pinged []*bed.Pod) error {
	flows, err := flowsBetween(probe, pinged, rapid)
	if err != nil {
		return err
	}
	if err := n.RestartAgent(ctx); err != nil {
		return err
	}
	e.checkAssigned(ctx, n, pods, "agent killed: pods restored at their address")
	e.judgePings(flows, "agent killed: packets lost over the restart, both ways, every 5 ms")
	return nil
}

// killOperators runs two operators and kills one or the other with SIGKILL every
// few seconds, while pods are added and deleted.
func (l *wholeLife) killOperators(ctx context.Context, flags []string) error {
	o := &operators{env: l.env, flags: flags, random: rand.New(rand.NewPCG(killSeed, killSeed))}
	killing, stop := context.WithCancel(ctx)
	defer stop()
	var done sync.WaitGroup
	var killErr error
	done.Go(func() { killErr = o.keepKilling(killing) })
	flows, err := flowsBetween(l.probe, l.keep, rapid)
	if err != nil {
		return err
	}
	s := l.surgeSeen(ctx, l.node, "killed", killedPods, 4)
	if err := l.attachRest(ctx, s.pods); err != nil {
		return err
	}
	l.note(fmt.Sprintf("operators killed: pods of %d that found no address at first", killedPods), "%d", s.noAddress)
	if err := l.deletePods(ctx, s.pods); err != nil {
		return err
	}
	// Most blocks are returned while operators are killed, the rest afterwards.
	if err := pause(ctx, 30*time.Second); err != nil {
		return err
	}
	stop()
	done.Wait()
	if killErr != nil {
		return killErr
	}
	err = l.Eventually(ctx, "the node has no block that it can do without", l.spare)
	if err != nil {
		l.Logf("%v", err)
	}
	l.check(err == nil, "operators killed; blocks came back", "%d; %t", o.killed, err == nil)
	l.judgePings(flows, "operators killed: packets lost, both ways, every 5 ms")
	l.checkAssigned(ctx, l.node, l.keep, "operators killed: pods at their address")
	return nil
}
