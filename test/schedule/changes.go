package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
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
)

// capacity returns the number of addresses for pods once all blocks are assigned.
func (b *bed) capacity() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := -agentsOwn * len(b.nodes)
	for _, cidrs := range b.cidrs {
		n += cidrPods * len(cidrs)
	}
	return n
}

// addZone creates a pool of CIDRs, and its nodes, and waits until they offer addresses.
func (b *bed) addZone(ctx context.Context, zone string, nodes, cidrs int) error {
	pool := &v1alpha1.PodIPPool{ObjectMeta: metav1.ObjectMeta{Name: zone}}
	pool.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelTopologyZone: zone}}
	pool.Spec.IPv4 = &v1alpha1.IPv4Ranges{BlockSize: blockBits}
	for range cidrs {
		pool.Spec.IPv4.CIDRs = append(pool.Spec.IPv4.CIDRs, v1alpha1.PoolCIDR{CIDR: b.nextCIDR(zone)})
	}
	if err := b.client.Create(ctx, pool); err != nil {
		return fmt.Errorf("create pool %s: %w", zone, err)
	}
	for i := range nodes {
		if err := b.join(ctx, fmt.Sprintf("%s-%d", zone, i), zone); err != nil {
			return err
		}
	}
	return b.awaitOffers(ctx)
}

func (b *bed) nextCIDR(zone string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.added++
	cidr := netip.PrefixFrom(netip.AddrFrom4([4]byte{100, byte(64 + b.added/256), byte(b.added), 0}), cidrBits)
	b.cidrs[zone] = append(b.cidrs[zone], cidr)
	return cidr.String()
}

// join adds a node that admits more pods than there are addresses.
func (b *bed) join(ctx context.Context, name, zone string) error {
	b.mu.Lock()
	b.joined++
	number := b.joined
	b.mu.Unlock()
	address := netip.AddrFrom4([4]byte{172, 16, byte(number / 250), byte(1 + number%250)})
	labels := map[string]string{corev1.LabelHostname: name, corev1.LabelTopologyZone: zone}
	if err := harness.JoinNode(ctx, b.client, name, address.String(), labels); err != nil {
		return err
	}
	node := &corev1.Node{}
	if err := b.client.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
		return err
	}
	before := node.DeepCopy()
	room := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1000"), corev1.ResourceMemory: resource.MustParse("4Ti"), corev1.ResourcePods: resource.MustParse("2000")}
	node.Status.Capacity, node.Status.Allocatable = room, room
	if err := b.client.Status().Patch(ctx, node, client.MergeFrom(before)); err != nil {
		return err
	}
	// The API server adds the not-ready taint to each new Node.
	if err := b.patchNode(ctx, name, `{"spec":{"taints":null}}`); err != nil {
		return err
	}
	b.fleet.Boot(b.alive, name)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.nodes[name] = zone
	return nil
}

func (b *bed) patchNode(ctx context.Context, name, patch string) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	return b.client.Patch(ctx, node, client.RawPatch("application/merge-patch+json", []byte(patch)))
}

// some returns a random node.
func (b *bed) some() (name, zone string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	names := slices.Sorted(maps.Keys(b.nodes))
	name = names[b.random.IntN(len(names))]
	return name, b.nodes[name]
}

// moves returns the changes that people make in turn.
func (b *bed) moves() []step {
	return []step{
		{"add a CIDR", func(ctx context.Context) error { _, zone := b.some(); return b.addCIDR(ctx, zone) }},
		{"replace a node", b.replaceNode},
		{"change a label", b.relabel},
		{"restart an agent", b.restartAgent},
		{"drain a CIDR", b.drainCIDR},
	}
}

// change makes changes, one after the other, until ctx ends.
func (b *bed) change(ctx context.Context) error {
	for i := 0; ctx.Err() == nil; i++ {
		m := b.moves()[i%len(b.moves())]
		// A change that has begun is completed.
		if err := m.do(context.WithoutCancel(ctx)); err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		if err := b.collect(context.WithoutCancel(ctx)); err != nil {
			return err
		}
		b.changes.Add(1)
		_ = harness.Sleep(ctx, time.Second)
	}
	return nil
}

