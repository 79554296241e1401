package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

var zones = []string{"east", "west"}

const (
	// blockBits is the prefix length of blocks: a node gets 32 addresses at a time, 30 of them
	// usable for pods.
	blockBits, usable = 27, 30
	// cidrBits is the prefix length of a pool's CIDRs, which have 8 blocks each.
	cidrBits  = 24
	cidrPods  = usable << (blockBits - cidrBits)
	agentsOwn = 2 // router and health
	// nodesPerCIDR gives 2.7 blocks per node.
	nodesPerCIDR = 3

	steerEvery = 200 * time.Millisecond
	// waveFor is how long a wave of too many pods lasts, dipFor a dip, and drainFor how long a
	// CIDR drains at most.
	waveFor, dipFor, drainFor = 5 * time.Second, 6 * time.Second, 10 * time.Second
	// changeEvery is the interval between changes.
	changeEvery = time.Second
	// overfull is the number of pods in a wave, in percent of the addresses.
	overfull = 103
)

// people simulates people who add and remove nodes, and who change pools.
type people struct {
	*cluster
	load   *load
	random *rand.Rand
	// boot starts the agent of a node, which runs until the trial ends.
	boot func(node string)

	mu sync.Mutex
	// nodes are the current nodes, with their zones; cidrs are those of each zone's pool from
	// which nodes get blocks.
	nodes map[string]string
	cidrs map[string][]netip.Prefix
	// joined and added number nodes and CIDRs.
	joined, added int
	done          map[string]int // number of changes by kind
	// scale is the share of the usual number of pods to run, in percent.
	scale atomic.Int64
}

// steer keeps a share of all addresses in use, in percent, by creating and deleting pods. With
// overfill, there are more pods than addresses for a third of the time.
func (p *people) steer(ctx context.Context, share int, overfill bool) {
	for turn := 0; ; turn++ {
		now := share
		if overfill && turn/int(waveFor/steerEvery)%3 == 2 {
			now = overfull
		}
		p.load.keep(p.capacity()*now/100*int(p.scale.Load())/100, true)
		if harness.Sleep(ctx, steerEvery) != nil {
			return
		}
	}
}

// capacity returns how many pods can have an address once all blocks are assigned.
func (p *people) capacity() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := -agentsOwn * len(p.nodes)
	for _, cidrs := range p.cidrs {
		n += cidrPods * len(cidrs)
	}
	return n
}

// found creates the pools and the nodes, and waits until their agents accept pods.
func (p *people) found(ctx context.Context) error {
	perZone := max(1, (p.settings.nodes/len(zones)+nodesPerCIDR-1)/nodesPerCIDR)
	for _, zone := range zones {
		for range perZone {
			p.cidrs[zone] = append(p.cidrs[zone], p.nextCIDR())
		}
		if err := p.client.Create(ctx, poolOf(zone, p.cidrs[zone])); err != nil {
			return fmt.Errorf("create pool %s: %w", zone, err)
		}
	}
	for i := range p.settings.nodes {
		if err := p.join(ctx, zones[i%len(zones)]); err != nil {
			return err
		}
	}
	return p.fleet.Ready(ctx)
}

// poolOf returns the pool for the nodes of a zone.
func poolOf(zone string, cidrs []netip.Prefix) *v1alpha1.PodIPPool {
	pool := &v1alpha1.PodIPPool{ObjectMeta: metav1.ObjectMeta{Name: zone}}
	pool.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelTopologyZone: zone}}
	pool.Spec.IPv4 = &v1alpha1.IPv4Ranges{BlockSize: blockBits}
	for _, cidr := range cidrs {
		pool.Spec.IPv4.CIDRs = append(pool.Spec.IPv4.CIDRs, v1alpha1.PoolCIDR{CIDR: cidr.String()})
	}
	return pool
}

func (p *people) nextCIDR() netip.Prefix {
	p.added++
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{100, byte(64 + p.added/256), byte(p.added), 0}), cidrBits)
}

