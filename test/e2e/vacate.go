//go:build linux

package main

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	ipamoption "github.com/cilium/cilium/pkg/ipam/option"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/test/e2e/bed"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant/whole"
)

// vacatePods are the pods that start once the agent's addresses are retired.
const vacatePods = 4

// vacate drains the CIDR with a node's first block, in which the agent has its own addresses,
// while pods there are pinged. The operator retires these addresses; the agent takes others
// when it restarts; the block is returned once its pods are gone.
func vacate(ctx context.Context, e *env) error {
	_, err := vacateFirst(ctx, e, 1)
	return err
}

// vacateOwn does the same with all addresses that an agent may have: its router's, and those
// of its health endpoint and of its ingress.
func vacateOwn(ctx context.Context, e *env) error {
	e.options.Set = []string{"healthChecking=true", "endpointHealthChecking.enabled=true", "envoyConfig.enabled=true"}
	v, err := vacateFirst(ctx, e, 3)
	if err != nil {
		return err
	}
	return v.checkHealthEndpoint(ctx)
}

// vacateNative does the same with a route on the other node to each block over their shared
// network.
func vacateNative(ctx context.Context, e *env) error {
	e.options.Native = true
	_, err := vacateFirst(ctx, e, 1)
	return err
}

// vacateWireGuard does the same while agents encrypt what pods send to other nodes.
func vacateWireGuard(ctx context.Context, e *env) error {
	e.options.Set = []string{"encryption.enabled=true", "encryption.type=wireguard"}
	v, err := vacateFirst(ctx, e, 1)
	if err != nil {
		return err
	}
	return v.checkEncrypted(ctx)
}

// vacateFirst runs vacate with an agent that has the given number of its own addresses.
func vacateFirst(ctx context.Context, e *env, own int) (*vacating, error) {
	v, err := startVacating(ctx, e, own, soon()...)
	if err != nil {
		return nil, err
	}
	for _, do := range []func(context.Context) error{v.retire, v.start, v.restart, v.leave, v.judge} {
		if err := do(ctx); err != nil {
			return nil, err
		}
	}
	return v, nil
}

type vacating struct {
	*drains
	restarts *restarts
	first    netip.Prefix
	own      []string     // the agent's addresses in it
	others   []*bed.Pings // to pods in other blocks, until the end
	since    time.Time
}

// startVacating runs pods in three blocks of a node, and finds its first, in which the agent
// has the given number of its own addresses.
func startVacating(ctx context.Context, e *env, own int, operatorFlags ...string) (*vacating, error) {
	d, err := startDrain(ctx, e, operatorFlags...)
	if err != nil {
		return nil, err
	}
	v := &vacating{drains: d, restarts: &restarts{env: e, node: d.node}}
	cn, err := v.CiliumNode(ctx, v.node.Name)
	if err != nil {
		return nil, err
	}
	router, err := netip.ParseAddr(routerAddress(cn))
	if err != nil {
		return nil, fmt.Errorf("read the router's address: %w", err)
	}
	for _, p := range cn.Spec.IPAM.PodCIDRs {
		if p.Contains(router) {
			v.first = p.Prefix
		}
	}
	v.own = v.owned(cn)
	v.check(len(v.own) == own && countIn(v.pods, v.first.String()) > 0, "the first block; its pods; the agent's own addresses in it", "%s; %d; %s",
		v.first, countIn(v.pods, v.first.String()), strings.Join(v.own, ", "))
	_, elsewhere := v.split()
	v.others, err = startPings(v.probe, elsewhere[:min(len(elsewhere), pinged)])
	return v, err
}

// split returns the pods with an address of the CIDR, and the others.
func (v *vacating) split() (within, elsewhere []*bed.Pod) {
	for _, p := range v.pods {
		if countIn([]*bed.Pod{p}, stays) > 0 {
			within = append(within, p)
		} else {
			elsewhere = append(elsewhere, p)
		}
	}
	return within, elsewhere
}

