//go:build linux

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/e2e/bed"
)

// The nodes' first blocks, with their router addresses, are in a CIDR that stays.
const (
	stays    = "100.66.224.0/27"
	drained  = "100.66.225.0/27"
	replaces = "100.66.226.0/26"

	drainBlock = 28
	drainPods  = 28 // three blocks, of which two drain
	moveTurns  = 4
)

// drain drains a CIDR with two of a node's three blocks, and replaces the pods in it, starting
// each pod's successor first, as a rollout does.
func drain(ctx context.Context, e *env) error {
	d, err := startDrain(ctx, e, soon()...)
	if err != nil {
		return err
	}
	if err := d.begin(ctx); err != nil {
		return err
	}
	began := time.Now()
	turns := 0
	for countIn(d.pods, drained) > 0 && turns < moveTurns {
		turns++
		if err := d.shrunk(ctx); err != nil {
			return err
		}
		if err := d.move(ctx, turns); err != nil {
			return err
		}
	}
	e.check(countIn(d.pods, drained) == 0, "turns until no pod is left in the CIDR", "%d; %.0f s", turns, time.Since(began).Seconds())
	began = time.Now()
	left, err := d.gone(ctx)
	e.check(err == nil, "PodIPBlocks left of the CIDR, after the last of its pods", "%d; %.0f s", left, time.Since(began).Seconds())
	if err != nil {
		return err
	}
	d.checkRoutes(ctx, d.node, d.probe.Node())
	d.judgePings(d.flows, "packets lost by pods that were not moved")
	d.checkKept(ctx, d.node, d.pods, "pods at their address")
	return d.judgeRules(ctx)
}

type drains struct {
	*env
	node  *bed.Node
	probe *bed.Pod
	pods  []*bed.Pod
	flows []*bed.Pings
}

func startDrain(ctx context.Context, e *env, operatorFlags ...string) (*drains, error) {
	if err := e.start(ctx); err != nil {
		return nil, err
	}
	if err := e.Client.Create(ctx, zonePool("all", "", 0, drainBlock, stays, drained, replaces)); err != nil {
		return nil, fmt.Errorf("create pool: %w", err)
	}
	d := &drains{env: e}
	var err error
	if d.node, d.probe, err = e.twoNodes(ctx, operatorFlags...); err != nil {
		return nil, err
	}
	if d.pods, err = e.load(ctx, d.node, drainPods); err != nil {
		return nil, err
	}
	var stay []*bed.Pod
	for _, p := range d.pods {
		if countIn([]*bed.Pod{p}, drained) == 0 {
			stay = append(stay, p)
		}
	}
	if len(stay) == 0 {
		return nil, fmt.Errorf("no pod has an address of %s", stays)
	}
	d.flows, err = startPings(d.probe, stay[:min(len(stay), pinged)])
	return d, err
}

// begin sets the CIDR to Drain, and waits until the operator reports what the drain
// waits for.
func (d *drains) begin(ctx context.Context) error {
	d.note("pods in the CIDR to drain; its blocks", "%d of %d; 2", countIn(d.pods, drained), len(d.pods))
	began := time.Now()
	if err := d.editPool(ctx, "all", setDrain(drained)); err != nil {
		return err
	}
	s := &restarts{env: d.env, node: d.node}
	err := s.await(ctx, "the replacement is there", func(cn *ciliumv2.CiliumNode) bool { return blocksIn(podCIDRs(cn), replaces) > 0 })
	if err != nil {
		return err
	}
	d.note("from the edit until the replacement is published", "%.2f s", time.Since(began).Seconds())
	message := ""
	err = d.Eventually(ctx, "DrainWaits says that it waits for pods", func(ctx context.Context) error {
		events := &corev1.EventList{}
		if err := d.Client.List(ctx, events, client.InNamespace(metav1.NamespaceDefault)); err != nil {
			return err
		}
		for _, ev := range events.Items {
			if ev.Reason == "DrainWaits" && ev.InvolvedObject.Name == d.node.Name && strings.Contains(ev.Message, "Pods") {
				message = ev.Message
				return nil
			}
		}
		return fmt.Errorf("not among %d events", len(events.Items))
	})
	d.Logf("DrainWaits: %s", message)
	d.check(err == nil, "event DrainWaits names pods", "%t", err == nil)
	return nil
}

// shrunk waits until only used addresses of the CIDR are left.
func (d *drains) shrunk(ctx context.Context) error {
	s := &restarts{env: d.env, node: d.node}
	return s.await(ctx, "nothing but pods is left in the CIDR", func(cn *ciliumv2.CiliumNode) bool {
		published, _, err := count(cn, drained)
		return err == nil && published == countIn(d.pods, drained) && len(cn.Status.IPAM.ReleaseIPs) == 0
	})
}

// move replaces each pod in the CIDR: it starts the successor, then deletes the pod.
func (d *drains) move(ctx context.Context, turn int) error {
	var stay, old []*bed.Pod
	for _, p := range d.pods {
		if countIn([]*bed.Pod{p}, drained) > 0 {
			old = append(old, p)
		} else {
			stay = append(stay, p)
		}
	}
	began := time.Now()
	next, errs := make([]*bed.Pod, len(old)), make([]error, len(old))
	eachOf(old, func(i int, p *bed.Pod) {
		if next[i], errs[i] = d.runPod(ctx, d.node, fmt.Sprintf("moved-%d-%d", turn, i)); errs[i] == nil {
			errs[i] = p.Delete(ctx)
		}
	})
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	logAll(d.env, errs)
	d.check(len(errs) == 0, fmt.Sprintf("turn %d: pods moved; failed", turn), "%d; %d", len(old), len(errs))
	if len(errs) > 0 {
		return fmt.Errorf("%d pods failed, the first: %w", len(errs), errs[0])
	}
	d.pods = slices.Concat(stay, next)
	d.note(fmt.Sprintf("turn %d: successors that got an address of the CIDR again, freed a moment before", turn), "%d; the turn took %.0f s",
		countIn(next, drained), time.Since(began).Seconds())
	return nil
}

// gone waits until nothing is left of the CIDR: no address, no podCIDR, no
// block.
func (d *drains) gone(ctx context.Context) (left int, err error) {
	err = d.Eventually(ctx, "the blocks have gone", func(ctx context.Context) error {
		cn, err := d.CiliumNode(ctx, d.node.Name)
		if err != nil {
			return err
		}
		published, _, err := count(cn, drained)
		if err != nil {
			return err
		}
		blocks := &v1alpha1.PodIPBlockList{}
		if err := d.Client.List(ctx, blocks); err != nil {
			return err
		}
		var cidrs []string
		for _, b := range blocks.Items {
			cidrs = append(cidrs, b.Spec.CIDR)
		}
		left = blocksIn(cidrs, drained)
		if left+published+blocksIn(podCIDRs(cn), drained) > 0 {
			return fmt.Errorf("%d blocks, %d addresses, podCIDRs %v", left, published, podCIDRs(cn))
		}
		return nil
	})
	return left, err
}
