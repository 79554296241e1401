//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	ciliumv2alpha1 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/test/e2e/bed"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant/whole"
)

// The CIDRs of the two nodes: 14 addresses each, and 30.
var (
	listKept     = netip.MustParsePrefix("100.66.224.0/28") // full, with the agent's own address
	listDrained  = netip.MustParsePrefix("100.66.224.16/28")
	listReplaces = netip.MustParsePrefix("100.66.224.32/27")
	listProbe    = netip.MustParsePrefix("100.66.225.0/28")
)

const (
	defaultPool = "default"
	// parkingPool is a Cilium pool that no pod requests. A CIDR listed under it is routed, but
	// not used for allocation.
	parkingPool = "parking"
	// listedAgainAfter is how long a CIDR is missing from the pool default if the test does
	// not wait for the agent. It is longer than a watch takes.
	listedAgainAfter = 2 * time.Second

	keptPods    = 13 // fill listKept, with the router
	drainedPods = 2  // so few that the agent does not need an unused replacement
	newPods     = 4
)

// drainMultiPool tests how a CIDR can be drained in multi-pool mode. By hand, without an
// operator, it removes a CIDR with pods from the agent's list: outright, then with the CIDR in
// podCIDRs, then under a separate pool. It restarts the agent in between, and finally while
// the CIDR is away, which costs pods.
func drainMultiPool(ctx context.Context, e *env) error {
	d, err := startListDrain(ctx, e)
	if err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{d.outright, d.inPodCIDRs, d.parked, d.restartedAway, d.emptied, d.restartedTooLong} {
		if err = step(ctx); err != nil {
			break
		}
	}
	return errors.Join(err, d.gate.Close())
}

// drainMultiPoolNative runs drainMultiPool with native routing.
func drainMultiPoolNative(ctx context.Context, e *env) error {
	e.options.Native = true
	return drainMultiPool(ctx, e)
}

type listDrain struct {
	*env
	node          *bed.Node
	gate          *bed.Gate
	probe         *bed.Pod
	leaving       netip.Prefix // the CIDR of the drained pods
	kept, drained []*bed.Pod
	placed        []*bed.Pod // pods placed during drains
}

func startListDrain(ctx context.Context, e *env) (*listDrain, error) {
	e.options.IPAM, e.options.Values = multiPoolMode, []string{ciliumValues(multiPoolMode)}
	e.sandboxTime = sandboxTime
	if err := e.start(ctx); err != nil {
		return nil, err
	}
	pool := &ciliumv2alpha1.CiliumPodIPPool{ObjectMeta: metav1.ObjectMeta{Name: defaultPool}, Spec: ciliumv2alpha1.IPPoolSpec{
		IPv4: &ciliumv2alpha1.IPv4PoolSpec{CIDRs: []ciliumv2alpha1.PoolCIDR{"192.0.2.0/32"}, MaskSize: 32},
	}}
	if err := e.Client.Create(ctx, pool); err != nil {
		return nil, fmt.Errorf("create CiliumPodIPPool: %w", err)
	}
	d := &listDrain{env: e, leaving: listDrained}
	var err error
	if d.node, err = d.listed(ctx, "n1", listKept); err != nil {
		return nil, err
	}
	other, err := d.listed(ctx, "n2", listProbe)
	if err != nil {
		return nil, err
	}
	if d.gate, err = d.node.Gate(); err != nil {
		return nil, err
	}
	if d.kept, err = e.load(ctx, d.node, keptPods); err != nil {
		return nil, err
	}
	if err := d.list(ctx, nil, listKept, listDrained); err != nil {
		return nil, err
	}
	if d.drained, _, err = e.runStubborn(ctx, d.node, "drained", drainedPods); err != nil {
		return nil, err
	}
	if n := countIn(d.drained, listDrained.String()); n != drainedPods {
		return nil, fmt.Errorf("%d pods in %s, want %d", n, listDrained, drainedPods)
	}
	probes, err := e.load(ctx, other, 1)
	d.probe = probes[0]
	return d, err
}