// owned returns the agent's own addresses in the first block, as named by its report and its
// CiliumNode.
func (v *vacating) owned(cn *ciliumv2.CiliumNode) []string {
	own := map[netip.Addr]bool{}
	for addr, use := range cn.Status.IPAM.Used {
		if a, err := netip.ParseAddr(addr); err == nil && expand.NamesAgent(use.Owner) {
			own[a] = true
		}
	}
	for _, a := range whole.OwnAddresses(cn) {
		own[a] = true
	}
	var in []string
	for a := range own {
		if v.first.Contains(a) {
			in = append(in, a.String())
		}
	}
	slices.Sort(in)
	return in
}

// retire sets the CIDR to Drain, and waits until only addresses in use are left of the
// block, and the agent's own are retired.
func (v *vacating) retire(ctx context.Context) error {
	began := time.Now()
	if err := v.edit(ctx); err != nil {
		return err
	}
	err := v.restarts.await(ctx, "the agent's addresses are retired", func(cn *ciliumv2.CiliumNode) bool {
		published, used, err := count(cn, v.first.String())
		return err == nil && published == used && v.retired(cn)
	})
	if err != nil {
		return err
	}
	v.note("from the edit until they are retired and all free addresses have left", "%.0f s", time.Since(began).Seconds())
	err = v.Eventually(ctx, "DrainWaits says that it waits for a restart", func(ctx context.Context) error {
		events := &corev1.EventList{}
		if err := v.Client.List(ctx, events, client.InNamespace(metav1.NamespaceDefault)); err != nil {
			return err
		}
		if !slices.ContainsFunc(events.Items, func(ev corev1.Event) bool {
			return ev.Reason == "DrainWaits" && ev.InvolvedObject.Name == v.node.Name && strings.Contains(ev.Message, string(expand.WaitRestart))
		}) {
			return fmt.Errorf("not among %d events", len(events.Items))
		}
		return nil
	})
	v.check(err == nil, "event DrainWaits names the restart", "%t", err == nil)
	return nil
}

func (v *vacating) edit(ctx context.Context) error { return v.editPool(ctx, "all", setDrain(stays)) }

// retired reports whether each of the agent's own addresses has the entry that marks it as
// retired.
func (v *vacating) retired(cn *ciliumv2.CiliumNode) bool {
	return !slices.ContainsFunc(v.own, func(a string) bool { return string(cn.Status.IPAM.ReleaseIPs[a]) != ipamoption.IPAMReleased })
}

// start starts pods while the agent runs on with retired addresses.
func (v *vacating) start(ctx context.Context) error {
	pods, errs := v.runPods(ctx, v.node, "after", vacatePods, 1)
	v.checkNone(errs, "ADDs that fail while they are retired")
	v.check(countIn(pods, stays) == 0, "new pods with an address of the CIDR", "%d of %d", countIn(pods, stays), len(pods))
	v.pods = append(v.pods, pods...)
	cn, err := v.CiliumNode(ctx, v.node.Name)
	if err != nil {
		return err
	}
	own := v.owned(cn)
	v.check(slices.Equal(own, v.own) && slices.Contains(podCIDRs(cn), v.first.String()),
		"the agent's addresses while it runs; podCIDRs lists the block", "%s; %t", strings.Join(own, ", "), slices.Contains(podCIDRs(cn), v.first.String()))
	return nil
}

// restart restarts the agent, and waits until it has none of its old addresses.
func (v *vacating) restart(ctx context.Context) error {
	if err := v.node.RestartAgent(ctx); err != nil {
		return err
	}
	if err := v.moved(ctx); err != nil {
		return err
	}
	v.checkKept(ctx, v.node, v.pods, "pods restored at their address")
	v.judgePings(v.flows, "packets lost by pods of the block, over all that")
	return nil
}