// collect deletes pods that the scheduler bound to a node while people deleted it, as the
// garbage collector of pods does.
func (b *bed) collect(ctx context.Context) error {
	pods := &corev1.PodList{}
	if err := b.client.List(ctx, pods, client.InNamespace(metav1.NamespaceDefault)); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range pods.Items {
		if p := &pods.Items[i]; p.Spec.NodeName != "" && b.nodes[p.Spec.NodeName] == "" {
			if err := client.IgnoreNotFound(b.client.Delete(ctx, p, client.GracePeriodSeconds(0))); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *bed) addCIDR(ctx context.Context, zone string) error {
	cidr := b.nextCIDR(zone)
	return b.edit(ctx, zone, func(cidrs []v1alpha1.PoolCIDR) []v1alpha1.PoolCIDR {
		return append(cidrs, v1alpha1.PoolCIDR{CIDR: cidr})
	})
}

func (b *bed) edit(ctx context.Context, zone string, change func([]v1alpha1.PoolCIDR) []v1alpha1.PoolCIDR) error {
	pool := &v1alpha1.PodIPPool{}
	if err := b.client.Get(ctx, client.ObjectKey{Name: zone}, pool); err != nil {
		return err
	}
	before := pool.DeepCopy()
	pool.Spec.IPv4.CIDRs = change(pool.Spec.IPv4.CIDRs)
	return b.client.Patch(ctx, pool, client.MergeFrom(before))
}

// drainCIDR drains the newest CIDR of a pool and evicts its pods for 10 seconds, and then ends
// the drain. Marks lower offers meanwhile.
func (b *bed) drainCIDR(ctx context.Context) error {
	_, zone := b.some()
	b.mu.Lock()
	cidr := b.cidrs[zone][len(b.cidrs[zone])-1]
	b.mu.Unlock()
	set := func(policy v1alpha1.AllocationPolicy) error {
		return b.edit(ctx, zone, func(cidrs []v1alpha1.PoolCIDR) []v1alpha1.PoolCIDR {
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
	soon, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	_ = b.evict(soon, func(p *corev1.Pod) bool { // pods of agents' own addresses may stay
		a, err := netip.ParseAddr(p.Status.PodIP)
		return err == nil && cidr.Contains(a)
	})
	_ = harness.Sleep(soon, 5*time.Second)
	return set(v1alpha1.AllocationAllocate)
}

// replaceNode drains a node, as an autoscaler does, deletes it, and adds another.
func (b *bed) replaceNode(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errors.New("its pods stay"))
	defer cancel()
	name, zone := b.some()
	if err := b.patchNode(ctx, name, `{"spec":{"unschedulable":true}}`); err != nil {
		return err
	}
	b.mu.Lock()
	delete(b.nodes, name)
	b.mu.Unlock()
	if err := b.evict(ctx, func(p *corev1.Pod) bool { return p.Spec.NodeName == name }); err != nil {
		return err
	}
	b.fleet.Scrap(name)
	if err := b.client.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
		return err
	}
	return b.join(ctx, name+"n", zone)
}

// relabel moves a node to the other zone. Its further blocks come from that zone's pool.
func (b *bed) relabel(ctx context.Context) error {
	name, zone := b.some()
	other := zones[0]
	if zone == other {
		other = zones[1]
	}
	b.mu.Lock()
	b.nodes[name] = other
	b.mu.Unlock()
	return b.patchNode(ctx, name, fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, corev1.LabelTopologyZone, other))
}

// restartAgent restarts the agent of a node that has its first block. An agent without one,
// because its node joined while the pools were full, might never come up.
func (b *bed) restartAgent(ctx context.Context) error {
	for range 2 * b.size {
		name, _ := b.some()
		if m := b.fleet.Machine(name); len(m.Endpoints()) > 0 {
			return m.Restart(ctx)
		}
	}
	return nil
}