// listed creates a node whose CiliumNode lists a CIDR before its agent starts.
func (d *listDrain) listed(ctx context.Context, name string, cidr netip.Prefix) (*bed.Node, error) {
	cn := &ciliumv2.CiliumNode{ObjectMeta: metav1.ObjectMeta{Name: name}}
	cn.Spec.IPAM.Pools.Allocated = allocated(nil, cidr)
	if err := d.Client.Create(ctx, cn); err != nil {
		return nil, fmt.Errorf("create CiliumNode: %w", err)
	}
	return d.env.node(ctx, name)
}

// outright removes the CIDR from the list and waits for the agent to add it again.
func (d *listDrain) outright(ctx context.Context) error {
	drained, err := d.traffic(d.drained...)
	if err != nil {
		return err
	}
	kept, err := d.traffic(d.kept[:drainedPods]...)
	if err != nil {
		return err
	}
	if err := d.list(ctx, nil, listKept); err != nil {
		return err
	}
	took, err := d.until(ctx, listDrained, true)
	if err != nil {
		return err
	}
	d.note("taken off the list: until the agent listed it again", "%.1f s", took.Seconds())
	if err := pause(ctx, probeTime); err != nil {
		return err
	}
	pods, host := d.countPings(drained.pods), d.countPings(drained.host)
	d.note("taken off the list: pings lost by its pods, from pods and from the other node", "%d of %d, %d of %d", pods.Lost, pods.Sent, host.Lost, host.Sent)
	d.judge(kept, "taken off the list: other pods")
	return d.restart(ctx, "restarted after the agent listed it again")
}

// restart restarts the agent, which forgets what was removed from its list.
func (d *listDrain) restart(ctx context.Context, what string) error {
	t, err := d.drainTraffic()
	if err != nil {
		return err
	}
	if err := d.node.RestartAgent(ctx); err != nil {
		return err
	}
	d.checkAssigned(ctx, d.node, d.all(), what+": pods restored")
	d.judge(t, what)
	return nil
}

func (d *listDrain) all() []*bed.Pod { return slices.Concat(d.kept, d.drained, d.placed) }

// inPodCIDRs moves the CIDR to podCIDRs, and waits for the agent to list it as well.
func (d *listDrain) inPodCIDRs(ctx context.Context) error {
	t, err := d.drainTraffic()
	if err != nil {
		return err
	}
	err = d.edit(ctx, func(spec *ciliumv2.NodeSpec) {
		spec.IPAM.Pools.Allocated = allocated(nil, listKept, listReplaces)
		spec.IPAM.PodCIDRs = prefixed([]netip.Prefix{listDrained})
	})
	if err != nil {
		return err
	}
	took, err := d.until(ctx, listDrained, true)
	if err != nil {
		return err
	}
	d.note("in podCIDRs: until the agent listed it again", "%.1f s", took.Seconds())
	if err := d.starve(ctx); err != nil {
		return err
	}
	if err := d.place(ctx, "in podCIDRs", newPods); err != nil {
		return err
	}
	// Until here it is listed twice.
	if err := d.edit(ctx, func(spec *ciliumv2.NodeSpec) { spec.IPAM.PodCIDRs = nil }); err != nil {
		return err
	}
	if err := pause(ctx, probeTime); err != nil {
		return err
	}
	d.judge(t, "in podCIDRs")
	return d.restart(ctx, "restarted after it left podCIDRs")
}

// starve checks whether the agent kept an unused replacement: an unpatched agent counts the
// free addresses of the drained CIDR as its own. It lists the replacement again.
func (d *listDrain) starve(ctx context.Context) error {
	has, err := d.lists(ctx, listReplaces)
	if err != nil {
		return err
	}
	if d.patched {
		d.check(has, "the unused replacement is still listed then", "%t", has)
	} else {
		d.note("the unused replacement is still listed then", "%t", has)
	}
	return d.list(ctx, nil, listKept, listDrained, listReplaces)
}

// place runs new pods, none of which may get an address of the drained CIDR.
func (d *listDrain) place(ctx context.Context, when string, count int) error {
	pods, again, err := d.runStubborn(ctx, d.node, fmt.Sprintf("placed-%d", len(d.placed)), count)
	if err != nil {
		return err
	}
	d.placed = append(d.placed, pods...)
	in := countIn(pods, d.leaving.String())
	d.check(in == 0, when+": new pods, those with an address of the drained CIDR; ADDs tried again", "%d, %d; %d", count, in, again)
	return nil
}