// moved waits until the agent has none of its old addresses, and as many others instead.
func (v *vacating) moved(ctx context.Context) error {
	began := time.Now()
	var cn *ciliumv2.CiliumNode
	err := v.restarts.await(ctx, "the agent has other addresses", func(now *ciliumv2.CiliumNode) bool {
		cn = now
		return len(v.owned(now)) == 0 && len(whole.OwnAddresses(now)) == len(v.own)
	})
	if err != nil {
		v.check(false, "the agent's own addresses in the block after its restart", "%s", strings.Join(v.owned(cn), ", "))
		return err
	}
	var now []string
	for _, a := range whole.OwnAddresses(cn) {
		now = append(now, a.String())
	}
	v.check(true, "the agent's own addresses in the block after its restart; elsewhere", "0; %s after %.0f s", strings.Join(now, ", "), time.Since(began).Seconds())
	return nil
}

// leave deletes the pods of the block, which is then returned.
func (v *vacating) leave(ctx context.Context) error {
	if err := v.drop(ctx); err != nil {
		return err
	}
	return v.gone(ctx)
}

// drop deletes the pods of the CIDR.
func (v *vacating) drop(ctx context.Context) error {
	within, elsewhere := v.split()
	v.pods, v.since = elsewhere, time.Now()
	return v.deletePods(ctx, within)
}

// block reads the first block. It returns nil once the block is gone.
func (v *vacating) block(ctx context.Context) (*v1alpha1.PodIPBlock, error) {
	block := &v1alpha1.PodIPBlock{}
	err := v.Client.Get(ctx, client.ObjectKey{Name: crd.BlockName(v.first)}, block)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return block, err
}

// gone waits until the first block has gone.
func (v *vacating) gone(ctx context.Context) error {
	err := v.Eventually(ctx, "the block has gone", func(ctx context.Context) error {
		block, err := v.block(ctx)
		if block != nil && err == nil {
			err = fmt.Errorf("it is there: %v", block.Status.Conditions)
		}
		return err
	})
	v.check(err == nil, "the first block has come back, after its pods and the restart", "%t; %.0f s", err == nil, time.Since(v.since).Seconds())
	return err
}

// judge checks what is left at the end.
func (v *vacating) judge(ctx context.Context) error {
	v.checkKept(ctx, v.node, v.pods, "other pods at their address")
	v.judgePings(v.others, "packets lost by other pods, to the end")
	v.checkRoutes(ctx, v.node, v.probe.Node())
	return v.judgeRules(ctx)
}

// checkHealthEndpoint checks that the health endpoint answers at its new address.
func (v *vacating) checkHealthEndpoint(ctx context.Context) error {
	cn, err := v.CiliumNode(ctx, v.node.Name)
	if err != nil {
		return err
	}
	a, err := netip.ParseAddr(cn.Spec.HealthAddressing.IPv4)
	if err != nil {
		return fmt.Errorf("read the address of the health endpoint: %w", err)
	}
	flow, err := v.probe.Ping(a, pingEvery)
	if err != nil {
		return err
	}
	if err := pause(ctx, probeTime); err != nil {
		return err
	}
	v.judgePings([]*bed.Pings{flow}, "packets lost to the health endpoint at its new address")
	return nil
}

// checkEncrypted checks that what the probe sends is encrypted.
func (v *vacating) checkEncrypted(ctx context.Context) error {
	before, err := v.probe.Node().Encrypted(ctx)
	if err != nil {
		return err
	}
	flows, err := startPings(v.probe, v.pods[:1])
	if err != nil {
		return err
	}
	if err := pause(ctx, probeTime); err != nil {
		return err
	}
	sent := v.countPings(flows).Sent
	after, err := v.probe.Node().Encrypted(ctx)
	v.check(err == nil && after-before >= sent, "pings in the end; packets encrypted meanwhile", "%d; %d", sent, after-before)
	return err
}

// routerAddress returns the address of cilium_host.
func routerAddress(cn *ciliumv2.CiliumNode) string {
	for _, a := range cn.Spec.Addresses {
		if a.Type == "CiliumInternalIP" {
			return a.IP
		}
	}
	return ""
}
