package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/common"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/chaos/claims"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

const (
	// patience is how long anything may take once no more faults are injected.
	patience = 5 * time.Minute
	// restFor is how long nothing may be written at the end: longer than the longest retry
	// interval, so that a write on every retry is seen.
	restFor = common.LongestWait + 5*time.Second
)

// join creates pools and nodes, and waits until all agents accept pods.
func (c *chaos) join(ctx context.Context) error {
	if err := c.network.create(ctx); err != nil {
		return err
	}
	for i := range c.Nodes {
		if err := c.joinNode(ctx, nodeName(i)); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return c.fleet.Ready(ctx)
}

// settle checks what must happen once faults stop: all pods get addresses; once they
// are deleted, every node is back to the blocks it needs; the same again, on blocks
// that other nodes had; then nothing is written.
func (c *chaos) settle(ctx context.Context) error {
	if c.scenario.settle != nil {
		return c.scenario.settle(c, ctx)
	}
	if err := errors.Join(c.network.undrain(ctx), c.network.plenty(ctx)); err != nil {
		return err
	}
	if c.Mode.is(kubernetesMode) {
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
	return c.quiet(ctx)
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
	for i := range c.Nodes {
		has[nodeName(i)] = map[netip.Prefix]bool{}
	}
	for _, b := range blocks.Items {
		cidr, err := netip.ParsePrefix(b.Spec.CIDR)
		switch held, exists := has[b.Spec.NodeName]; {
		case err != nil:
			return err
		case !exists:
			return fmt.Errorf("block %s is of node %s, which is none", b.Name, b.Spec.NodeName)
		case len(b.Status.Conditions) > 0 || b.DeletionTimestamp != nil:
			return fmt.Errorf("block %s of %s is not in service", b.Name, b.Spec.NodeName)
		default:
			held[cidr] = true
		}
	}
	if len(nodes.Items) != c.Nodes {
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
	for _, cidr := range c.Mode.listOf(cn) {
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
	if len(own) != ownAddresses {
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
	if !c.Mode.is(crdMode) && inBlocks != len(own) {
		return fmt.Errorf("the agent of %s has %v for itself, and its blocks are %v", cn.Name, own, has)
	}
	if len(cn.Status.IPAM.ReleaseIPs) > 0 {
		return fmt.Errorf("%s has %d release-ips", cn.Name, len(cn.Status.IPAM.ReleaseIPs))
	}
	return nil
}

// poolsTell returns nil once the status of each pool matches its blocks, all of which are
// in service.
func (c *chaos) poolsTell(ctx context.Context) error {
	return c.poolsMatch(ctx, func(*v1alpha1.PodIPBlock) bool { return false })
}

// poolsMatch returns nil once the status of each pool matches its blocks, of which some may
// drain.
func (c *chaos) poolsMatch(ctx context.Context, mayDrain func(*v1alpha1.PodIPBlock) bool) error {
	blocks, pools := &v1alpha1.PodIPBlockList{}, &v1alpha1.PodIPPoolList{}
	if err := errors.Join(c.client.List(ctx, blocks), c.client.List(ctx, pools)); err != nil {
		return err
	}
	held, drain := map[string]int64{}, map[string]int64{}
	for i := range blocks.Items {
		b := &blocks.Items[i]
		held[b.Spec.PoolName]++
		if meta.IsStatusConditionTrue(b.Status.Conditions, v1alpha1.BlockDraining) && mayDrain(b) {
			drain[b.Spec.PoolName]++
		}
	}
	for _, p := range pools.Items {
		status := p.Status.IPv4
		if status == nil {
			return fmt.Errorf("pool %s has no status", p.Name)
		}
		if b := status.Blocks; b.InService+b.Draining != held[p.Name] || b.Draining != drain[p.Name] || b.CoolingDown != 0 {
			return fmt.Errorf("pool %s has %d blocks, of which %d may drain, and reports %+v", p.Name, held[p.Name], drain[p.Name], b)
		}
	}
	return nil
}

// quiet returns an error if anything but the Lease is written for a while.
func (c *chaos) quiet(ctx context.Context) error {
	if _, err := c.verdict(ctx, "/sync"); err != nil {
		return fmt.Errorf("the checker cannot follow: %w", err)
	}
	var written []struct{ Subject, Text string }
	if err := get(ctx, fmt.Sprintf("%s/quiet?for=%s", c.checker, cmp.Or(c.Rest, restFor)), &written); err != nil {
		return err
	}
	for _, w := range written {
		return fmt.Errorf("%w: %s %s", errBroken, w.Subject, w.Text)
	}
	v, err := c.verdict(ctx, "/sync")
	return errors.Join(err, judge(v))
}

// histories checks the history of each block with porcupine, and proves that the check
// finds wrong requests.
func (c *chaos) histories(ctx context.Context) error {
	h, err := c.history(ctx)
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.claims = h
	c.mu.Unlock()
	if err := h.Check(filepath.Join(c.dir, "history.html")); err != nil {
		return fmt.Errorf("%w: %w", errBroken, err)
	}
	return h.Prove()
}

func (c *chaos) history(ctx context.Context) (*claims.History, error) {
	var sightings []claims.Sighting
	if err := get(ctx, c.checker+"/sightings", &sightings); err != nil {
		return nil, err
	}
	var files []string
	for _, pattern := range []string{"audit*.log", "second/audit*.log"} { // they may have been rotated
		found, err := filepath.Glob(filepath.Join(c.dir, pattern))
		if err != nil {
			return nil, err
		}
		files = append(files, found...)
	}
	var logs []io.Reader
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		logs = append(logs, f)
	}
	c.mu.Lock()
	deaths := slices.Clone(c.deaths)
	c.mu.Unlock()
	return claims.Read(io.MultiReader(logs...), deaths, c.scenario.inFlight, sightings)
}

// enough returns an error if too little happened in a run.
func (c *chaos) enough(ctx context.Context) error {
	v, err := c.verdict(ctx, "/verdict")
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for kind := range c.operator {
		if line := c.operator[kind].panicked; line != "" {
			return fmt.Errorf("%s panicked: %s", c.operator[kind].name, line)
		}
	}
	leaders := c.scenario.leaders
	for _, l := range c.lanes() {
		for _, f := range l.faults {
			if c.faults[f.kind] == 0 {
				return fmt.Errorf("%w: no fault %q", errIdle, f.kind)
			}
		}
	}
	if c.Small || c.Only != "" {
		leaders = 0
	}
	if err := restored(c.fleet.Dropped.Load()); err != nil {
		return err
	}
	want := c.least()
	for _, least := range []struct {
		what      string
		got, want int
	}{
		{"leader changes", v.Leaders, leaders},
		{"times of blocks that are yet to come", v.Ahead, c.scenario.ahead},
		{"claims", v.Stats.Claims, c.Nodes + want.more},
		{"releases of blocks", v.Stats.Reclaims, want.releases},
		{"addresses released by handshake", v.Handshakes, want.handshakes},
		{"blocks given back by agents", v.GivenBack, want.givenBack},
		{"questions to the agents", v.Stats.AgentChecks, 5},
		{"claims in the history", c.claims.Requests["create done"], v.Stats.Claims},
		{"releases in the history", c.claims.Requests["remove done"], v.Stats.Reclaims},
		{"blocks claimed again", c.claims.Requests["create done"] - c.claims.Blocks(), want.again},
		{"publications in the history", c.claims.Requests["publish done"], c.Nodes},
	} {
		if least.got < least.want {
			return fmt.Errorf("%w: %d %s, at least %d are wanted", errIdle, least.got, least.what, least.want)
		}
	}
	return c.moves.enough(c.Nodes, v.Evictions)
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