// join adds a node that admits more pods than there are addresses.
func (p *people) join(ctx context.Context, zone string) error {
	p.mu.Lock()
	p.joined++
	number := p.joined
	p.mu.Unlock()
	name := fmt.Sprintf("node-%d", number)
	address := netip.AddrFrom4([4]byte{172, 16, byte(number / 250), byte(1 + number%250)})
	labels := map[string]string{corev1.LabelHostname: name, corev1.LabelTopologyZone: zone}
	if err := harness.JoinNode(ctx, p.client, name, address.String(), labels); err != nil {
		return err
	}
	node := &corev1.Node{}
	if err := p.client.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
		return err
	}
	before := node.DeepCopy()
	for _, list := range []*corev1.ResourceList{&node.Status.Capacity, &node.Status.Allocatable} {
		if *list == nil {
			*list = corev1.ResourceList{}
		}
		(*list)[corev1.ResourceCPU] = resource.MustParse("1000")
		(*list)[corev1.ResourceMemory] = resource.MustParse("4Ti")
		(*list)[corev1.ResourcePods] = resource.MustParse("2000")
	}
	if err := p.client.Status().Patch(ctx, node, client.MergeFrom(before)); err != nil {
		return err
	}
	// The API server adds the not-ready taint to each new Node.
	before = node.DeepCopy()
	node.Spec.Taints = nil
	if err := p.client.Patch(ctx, node, client.MergeFrom(before)); err != nil {
		return err
	}
	p.boot(name)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.nodes[name] = zone
	return nil
}

// some returns a random node.
func (p *people) some() (name, zone string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	names := slices.Sorted(maps.Keys(p.nodes))
	name = names[p.random.IntN(len(names))]
	return name, p.nodes[name]
}

// move is one kind of change.
type move struct {
	name string
	do   func(context.Context) error
}

// moves returns the changes, which are made in turn.
func (p *people) moves() []move {
	return []move{
		{"CIDRs added", func(ctx context.Context) error { _, zone := p.some(); return p.addCIDR(ctx, zone) }},
		{"nodes replaced", p.replaceNode},
		{"labels changed", p.relabel},
		{"agents restarted", p.restartAgent},
		{"CIDRs drained", p.drainCIDR},
		{"pods halved and back", p.dip},
	}
}

// change makes changes, one after the other, until enough is closed.
func (p *people) change(ctx context.Context, enough <-chan struct{}) error {
	for i := 0; ; i++ {
		m := p.moves()[i%len(p.moves())]
		if err := m.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		if err := p.collect(ctx); err != nil {
			return err
		}
		p.mu.Lock()
		p.done[m.name]++
		p.mu.Unlock()
		select {
		case <-enough:
			return nil
		case <-time.After(changeEvery):
		}
	}
}

// madeAll reports whether each change has been made.
func (p *people) madeAll() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.done) == len(p.moves())
}

// collect deletes pods that were bound to a node while it was deleted, as the garbage
// collector of pods does.
func (p *people) collect(ctx context.Context) error {
	p.mu.Lock()
	nodes := maps.Clone(p.nodes)
	p.mu.Unlock()
	_, err := p.load.evict(ctx, 0, func(pod podSeen) bool { return pod.node != "" && nodes[pod.node] == "" })
	return err
}

