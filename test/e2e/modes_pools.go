//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	ciliumv2alpha1 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/e2e/bed"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant/whole"
)

const (
	askPods  = 32 // more than one block holds
	stayers  = 2  // of the pods of each pool
	askedFor = "ipam.cilium.io/ip-pool"
)

// ciliumPool is one of Cilium's pools, and how pods request it: by their own metadata or by
// their namespace's. Without a name, the namespace is default.
type ciliumPool struct {
	name, cidr      string
	meta, namespace metav1.ObjectMeta
	pods            []*bed.Pod
}

// modesPools lets pods on one node request five of Cilium's pools: by annotation of the pod or
// of its namespace, by the selectors of a CiliumPodIPPool for either, and by default. Each
// pool's blocks grow, keep their pods across a restart of the agent, and are returned; then
// one pool is deleted.
func modesPools(ctx context.Context, e *env) error {
	if err := e.startBeside(ctx, multiPoolMode, whole.InPools()); err != nil {
		return err
	}
	p := &poolAsker{env: e, pools: []*ciliumPool{
		{name: "default", cidr: poolCIDR},
		{name: "blue", cidr: "100.67.0.0/24", meta: metav1.ObjectMeta{Labels: map[string]string{"team": "blue"}}},
		{name: "red", cidr: "100.68.0.0/24", meta: metav1.ObjectMeta{Annotations: map[string]string{askedFor: "red"}}},
		{name: "green", cidr: "100.69.0.0/24", namespace: metav1.ObjectMeta{Name: "team-green", Annotations: map[string]string{askedFor: "green"}}},
		{name: "yellow", cidr: "100.70.0.0/24", namespace: metav1.ObjectMeta{Name: "team-yellow", Labels: map[string]string{"team": "yellow"}}},
	}}
	for _, pool := range p.pools[1:] {
		obj := &v1alpha1.PodIPPool{ObjectMeta: metav1.ObjectMeta{Name: pool.name + "-addresses"}}
		obj.Spec.CiliumPoolName = pool.name
		obj.Spec.IPv4 = &v1alpha1.IPv4Ranges{BlockSize: blockSize, CIDRs: []v1alpha1.PoolCIDR{{CIDR: pool.cidr}}}
		if err := e.Client.Create(ctx, obj); err != nil {
			return fmt.Errorf("create pool: %w", err)
		}
		if pool.namespace.Name == "" {
			continue
		}
		if err := e.Client.Create(ctx, &corev1.Namespace{ObjectMeta: pool.namespace}); err != nil {
			return fmt.Errorf("create namespace: %w", err)
		}
	}
	if err := e.operate(multiPoolMode, wholeCooldown); err != nil {
		return err
	}
	return inTurn(ctx, p.begin, p.ask, p.restart, p.giveBack, p.drop, e.judgeWhole)
}

type poolAsker struct {
	*env
	node  *bed.Node
	pools []*ciliumPool
}

