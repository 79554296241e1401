//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/e2e/bed"
)

const (
	poolCIDR6  = "fd00:100:162::/64"
	lifeBlock  = 28
	lifeBlock6 = 124 // as many addresses as a /28

	lifeFirst = 6
	lifeMore  = 24 // reach into the third block
	lifeWidth = 4
	lifeKeep  = 10 // every 10th pod stays
	probeTime = 2 * time.Second
)

// startIPv6 brings up two nodes whose pool has IPv6, and IPv4 if requested.
func (e *env) startIPv6(ctx context.Context, ipv4 bool) (load *bed.Node, probe *bed.Pod, err error) {
	if err := e.start(ctx); err != nil {
		return nil, nil, err
	}
	p := &v1alpha1.PodIPPool{ObjectMeta: metav1.ObjectMeta{Name: "all"}}
	p.Spec.IPv6 = &v1alpha1.IPv6Ranges{BlockSize: lifeBlock6, CIDRs: []v1alpha1.PoolCIDR{{CIDR: poolCIDR6}}}
	if ipv4 {
		p.Spec.IPv4 = &v1alpha1.IPv4Ranges{BlockSize: lifeBlock, CIDRs: []v1alpha1.PoolCIDR{{CIDR: poolCIDR}}}
	}
	if err := e.Client.Create(ctx, p); err != nil {
		return nil, nil, fmt.Errorf("create pool: %w", err)
	}
	return e.twoNodes(ctx, soon()...)
}

// life takes a node through its whole life on any network: pods are added until it has three
// blocks of each family, all carry traffic, most pods are deleted, blocks are returned, and
// the agent is killed and restarted. Running connections must not be disturbed.
func (e *env) life(ctx context.Context, n *bed.Node, probe *bed.Pod) error {
	pods, err := e.grow(ctx, n, probe)
	if err != nil {
		return err
	}
	if err := e.reach(ctx, n, probe, pods[0]); err != nil {
		return err
	}
	keep, err := e.shrink(ctx, n, probe, pods)
	if err != nil {
		return err
	}
	flows, err := flowsBetween(probe, keep[:1], pingEvery)
	if err != nil {
		return err
	}
	if err := n.RestartAgent(ctx); err != nil {
		return err
	}
	e.checkKept(ctx, n, keep, "pods restored at their addresses when the agent was killed")
	e.judgePings(flows, "packets lost over that restart")
	return e.judgeRules(ctx)
}

// grow runs carry in each family.
func (e *env) grow(ctx context.Context, n *bed.Node, probe *bed.Pod) ([]*bed.Pod, error) {
	first, errs := e.runPods(ctx, n, "first", lifeFirst, lifeWidth)
	if len(errs) > 0 {
		return nil, fmt.Errorf("%d pods failed, the first: %w", len(errs), errs[0])
	}
	flows, err := flowsBetween(probe, first[:1], rapid)
	if err != nil {
		return nil, err
	}
	streams, err := streamsTo(probe, first[1])
	if err != nil {
		return nil, err
	}
	more, errs := e.runPods(ctx, n, "more", lifeMore, lifeWidth)
	e.checkNone(errs, fmt.Sprintf("failed CNI ADDs of %d more", lifeMore))
	e.judgeStreams(streams, "TCP echoes while blocks were added; slowest")
	e.judgePings(flows, "packets lost while blocks were added, both ways, every 5 ms")
	return append(first, more...), e.newBlocks(ctx, n, probe, append(first, more...))
}