func (p *people) addCIDR(ctx context.Context, zone string) error {
	cidr := p.nextCIDR()
	err := p.edit(ctx, zone, func(cidrs []v1alpha1.PoolCIDR) []v1alpha1.PoolCIDR {
		return append(cidrs, v1alpha1.PoolCIDR{CIDR: cidr.String()})
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cidrs[zone] = append(p.cidrs[zone], cidr)
	return err
}

// drainCIDR drains the newest CIDR of a pool, and evicts its pods. If its blocks are returned
// soon, it removes the CIDR. If not, for example because an agent has its own addresses there,
// it ends the drain.
func (p *people) drainCIDR(ctx context.Context) error {
	_, zone := p.some()
	cidr, ok := p.dropCIDR(zone)
	if !ok {
		return nil
	}
	set := func(policy v1alpha1.AllocationPolicy) error {
		return p.edit(ctx, zone, func(cidrs []v1alpha1.PoolCIDR) []v1alpha1.PoolCIDR {
			for i := range cidrs {
				if cidrs[i].CIDR == cidr.String() {
					cidrs[i].AllocationPolicy = policy
				}
			}
			return cidrs
		})
	}
	if err := set(v1alpha1.AllocationDrain); err != nil {
		return err
	}
	soon, cancel := limited(ctx, drainFor)
	defer cancel()
	err := harness.Until(soon, 500*time.Millisecond, func(ctx context.Context) error {
		if _, err := p.load.evict(ctx, 1, func(pod podSeen) bool { return cidr.Contains(pod.address) }); err != nil {
			return err
		}
		return p.noBlocksOf(ctx, cidr)
	})
	switch {
	case ctx.Err() != nil:
		return err
	case err != nil:
		p.mu.Lock()
		p.cidrs[zone] = append(p.cidrs[zone], cidr)
		p.mu.Unlock()
		return set(v1alpha1.AllocationAllocate)
	}
	return p.edit(ctx, zone, func(cidrs []v1alpha1.PoolCIDR) []v1alpha1.PoolCIDR {
		return slices.DeleteFunc(cidrs, func(c v1alpha1.PoolCIDR) bool { return c.CIDR == cidr.String() })
	})
}

// dropCIDR removes the newest of several CIDRs from the records.
func (p *people) dropCIDR(zone string) (netip.Prefix, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := len(p.cidrs[zone]) - 1
	if last < 1 {
		return netip.Prefix{}, false
	}
	cidr := p.cidrs[zone][last]
	p.cidrs[zone] = p.cidrs[zone][:last]
	return cidr, true
}

// noBlocksOf returns nil if a CIDR has no blocks.
func (p *people) noBlocksOf(ctx context.Context, cidr netip.Prefix) error {
	blocks := &v1alpha1.PodIPBlockList{}
	if err := p.client.List(ctx, blocks); err != nil {
		return err
	}
	for _, b := range blocks.Items {
		if block, err := netip.ParsePrefix(b.Spec.CIDR); err != nil || cidr.Overlaps(block) {
			return errors.Join(fmt.Errorf("block %s is there", b.Name), err)
		}
	}
	return nil
}

func (p *people) edit(ctx context.Context, zone string, change func([]v1alpha1.PoolCIDR) []v1alpha1.PoolCIDR) error {
	pool := &v1alpha1.PodIPPool{}
	if err := p.client.Get(ctx, client.ObjectKey{Name: zone}, pool); err != nil {
		return err
	}
	before := pool.DeepCopy()
	pool.Spec.IPv4.CIDRs = change(pool.Spec.IPv4.CIDRs)
	return p.client.Patch(ctx, pool, client.MergeFrom(before))
}

// replaceNode drains a node, as an autoscaler does, deletes it, and adds another.
func (p *people) replaceNode(ctx context.Context) error {
	name, zone := p.some()
	if err := p.patchNode(ctx, name, `{"spec":{"unschedulable":true}}`); err != nil {
		return err
	}
	p.mu.Lock()
	delete(p.nodes, name)
	p.mu.Unlock()
	err := harness.Until(ctx, 500*time.Millisecond, func(ctx context.Context) error {
		left, err := p.load.evict(ctx, 1, func(pod podSeen) bool { return pod.node == name })
		if left > 0 {
			err = errors.Join(err, fmt.Errorf("%d pods are there", left))
		}
		return err
	})
	if err != nil {
		return err
	}
	p.fleet.Scrap(name)
	if err := p.client.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
		return err
	}
	return p.join(ctx, zone)
}

// relabel moves a node to the other zone, from whose pool it gets blocks from then on.
func (p *people) relabel(ctx context.Context) error {
	name, zone := p.some()
	other := zones[0]
	if zone == other {
		other = zones[1]
	}
	p.mu.Lock()
	p.nodes[name] = other
	p.mu.Unlock()
	return p.patchNode(ctx, name, fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, corev1.LabelTopologyZone, other))
}

func (p *people) patchNode(ctx context.Context, name, patch string) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	return p.client.Patch(ctx, node, client.RawPatch("application/merge-patch+json", []byte(patch)))
}

// restartAgent restarts the agent of a node with pods. An agent that has yet to get its first
// block, because its node joined while the pools were full, might never come up.
func (p *people) restartAgent(ctx context.Context) error {
	name, ok := p.load.hosting()
	if !ok {
		return nil
	}
	return p.fleet.Machine(name).Restart(ctx)
}

// dip halves the number of pods for a while, so that nodes return blocks, and then restores
// it.
func (p *people) dip(ctx context.Context) error {
	p.scale.Store(50)
	defer p.scale.Store(100)
	return harness.Sleep(ctx, dipFor)
}
