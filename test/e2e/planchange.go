//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/e2e/bed"
)

// The address plan, in the order of the steps. One block of each zone stays: the node's
// first, which has its router and the pods with traffic.
const (
	planBlock              = 28
	keepA, oldA            = "100.66.224.0/28", "100.66.225.0/26"
	nextA, lastA           = "100.67.0.0/26", "100.75.0.0/26"
	keepB, oldB            = "100.68.32.0/28", "100.68.33.0/26"
	largeB, largeSize      = "100.70.0.0/24", 27
	planPods               = 20 // on each node, more than one block holds
	talking                = 2  // of these; they never move
	zonePodsMore           = 24 // more than the node's remaining addresses
	poolA, poolB, poolBBig = "a", "b", "b-large"
)

// planChange changes the address plan of two nodes, one in each zone, in every way described
// in docs/operations.md, while some pods have traffic and others are created and deleted. Pods that
// are not restarted keep their addresses.
func planChange(ctx context.Context, e *env) error {
	p := &planMover{mover: &mover{env: e}}
	if err := p.begin(ctx); err != nil {
		return err
	}
	for _, s := range []step{
		{"grow", p.growPool}, {"drain", p.drainRange}, {"take-out", p.takeOut}, {"replace", p.replace}, {"zone", p.moveZone},
	} {
		before := p.addresses()
		if err := p.during(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		p.noteStayed(before, s.name)
	}
	p.checkRoutesOf(ctx)
	return p.endWatch(ctx)
}

// planMover is a cluster whose address plan changes.
type planMover struct{ *mover }

func (p *planMover) begin(ctx context.Context) error {
	p.options.Set = []string{"ipam.ciliumNodeUpdateRate=3s"}
	if err := p.start(ctx); err != nil {
		return err
	}
	for _, pool := range []*v1alpha1.PodIPPool{
		zonePool(poolA, "a", 0, planBlock, keepA, oldA), zonePool(poolB, "b", 0, planBlock, keepB, oldB),
	} {
		if err := p.Client.Create(ctx, pool); err != nil {
			return fmt.Errorf("create pool %s: %w", pool.Name, err)
		}
	}
	if err := p.startWatch(ctx); err != nil {
		return err
	}
	var err error
	if p.operator, err = p.StartOperator(append(soon(), "--ack-hold=10s")...); err != nil {
		return err
	}
	for _, zone := range []string{"a", "b"} {
		n, err := p.nodeWith(ctx, "n"+zone, map[string]string{zoneLabel: zone})
		if err != nil {
			return err
		}
		pods, err := p.loadInTurn(ctx, n)
		if err != nil {
			return err
		}
		p.nodes, p.pods = append(p.nodes, n), append(p.pods, pods)
	}
	stay := countIn(p.pods[0][:talking], keepA) + countIn(p.pods[1][:talking], keepB)
	if stay != 2*talking {
		return fmt.Errorf("the first pods are not all in the nodes' first blocks: %d of %d", stay, 2*talking)
	}
	p.note("pods, nodes", "%d, %d", planPods*len(p.nodes), len(p.nodes))
	return nil
}

// loadInTurn first runs the pods with traffic, while the node has only its first block, and
// then the others.
func (p *planMover) loadInTurn(ctx context.Context, n *bed.Node) ([]*bed.Pod, error) {
	var pods []*bed.Pod
	for i := range talking {
		pod, err := n.Run(ctx, fmt.Sprintf("talking-%s-%d", n.Name, i))
		if err != nil {
			return nil, err
		}
		pods = append(pods, pod)
	}
	more, err := p.load(ctx, n, planPods-talking)
	return append(pods, more...), err
}

// growPool adds two ranges, which requires no pod to move.
func (p *planMover) growPool(ctx context.Context) error {
	if err := p.editPool(ctx, poolA, func(pool *v1alpha1.PodIPPool) {
		pool.Spec.IPv4.CIDRs = append(pool.Spec.IPv4.CIDRs, v1alpha1.PoolCIDR{CIDR: nextA}, v1alpha1.PoolCIDR{CIDR: lastA})
	}); err != nil {
		return err
	}
	const want = 1 + 3*4 // one /28 block in the /28, and four in each of three /26
	err := p.Eventually(ctx, "the pool counts them", func(ctx context.Context) error {
		pool := &v1alpha1.PodIPPool{}
		if err := p.Client.Get(ctx, client.ObjectKey{Name: poolA}, pool); err != nil {
			return err
		}
		if s := pool.Status.IPv4; s == nil || s.Blocks.Total != want {
			return fmt.Errorf("status %+v", s)
		}
		return nil
	})
	names, listErr := p.blockNames(ctx)
	moved := blocksIn(names, nextA) + blocksIn(names, lastA)
	p.check(err == nil && moved == 0, "grow: the pool counts its new ranges; blocks that moved there", "%t; %d", err == nil, moved)
	return errors.Join(err, listErr)
}

// drainRange drains a CIDR, and moves its pods.
func (p *planMover) drainRange(ctx context.Context) error {
	if err := p.editPool(ctx, poolA, setDrain(oldA)); err != nil {
		return err
	}
	return p.vacate(ctx, "drain", 0, oldA)
}

// takeOut removes the range that the drain has filled, and the one that it has emptied.
func (p *planMover) takeOut(ctx context.Context) error {
	err := p.editPool(ctx, poolA, func(pool *v1alpha1.PodIPPool) {
		pool.Spec.IPv4.CIDRs = slices.DeleteFunc(pool.Spec.IPv4.CIDRs, func(c v1alpha1.PoolCIDR) bool { return c.CIDR == oldA || c.CIDR == nextA })
	})
	if err != nil {
		return err
	}
	if err := p.vacate(ctx, "take-out", 0, oldA, nextA); err != nil {
		return err
	}
	in := countIn(p.pods[0], lastA)
	p.check(in+countIn(p.pods[0], keepA) == planPods, "take-out: pods in the range that was added last", "%d", in)
	return nil
}

// replace gives a pool of larger blocks precedence over an old one, drains the old one, and
// deletes it.
func (p *planMover) replace(ctx context.Context) error {
	if err := p.Client.Create(ctx, zonePool(poolBBig, "b", 10, largeSize, largeB)); err != nil {
		return fmt.Errorf("create pool %s: %w", poolBBig, err)
	}
	if err := p.editPool(ctx, poolB, setDrain(oldB)); err != nil {
		return err
	}
	if err := p.vacate(ctx, "replace", 1, oldB); err != nil {
		return err
	}
	old := &v1alpha1.PodIPPool{}
	old.Name = poolB
	if err := p.Client.Delete(ctx, old); err != nil {
		return fmt.Errorf("delete pool %s: %w", poolB, err)
	}
	// The block with the router and the pods with traffic stays as long as they do.
	err := p.Eventually(ctx, "the last block of the deleted pool has no free address", func(ctx context.Context) error {
		return p.leftIn(ctx, 1, keepB)
	})
	names, listErr := p.blockNames(ctx)
	large := blocksIn(names, largeB)
	p.check(err == nil && large > 0, "replace: blocks of the new size; the deleted pool's last block has only what is used", "%d; %t", large, err == nil)
	return errors.Join(err, listErr)
}

// moveZone relabels the first node: new blocks come from the other zone's pool, and the
// blocks it holds stay.
func (p *planMover) moveZone(ctx context.Context) error {
	n := p.nodes[0]
	before, err := p.blocksOf(ctx, n.Name)
	if err != nil {
		return err
	}
	before = slices.DeleteFunc(before, func(b netip.Prefix) bool { return countIn(p.pods[0], b.String()) == 0 })
	if err := p.label(ctx, n.Name, "b"); err != nil {
		return err
	}
	pods, errs := p.runPods(ctx, n, "zone", zonePodsMore, 4)
	logAll(p.env, errs)
	after, err := p.blocksOf(ctx, n.Name)
	if err != nil {
		return err
	}
	kept := slices.DeleteFunc(slices.Clone(before), func(b netip.Prefix) bool { return !slices.Contains(after, b) })
	p.check(len(errs) == 0 && countIn(pods, largeB) > 0, fmt.Sprintf("zone: failed CNI ADDs of %d; pods with an address of the new zone", zonePodsMore), "%d; %d",
		len(errs), countIn(pods, largeB))
	p.check(len(kept) == len(before), "zone: blocks of the old zone with pods that stayed", "%d of %d", len(kept), len(before))
	return p.deletePods(ctx, pods)
}
