package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/common"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant/whole"
)

const (
	// patience limits each wait once no more faults are injected. The operator infers after seven minutes that an agent has
	// closed a CIDR (docs/modes.md#draining).
	patience = 8 * time.Minute
	// restFor is the time without any write at the end: longer than the longest retry interval,
	// so that a write on every retry is seen.
	restFor = common.LongestWait + 5*time.Second
)

// join creates pools and nodes, and waits until all agents accept pods.
func (c *chaos) join(ctx context.Context) error {
	if err := c.network.create(ctx); err != nil {
		return err
	}
	if err := c.storeLater(ctx); err != nil {
		return err
	}
	for i := range c.nodes {
		if err := c.joinNode(ctx, nodeName(i)); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return c.fleet.Ready(ctx)
}

// settle checks the outcome once faults stop: all pods get addresses; once they
// are deleted, every node is back to the blocks it needs; the same again, on blocks
// that other nodes had; then no write follows.
func (c *chaos) settle(ctx context.Context) error {
	if err := errors.Join(c.upgradeAll(), c.network.undrain(ctx, nil), c.network.plenty(ctx)); err != nil {
		return err
	}
	if c.mode == kubernetesMode {
		if err := c.replaceDrained(ctx); err != nil {
			return err
		}
	}
	ready, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := c.fleet.Ready(ready); err != nil {
		return err
	}
	for _, step := range []struct {
		what  string
		holds func(context.Context) error
	}{
		{"every pod has an address", c.demandMet},
		{"all pods are gone", c.podsGone},
		{"blocks are back", c.blocksBack},
		{"pods came again", func(ctx context.Context) error { c.load.surge(ctx); return nil }},
		{"every pod has an address", c.demandMet},
		{"all pods are gone", c.podsGone},
		{"blocks are back", c.blocksBack},
		{"the pools say so", c.poolsTell},
		// An agent's last report, or a status update, may still be in flight.
		{"nothing moves", harness.Still(c.client, 2*time.Second)},
	} {
		begin := time.Now()
		if err := until(ctx, patience, step.holds); err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
		c.say("  %s, after %.1f s", step.what, time.Since(begin).Seconds())
	}
	rest := restFor
	if c.small {
		rest = 5 * time.Second
	}
	return errors.Join(c.checker.quiet(ctx, rest), judge(c.checker.tell()))
}

func (c *chaos) demandMet(ctx context.Context) error {
	pods := &corev1.PodList{}
	if err := c.client.List(ctx, pods, client.HasLabels{podLabel}); err != nil {
		return err
	}
	for _, pod := range pods.Items {
		if pod.DeletionTimestamp == nil && pod.Status.PodIP == "" {
			return fmt.Errorf("pod %s on %s has no address", pod.Name, pod.Spec.NodeName)
		}
	}
	return nil
}

func (c *chaos) podsGone(ctx context.Context) error {
	pods := &corev1.PodList{}
	if err := c.client.List(ctx, pods, client.HasLabels{podLabel}); err != nil {
		return err
	}
	for i := range pods.Items {
		if pods.Items[i].DeletionTimestamp != nil {
			continue
		}
		if err := c.client.Delete(ctx, &pods.Items[i], client.GracePeriodSeconds(1)); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	if n := len(pods.Items); n > 0 {
		return fmt.Errorf("%d pods are there", n)
	}
	return nil
}

// blocksBack returns nil once each node has only the blocks with its agent's own
// addresses, all of them in service and listed.
func (c *chaos) blocksBack(ctx context.Context) error {
	blocks, nodes := &v1alpha1.PodIPBlockList{}, &ciliumv2.CiliumNodeList{}
	if err := errors.Join(c.client.List(ctx, blocks), c.client.List(ctx, nodes)); err != nil {
		return err
	}
	has := map[string]map[netip.Prefix]bool{}
	for i := range c.nodes {
		has[nodeName(i)] = map[netip.Prefix]bool{}
	}
	for _, b := range blocks.Items {
		cidr, err := netip.ParsePrefix(b.Spec.CIDR)
		switch held, exists := has[b.Spec.NodeName]; {
		case err != nil:
			return err
		case !exists:
			return fmt.Errorf("block %s is of node %s, which is none", b.Name, b.Spec.NodeName)
		case b.Status.Phase != v1alpha1.PhaseInService || b.DeletionTimestamp != nil:
			return fmt.Errorf("block %s of %s is not in service", b.Name, b.Spec.NodeName)
		default:
			held[cidr] = true
		}
	}
	if len(nodes.Items) != c.nodes {
		return fmt.Errorf("there are %d CiliumNodes", len(nodes.Items))
	}
	if err := c.nodesTell(ctx, has); err != nil {
		return err
	}
	for i := range nodes.Items {
		if err := c.needed(&nodes.Items[i], has[nodes.Items[i].Name]); err != nil {
			return err
		}
	}
	return nil
}

// needed returns an error unless a node has exactly the blocks that it must keep.
func (c *chaos) needed(cn *ciliumv2.CiliumNode, has map[netip.Prefix]bool) error {
	listed := map[netip.Prefix]bool{}
	for _, cidr := range c.mode.listOf(cn) {
		listed[cidr] = true
	}
	if !maps.Equal(listed, has) {
		return fmt.Errorf("%s lists %v and holds %v", cn.Name, listed, has)
	}
	m := c.fleet.Machine(cn.Name)
	if m == nil {
		return fmt.Errorf("%s has no machine", cn.Name)
	}
	own := m.Own()
	if len(own) != c.mode.ownAddresses() {
		return fmt.Errorf("the agent of %s has %v for itself", cn.Name, own)
	}
	inBlocks := 0
	for cidr := range has {
		if !slices.ContainsFunc(own, cidr.Contains) {
			return fmt.Errorf("%s still holds %s, which nothing on it needs", cn.Name, cidr)
		}
		for _, addr := range own {
			if cidr.Contains(addr) {
				inBlocks++
			}
		}
	}
	if c.mode != crdMode && inBlocks != len(own) {
		return fmt.Errorf("the agent of %s has %v for itself, and its blocks are %v", cn.Name, own, has)
	}
	if len(cn.Status.IPAM.ReleaseIPs) > 0 {
		return fmt.Errorf("%s has %d release-ips", cn.Name, len(cn.Status.IPAM.ReleaseIPs))
	}
	return nil
}

// poolsTell returns nil once the status of each pool matches its blocks, and all of these are in
// service.
func (c *chaos) poolsTell(ctx context.Context) error {
	blocks, pools := &v1alpha1.PodIPBlockList{}, &v1alpha1.PodIPPoolList{}
	if err := errors.Join(c.client.List(ctx, blocks), c.client.List(ctx, pools)); err != nil {
		return err
	}
	held := map[string]int64{}
	for i := range blocks.Items {
		held[blocks.Items[i].Spec.PoolName]++
	}
	for _, p := range pools.Items {
		var b v1alpha1.StateCounts
		for _, status := range []*v1alpha1.FamilyStatus{p.Status.IPv4, p.Status.IPv6} {
			if status != nil {
				b.InService += status.Blocks.InService
				b.Draining += status.Blocks.Draining
				b.CoolingDown += status.Blocks.CoolingDown
			}
		}
		if p.Status.IPv4 == nil || b.InService != held[p.Name] || b.Draining != 0 || b.CoolingDown != 0 {
			return fmt.Errorf("pool %s has %d blocks, and reports %+v", p.Name, held[p.Name], p.Status)
		}
	}
	return nil
}

// nodesTell returns nil once, in kubernetes mode, each Node assigns to its agent exactly
// the block that it holds.
func (c *chaos) nodesTell(ctx context.Context, has map[string]map[netip.Prefix]bool) error {
	if c.mode != kubernetesMode {
		return nil
	}
	nodes := &corev1.NodeList{}
	if err := c.client.List(ctx, nodes); err != nil {
		return err
	}
	for i := range nodes.Items {
		node := &nodes.Items[i]
		assigned := whole.NodeCIDRs(node)
		if len(assigned) != 1 || len(has[node.Name]) != 1 || !has[node.Name][assigned[0]] {
			return fmt.Errorf("%s is assigned %v and holds %v", node.Name, assigned, has[node.Name])
		}
	}
	return nil
}

// replaceDrained ends drains in kubernetes mode: it deletes the nodes of deleted blocks,
// and recreates them once the blocks are gone.
func (c *chaos) replaceDrained(ctx context.Context) error {
	deleted := func(ctx context.Context) (map[types.UID]string, error) {
		blocks, nodes := &v1alpha1.PodIPBlockList{}, map[types.UID]string{}
		err := persist(ctx, func(ctx context.Context) error { return c.client.List(ctx, blocks) })
		for i := range blocks.Items {
			if b := &blocks.Items[i]; b.DeletionTimestamp != nil {
				nodes[b.UID] = b.Spec.NodeName
			}
		}
		return nodes, err
	}
	drained, err := deleted(ctx)
	if err != nil {
		return err
	}
	nodes := map[string]bool{}
	for _, node := range drained {
		nodes[node] = true
	}
	for node := range nodes {
		if err := c.removeNode(ctx, node); err != nil {
			return err
		}
	}
	err = until(ctx, patience, func(ctx context.Context) error {
		left, err := deleted(ctx)
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("blocks of nodes that are gone are there: %v", left)
		}
		return err
	})
	for node := range nodes {
		if err == nil {
			err = c.joinNode(ctx, node)
		}
	}
	if len(nodes) > 0 && err == nil {
		c.say("  nodes whose blocks were deleted are replaced: %d", len(nodes))
	}
	return err
}

// enough returns an error if too little happened in a run, or an operator panicked.
func (c *chaos) enough(ctx context.Context) error {
	if err := c.keptLater(ctx); err != nil {
		return err
	}
	v := c.checker.tell()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range c.operator {
		if o.panicked != "" {
			return fmt.Errorf("%s panicked: %s", o.name, o.panicked)
		}
	}
	for _, l := range c.lanes() {
		for _, f := range l.faults {
			if c.faults[f.kind] == 0 {
				return fmt.Errorf("%w: no fault %q", errIdle, f.kind)
			}
		}
	}
	if err := restored(c.fleet.Dropped.Load()); err != nil {
		return err
	}
	want, leaders := c.mode.least(c.small), c.scenario.leaders
	if c.small {
		leaders = 0
	}
	for _, least := range []struct {
		what      string
		got, want int
	}{
		{"leader changes", v.leaders, leaders},
		{"claims", v.stats.Claims, c.nodes + want.more},
		{"releases of blocks", v.stats.Reclaims, want.releases},
		{"addresses released by handshake", v.handshakes, want.handshakes},
		{"blocks given back by agents", v.givenBack, want.givenBack},
		{"questions to the agents", v.stats.AgentChecks, 5},
		{"blocks claimed again", v.again, want.again},
	} {
		if least.got < least.want {
			return fmt.Errorf("%w: %d %s, at least %d are wanted", errIdle, least.got, least.what, least.want)
		}
	}
	return nil
}

// restored returns an error if agents could not restore pods. In crd mode the window of their
// protocol (docs/reliability.md) permits that; no run has seen it, so each case is
// investigated.
func restored(dropped int64) error {
	if dropped > 0 {
		return fmt.Errorf("%w: %d pods were not restored when their agents restarted", errBroken, dropped)
	}
	return nil
}

var errIdle = errors.New("this run has tried too little")
