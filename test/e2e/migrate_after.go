//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/e2e/bed"
)

// growNode runs more pods on the first node than fit into its old blocks.
func (m *mover) growNode(ctx context.Context) error {
	n := m.nodes[0]
	before, err := m.CiliumNode(ctx, n.Name)
	if err != nil {
		return err
	}
	pods, errs := m.runPods(ctx, n, "more", m.more, crowd{width: 4})
	m.extra = pods
	after, err := m.CiliumNode(ctx, n.Name)
	if err != nil {
		return err
	}
	was, is := len(before.Spec.IPAM.PodCIDRs), len(after.Spec.IPAM.PodCIDRs)
	m.few, m.many = was, len(after.Spec.IPAM.Pool)
	m.Check(len(errs) == 0 && is > was, fmt.Sprintf("more: failed CNI ADDs of %d; podCIDRs before, after", m.more), "%d; %d, %d", len(errs), was, is)
	return nil
}

// refused checks that the move back to the old mode is refused.
func (m *mover) refused(ctx context.Context) error {
	err := m.must(ctx, on(cmdAbortOne, "NODE", m.nodes[0].Name)+answerTimeout, blockedCode)
	if err != nil {
		return err
	}
	m.Note("refused: exit code of the way back with more than the old block", "%d", blockedCode)
	return m.must(ctx, on(cmdMoved, "NODE", m.nodes[0].Name), 0)
}

// reclaimNode deletes the extra pods, and waits until the blocks are returned.
func (m *mover) reclaimNode(ctx context.Context) error {
	n, pods := m.nodes[0], m.extra
	m.extra = nil
	if err := m.deletePods(ctx, pods); err != nil {
		return err
	}
	began := time.Now()
	err := m.Eventually(ctx, "the blocks have gone back", func(ctx context.Context) error { return m.small(ctx, n.Name) })
	if err != nil {
		m.logf("%v", err)
	}
	cn, getErr := m.CiliumNode(ctx, n.Name)
	m.Check(err == nil && getErr == nil, "reclaim: the blocks went back; addresses before, and then; podCIDRs", "after %.0f s; %d, %d; %v",
		time.Since(began).Seconds(), m.many, len(cn.Spec.IPAM.Pool), podCIDRs(cn))
	return getErr
}

// small returns an error while a node holds more than before it grew, that is, blocks with
// free addresses.
func (m *mover) small(ctx context.Context, name string) error {
	cn, err := m.CiliumNode(ctx, name)
	if err != nil {
		return err
	}
	free := 0
	for _, cidr := range cn.Spec.IPAM.PodCIDRs {
		published, used, err := count(cn, cidr.String())
		if err != nil {
			return err
		}
		if published > used {
			free++
		}
	}
	if free > m.few || len(cn.Spec.IPAM.Pool) >= m.many || len(cn.Status.IPAM.ReleaseIPs) > 0 {
		return fmt.Errorf("%d blocks have free addresses, %d addresses in all, %d are being released", free, len(cn.Spec.IPAM.Pool), len(cn.Status.IPAM.ReleaseIPs))
	}
	return nil
}

// drainAdopted drains an adopted block of the second node and moves its pods,
// while pods of the other nodes exchange traffic.
func (m *mover) drainAdopted(ctx context.Context) error {
	traffic, err := startTraffic([][]*bed.Pod{m.pods[0], m.pods[2]})
	if err != nil {
		return err
	}
	cidr, routers, err := m.toDrain(ctx)
	if err != nil {
		return err
	}
	block := &v1alpha1.PodIPBlock{}
	block.Name = crd.BlockName(cidr)
	if err := m.must(ctx, on(cmdDrain, "BLOCK", block.Name), 0); err != nil {
		return err
	}
	began, turns := time.Now(), 0
	for ; turns < 4 && countIn(m.pods[1], cidr.String()) > 0; turns++ {
		if err := m.moveOff(ctx, cidr, routers, turns); err != nil {
			return err
		}
	}
	err = m.leftOf(ctx, cidr, routers)
	if err == nil && routers == 0 {
		err = m.Eventually(ctx, "the block has gone", func(ctx context.Context) error {
			err := m.Client.Get(ctx, client.ObjectKeyFromObject(block), block)
			if apierrors.IsNotFound(err) {
				return nil
			}
			if err != nil {
				return err
			}
			return fmt.Errorf("it is there: %v", block.Status.Conditions)
		})
	}
	if err != nil {
		m.logf("%v", err)
	}
	m.Check(err == nil, fmt.Sprintf("drain: turns to move all pods off %s; the router's addresses, which are all that is left", cidr),
		"%d; %d; %.0f s", turns, routers, time.Since(began).Seconds())
	m.judgeTraffic(traffic, "drain")
	m.checkPods(ctx, "drain")
	return nil
}

// leftOf waits until exactly want addresses of a block are left.
func (m *mover) leftOf(ctx context.Context, cidr netip.Prefix, want int) error {
	return m.Eventually(ctx, "nothing is left of the block but what is used", func(ctx context.Context) error {
		cn, err := m.CiliumNode(ctx, m.nodes[1].Name)
		if err != nil {
			return err
		}
		left, _, err := count(cn, cidr.String())
		if err == nil && left != want {
			err = fmt.Errorf("%d addresses, %d are used", left, want)
		}
		return err
	})
}

// moveOff waits until the block has no free address, and then replaces each of its pods.
func (m *mover) moveOff(ctx context.Context, cidr netip.Prefix, routers, turn int) error {
	if err := m.leftOf(ctx, cidr, countIn(m.pods[1], cidr.String())+routers); err != nil {
		return err
	}
	return m.succeed(ctx, 1, strconv.Itoa(turn), cidr.Contains)
}

// succeed replaces each pod of a node with an address that among accepts: it starts the
// successor, then deletes the pod.
func (m *mover) succeed(ctx context.Context, node int, turn string, among func(netip.Addr) bool) error {
	pods := m.pods[node]
	errs := make([]error, len(pods))
	eachOf(pods, func(i int, p *bed.Pod) {
		if !among(p.Address) {
			return
		}
		next, err := m.runPod(ctx, m.nodes[node], fmt.Sprintf("moved-%s-%d", turn, i), crowd{})
		if err != nil {
			errs[i] = err
			return
		}
		pods[i], errs[i] = next, p.Delete(ctx)
	})
	return errors.Join(errs...)
}

// toDrain picks a block of the second node that has pods, preferably one without
// the router's address. It returns the number of the router's addresses in it.
func (m *mover) toDrain(ctx context.Context) (cidr netip.Prefix, routers int, err error) {
	cn, err := m.CiliumNode(ctx, m.nodes[1].Name)
	if err != nil {
		return cidr, 0, err
	}
	router, err := netip.ParseAddr(routerAddress(cn))
	if err != nil {
		return cidr, 0, fmt.Errorf("read the router's address: %w", err)
	}
	for _, p := range cn.Spec.IPAM.PodCIDRs {
		if countIn(m.pods[1], p.String()) == 0 {
			continue
		}
		if !p.Contains(router) {
			return p.Prefix, 0, nil
		}
		cidr, routers = p.Prefix, 1
	}
	if !cidr.IsValid() {
		return cidr, 0, fmt.Errorf("no pod of %s is in its podCIDRs %v", cn.Name, podCIDRs(cn))
	}
	return cidr, routers, nil
}