// shrink deletes most pods and waits until the blocks have been returned.
func (e *env) shrink(ctx context.Context, n *bed.Node, probe *bed.Pod, pods []*bed.Pod) (keep []*bed.Pod, err error) {
	var drop []*bed.Pod
	for i, p := range pods {
		if i%lifeKeep == 0 {
			keep = append(keep, p)
		} else {
			drop = append(drop, p)
		}
	}
	before, err := e.CiliumNode(ctx, n.Name)
	if err != nil {
		return nil, err
	}
	flows, err := flowsBetween(probe, keep, pingEvery)
	if err != nil {
		return nil, err
	}
	if err := e.deletePods(ctx, drop); err != nil {
		return nil, err
	}
	waitErr := e.Eventually(ctx, "the blocks have gone back", func(ctx context.Context) error { return e.compact(ctx, n.Name) })
	e.judgePings(flows, fmt.Sprintf("packets lost by the %d that stayed, both ways, every 10 ms", len(keep)))
	after, err := e.CiliumNode(ctx, n.Name)
	if err != nil {
		return nil, err
	}
	e.check(waitErr == nil, "addresses before and after; blocks", "%d, %d; %d, %d",
		len(before.Spec.IPAM.Pool), len(after.Spec.IPAM.Pool), len(before.Spec.IPAM.PodCIDRs), len(after.Spec.IPAM.PodCIDRs))
	if waitErr != nil {
		return nil, waitErr
	}
	e.checkKept(ctx, n, keep, "pods whose addresses stayed")
	e.checkRoutes(ctx, n, probe.Node())
	return keep, nil
}

// reach pings along the paths that do not lead from pod to pod: from the node to
// its pod, as a kubelet's probe does, from another node, and from the pod to a
// machine that has no route to pods and so must see a node's address.
func (e *env) reach(ctx context.Context, n *bed.Node, probe, pod *bed.Pod) error {
	for _, from := range []struct {
		what string
		ping func(a netip.Addr) (*bed.Pings, error)
	}{
		{"the node to its own pod, as kubelet's probes do", func(a netip.Addr) (*bed.Pings, error) { return n.Ping(a, pingEvery) }},
		{"another node to that pod", func(a netip.Addr) (*bed.Pings, error) { return probe.Node().Ping(a, pingEvery) }},
		{"the pod to a machine outside, masqueraded", func(a netip.Addr) (*bed.Pings, error) { return pod.Ping(bed.Outside(a), pingEvery) }},
	} {
		var flows []*bed.Pings
		for _, a := range pod.Addresses {
			f, err := from.ping(a)
			if err != nil {
				return err
			}
			flows = append(flows, f)
		}
		if err := pause(ctx, probeTime); err != nil {
			return err
		}
		e.judgePings(flows, "packets lost from "+from.what)
	}
	return nil
}

// flowsBetween pings in both directions between one pod and the others, in each family.
func flowsBetween(one *bed.Pod, others []*bed.Pod, interval time.Duration) ([]*bed.Pings, error) {
	var flows []*bed.Pings
	for _, other := range others {
		for i, a := range other.Addresses {
			there, err := one.Ping(a, interval)
			if err != nil {
				return nil, err
			}
			back, err := other.Ping(one.Addresses[i], interval)
			if err != nil {
				return nil, err
			}
			flows = append(flows, there, back)
		}
	}
	return flows, nil
}

// streamsTo opens one TCP stream in each family.
func streamsTo(from, to *bed.Pod) ([]*bed.Stream, error) {
	var streams []*bed.Stream
	for _, a := range to.Addresses {
		s, err := from.Stream(to, a, rapid)
		if err != nil {
			return nil, err
		}
		streams = append(streams, s)
	}
	return streams, nil
}

func (e *env) judgeStreams(streams []*bed.Stream, what string) {
	echoes, slowest := 0, time.Duration(0)
	var errs []error
	for _, s := range streams {
		n, slow, err := s.Stop()
		if n == 0 {
			err = errors.Join(err, errors.New("no echo"))
		}
		errs, echoes, slowest = append(errs, err), echoes+n, max(slowest, slow)
	}
	err := errors.Join(errs...)
	if err != nil {
		e.Logf("%v", err)
	}
	e.check(err == nil, what, "%d; %d ms", echoes, slowest.Milliseconds())
}