// begin waits for the CiliumPodIPPools, and gives blue a podSelector and yellow a
// namespaceSelector.
func (p *poolAsker) begin(ctx context.Context) (err error) {
	err = p.Eventually(ctx, "there are the CiliumPodIPPools", func(ctx context.Context) error {
		for _, pool := range p.pools {
			if err := p.Client.Get(ctx, client.ObjectKey{Name: pool.name}, &ciliumv2alpha1.CiliumPodIPPool{}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := errors.Join(p.must(ctx, cmdPick, 0), p.must(ctx, cmdPickSpaces, 0)); err != nil {
		return err
	}
	if p.node, err = p.env.node(ctx, "n1"); err != nil {
		return err
	}
	cn, err := p.CiliumNode(ctx, "n1")
	if err != nil {
		return err
	}
	p.check(len(whole.AssignedIn(cn, "")) == len(whole.AssignedTo(cn)), "blocks of pools that no pod requests, on a new node", "%d", len(whole.AssignedIn(cn, ""))-len(whole.AssignedTo(cn)))
	return nil
}

// ask runs pods of all pools concurrently.
func (p *poolAsker) ask(ctx context.Context) error {
	type one struct {
		pool  *ciliumPool
		pod   *bed.Pod
		tries int
		err   error
	}
	asked := make([]one, len(p.pools)*askPods)
	inParallel(len(asked), 4, func(i int) {
		a := &asked[i]
		a.pool = p.pools[i%len(p.pools)]
		meta := *a.pool.meta.DeepCopy()
		meta.Namespace = a.pool.namespace.Name
		meta.Name = fmt.Sprintf("%s-%d", a.pool.name, i/len(p.pools))
		if a.pod, a.err = p.node.CreatePodWith(ctx, meta); a.err == nil {
			a.tries, a.err = attachStubborn(ctx, a.pod)
		}
	})
	var errs []error
	tries := map[string]int{}
	for _, a := range asked {
		errs = append(errs, a.err)
		tries[a.pool.name] += a.tries
		a.pool.pods = append(a.pool.pods, a.pod)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return p.each(ctx, func(pool *ciliumPool, assigned []netip.Prefix) {
		right := countIn(pool.pods, pool.cidr)
		p.check(right == askPods && len(assigned) > 1, pool.name+": pods with an address of the pool they request; blocks", "%d of %d; %d", right, askPods, len(assigned))
		p.note(pool.name+": ADDs tried again", "%d", tries[pool.name])
	})
}

// each calls look with the CIDRs assigned to the node for each pool.
func (p *poolAsker) each(ctx context.Context, look func(*ciliumPool, []netip.Prefix)) error {
	cn, err := p.CiliumNode(ctx, p.node.Name)
	if err != nil {
		return err
	}
	for _, pool := range p.pools {
		look(pool, whole.AssignedIn(cn, pool.name))
	}
	return nil
}

// restart kills the agent, which must restore every pod in its pool.
func (p *poolAsker) restart(ctx context.Context) error {
	if err := p.node.RestartAgent(ctx); err != nil {
		return err
	}
	var all []*bed.Pod
	for _, pool := range p.pools {
		all = append(all, pool.pods...)
	}
	missing := 0
	err := p.Eventually(ctx, "the agent has its pods", func(ctx context.Context) (err error) {
		missing, err = p.node.Has(ctx, all)
		return err
	})
	p.check(err == nil, "agent killed: pods restored at their address", "%d of %d", len(all)-missing, len(all))
	return err
}

// giveBack deletes most pods of all pools except default, and waits until the empty blocks are
// returned.
func (p *poolAsker) giveBack(ctx context.Context) error {
	for _, pool := range p.pools[1:] {
		if err := p.deletePods(ctx, pool.pods[stayers:]); err != nil {
			return err
		}
		pool.pods = pool.pods[:stayers]
	}
	err := p.Eventually(ctx, "blocks without a pod are returned", func(ctx context.Context) error {
		held, err := p.blocksOf(ctx, p.node.Name)
		if err != nil {
			return err
		}
		for _, pool := range p.pools[1:] {
			for _, block := range held {
				if netip.MustParsePrefix(pool.cidr).Overlaps(block) && countIn(pool.pods, block.String()) == 0 {
					return fmt.Errorf("%s of %s is held, and empty", block, pool.name)
				}
			}
		}
		return nil
	})
	eachErr := p.each(ctx, func(pool *ciliumPool, assigned []netip.Prefix) {
		if pool.name != "default" {
			p.check(err == nil, pool.name+": blocks after most of its pods", "%d", len(assigned))
		}
	})
	return errors.Join(err, eachErr)
}

// drop deletes the PodIPPool of blue while pods have addresses of it, and then the pods: the
// CiliumPodIPPool must be deleted last.
func (p *poolAsker) drop(ctx context.Context) error {
	blue := p.pools[1]
	if err := p.Client.Delete(ctx, &v1alpha1.PodIPPool{ObjectMeta: metav1.ObjectMeta{Name: "blue-addresses"}}); err != nil {
		return fmt.Errorf("delete pool: %w", err)
	}
	if err := pause(ctx, probeTime); err != nil {
		return err
	}
	there := func() bool {
		return p.Client.Get(ctx, client.ObjectKey{Name: "blue"}, &ciliumv2alpha1.CiliumPodIPPool{}) == nil
	}
	stayed := there()
	if err := p.deletePods(ctx, blue.pods); err != nil {
		return err
	}
	err := p.Eventually(ctx, "CiliumPodIPPool and blocks of blue are gone", func(ctx context.Context) error {
		held, err := p.blocksOf(ctx, p.node.Name)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(held, netip.MustParsePrefix(blue.cidr).Overlaps) {
			return fmt.Errorf("the node holds %v", held)
		}
		err = p.Client.Get(ctx, client.ObjectKey{Name: "blue"}, &ciliumv2alpha1.CiliumPodIPPool{})
		if err == nil {
			return errors.New("the CiliumPodIPPool is there")
		}
		return client.IgnoreNotFound(err)
	})
	p.check(stayed && err == nil, "pool deleted: CiliumPodIPPool while a pod has an address of it; gone after", "%t; %t", stayed, err == nil)
	return err
}