// parked moves the CIDR to a separate pool and back, and no other write follows.
func (d *listDrain) parked(ctx context.Context) error {
	t, err := d.drainTraffic()
	if err != nil {
		return err
	}
	if err := d.list(ctx, []netip.Prefix{listDrained}, listKept, listReplaces); err != nil {
		return err
	}
	took, err := d.until(ctx, listDrained, true)
	if err != nil {
		return err
	}
	cn, err := d.CiliumNode(ctx, d.node.Name)
	if err != nil {
		return err
	}
	left := len(whole.AssignedIn(cn, parkingPool))
	d.check(left == 0, "in a pool of its own: until the agent listed it again; left in that pool", "%.1f s; %d", took.Seconds(), left)
	if err := d.place(ctx, "in a pool of its own", newPods/2); err != nil {
		return err
	}
	if err := pause(ctx, probeTime); err != nil {
		return err
	}
	d.judge(t, "in a pool of its own")
	return nil
}

// away starts the agent while the CIDR is in a separate pool.
func (d *listDrain) away(ctx context.Context, cidr netip.Prefix, others ...netip.Prefix) error {
	if err := d.node.KillAgent(ctx); err != nil {
		return err
	}
	if err := d.list(ctx, []netip.Prefix{cidr}, others...); err != nil {
		return err
	}
	return d.node.StartAgent(ctx)
}

// restartedAway restarts the agent while the CIDR is away, and lists it again before the
// agent restores its pods.
func (d *listDrain) restartedAway(ctx context.Context) error {
	t, err := d.drainTraffic()
	if err != nil {
		return err
	}
	d.gate.Shut()
	if err := d.away(ctx, listDrained, listKept, listReplaces); err != nil {
		return err
	}
	if err := pause(ctx, hangTime); err != nil {
		return err
	}
	if err := d.list(ctx, nil, listKept, listDrained, listReplaces); err != nil {
		return err
	}
	if err := pause(ctx, listedAgainAfter); err != nil {
		return err
	}
	d.gate.Open()
	if err := d.node.WaitAgent(ctx); err != nil {
		return err
	}
	const what = "away as the agent starts, listed again before it restores"
	d.checkAssigned(ctx, d.node, d.all(), what+": pods restored")
	d.judge(t, what)
	return nil
}

// emptied drains the CIDR completely, listing it again without waiting for the agent.
func (d *listDrain) emptied(ctx context.Context) error {
	t, err := d.traffic(d.kept[0], d.placed[0])
	if err != nil {
		return err
	}
	drained, err := d.traffic(d.drained...)
	if err != nil {
		return err
	}
	if err := d.list(ctx, []netip.Prefix{listDrained}, listKept, listReplaces); err != nil {
		return err
	}
	if err := pause(ctx, listedAgainAfter); err != nil {
		return err
	}
	if err := d.list(ctx, nil, listKept, listDrained, listReplaces); err != nil {
		return err
	}
	when := fmt.Sprintf("away for %.0f s", listedAgainAfter.Seconds())
	if err := d.place(ctx, when, newPods/2); err != nil {
		return err
	}
	d.judge(drained, when)
	if err := d.deletePods(ctx, d.drained); err != nil {
		return err
	}
	d.drained = nil
	took, err := d.until(ctx, listDrained, false)
	if err != nil {
		return err
	}
	d.check(true, "its last pod deleted: until the agent took it off the list", "%.0f s", took.Seconds())
	d.judge(t, "its last pod deleted: other pods")
	return nil
}

// restartedTooLong restarts the agent while a CIDR with pods is away, and lists it again only
// once the agent is up.
func (d *listDrain) restartedTooLong(ctx context.Context) error {
	t, err := d.traffic(d.kept[0])
	if err != nil {
		return err
	}
	if err := d.away(ctx, listReplaces, listKept); err != nil {
		return err
	}
	if err := d.node.WaitAgent(ctx); err != nil {
		return err
	}
	if err := d.list(ctx, nil, listKept, listReplaces); err != nil {
		return err
	}
	d.noteLost(ctx, d.node, d.placed, "away until the agent is up: pods lost")
	d.checkAssigned(ctx, d.node, d.kept, "away until the agent is up: other pods restored")
	d.judge(t, "away until the agent is up: other pods")
	return nil
}
