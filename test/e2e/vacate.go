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

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/test/e2e/bed"
)

// vacatePods are the pods that start once the agent's addresses are retired.
const vacatePods = 4

// vacate drains the CIDR with a node's first block, in which the agent has its own
// addresses, while pods there are pinged. The operator retires these addresses; the agent
// takes others when it restarts; once the block's pods have gone, it comes back.
func vacate(ctx context.Context, e *env) error {
	d, err := startDrain(ctx, e)
	if err != nil {
		return err
	}
	v := &vacating{drains: d, restarts: &restarts{env: e, node: d.node}}
	for _, step := range []func(context.Context) error{v.find, v.retire, v.start, v.restart, v.leave} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	d.checkRoutes(ctx, d.node, d.probe.Node())
	return d.judgeRules(ctx)
}

type vacating struct {
	*drains
	restarts *restarts
	first    netip.Prefix
	own      []string // the agent's addresses in it
	since    time.Time
}

// find finds the node's first block.
func (v *vacating) find(ctx context.Context) error {
	cn, err := v.CiliumNode(ctx, v.node.Name)
	if err != nil {
		return err
	}
	router, err := netip.ParseAddr(routerAddress(cn))
	if err != nil {
		return fmt.Errorf("read the router's address: %w", err)
	}
	for _, p := range cn.Spec.IPAM.PodCIDRs {
		if p.Contains(router) {
			v.first = p.Prefix
		}
	}
	v.own = v.owned(cn)
	v.note("the first block; its pods; the agent's own addresses in it", "%s; %d; %s", v.first, countIn(v.pods, v.first.String()), strings.Join(v.own, ", "))
	if len(v.own) == 0 || countIn(v.pods, v.first.String()) == 0 {
		return fmt.Errorf("block %s lacks pods, or the agent's addresses", v.first)
	}
	return nil
}

// owned are the agent's own addresses in the first block, by its report and its CiliumNode.
func (v *vacating) owned(cn *ciliumv2.CiliumNode) []string {
	var own []string
	for addr, use := range cn.Status.IPAM.Used {
		if a, err := netip.ParseAddr(addr); err == nil && v.first.Contains(a) && expand.NamesAgent(use.Owner) {
			own = append(own, addr)
		}
	}
	if a, err := netip.ParseAddr(routerAddress(cn)); err == nil && v.first.Contains(a) && !slices.Contains(own, a.String()) {
		own = append(own, a.String())
	}
	slices.Sort(own)
	return own
}

// retire sets the CIDR to Drain, and waits until only addresses in use are left of the
// block, and the agent's own are retired.
func (v *vacating) retire(ctx context.Context) error {
	began := time.Now()
	if err := v.editPool(ctx, "all", setDrain(stays)); err != nil {
		return err
	}
	err := v.restarts.await(ctx, "the agent's addresses are retired", func(cn *ciliumv2.CiliumNode) bool {
		published, used, err := count(cn, v.first.String())
		return err == nil && published == used && releases(cn, ipamoption.IPAMReleased) == len(v.own)
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
	began := time.Now()
	var cn *ciliumv2.CiliumNode
	err := v.restarts.await(ctx, "the agent has other addresses", func(now *ciliumv2.CiliumNode) bool {
		cn = now
		return len(v.owned(now)) == 0
	})
	if err != nil {
		v.check(false, "the agent's own addresses in the block after its restart", "%s", strings.Join(v.owned(cn), ", "))
		return err
	}
	v.check(true, "the agent's own addresses in the block after its restart; its router", "0; %s after %.0f s", routerAddress(cn), time.Since(began).Seconds())
	v.checkKept(ctx, v.node, v.pods, "pods restored at their address")
	v.judgePings(v.flows, "packets lost by pods of the block, over all that")
	v.since = time.Now()
	return nil
}

// leave deletes the pods of the block, which comes back then.
func (v *vacating) leave(ctx context.Context) error {
	var drop []*bed.Pod
	v.pods = slices.DeleteFunc(v.pods, func(p *bed.Pod) bool {
		in := countIn([]*bed.Pod{p}, stays) > 0
		if in {
			drop = append(drop, p)
		}
		return in
	})
	if err := v.deletePods(ctx, drop); err != nil {
		return err
	}
	block := &v1alpha1.PodIPBlock{}
	block.Name = strings.ReplaceAll(v.first.String(), "/", "-")
	err := v.Eventually(ctx, "the block has gone", func(ctx context.Context) error {
		err := v.Client.Get(ctx, client.ObjectKeyFromObject(block), block)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it is there: %v: %w", block.Status.Conditions, err)
	})
	v.check(err == nil, "the first block has come back, after its pods and the restart", "%t; %.0f s", err == nil, time.Since(v.since).Seconds())
	v.checkKept(ctx, v.node, v.pods, "other pods at their address")
	return nil
}

// routerAddress is the address of cilium_host.
func routerAddress(cn *ciliumv2.CiliumNode) string {
	for _, a := range cn.Spec.Addresses {
		if a.Type == "CiliumInternalIP" {
			return a.IP
		}
	}
	return ""
}
