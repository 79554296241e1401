//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/e2e/bed"
)

// Two zones of two /27 each, one /28 that both spill into, and the CIDR that is
// added to zone a when all of that is used up.
const (
	zoneLabel    = corev1.LabelTopologyZone
	zoneA        = "100.66.224.0/26"
	zoneB        = "100.68.32.0/26"
	overflow     = "100.69.0.0/28"
	overflowSize = 28
	perOverflow  = 14
	addedToA     = "100.67.0.0/26"

	zonePods  = 20
	spillPods = 43 // together with zonePods, more than the two blocks of node a hold
	lateB     = 10
	// The router has one of the node's addresses.
	roomOfA   = 2*perBlock + perOverflow - 1
	waitPods  = 12
	exhausted = roomOfA - zonePods - spillPods + waitPods
)

// pools runs a node in each of two zones. The one in zone a fills its own pool, spills into
// the next, fills that, lacks addresses, and gets some when a CIDR is added. The other node
// must not be affected.
func pools(ctx context.Context, e *env) error {
	z, err := startZones(ctx, e)
	if err != nil {
		return err
	}
	flows, err := startPings(z.probe, z.a.pods[:pinged])
	if err != nil {
		return err
	}
	if err := z.spill(ctx); err != nil {
		return err
	}
	waiting, err := z.exhaust(ctx)
	if err != nil {
		return err
	}
	if err := z.relieve(ctx, waiting); err != nil {
		return err
	}
	e.judgePings(flows, "packets lost by pods that ran meanwhile, pinged from zone b")
	e.checkKept(ctx, z.a.node, z.a.pods, "pods of zone a at their address")
	return e.judgeRules(ctx)
}

// zones has a node in each zone, with pods.
type zones struct {
	*env
	a, b  zone
	probe *bed.Pod // in zone b
}

type zone struct {
	node *bed.Node
	pods []*bed.Pod
}

// startWith starts the cluster with these pools, then the checker and the operator.
func (e *env) startWith(ctx context.Context, pools ...*v1alpha1.PodIPPool) error {
	if err := e.start(ctx); err != nil {
		return err
	}
	for _, p := range pools {
		if err := e.Client.Create(ctx, p); err != nil {
			return fmt.Errorf("create pool %s: %w", p.Name, err)
		}
	}
	if err := e.watch(ctx); err != nil {
		return err
	}
	var err error
	e.operator, err = e.StartOperator(soon()...)
	return err
}

func startZones(ctx context.Context, e *env) (*zones, error) {
	if err := e.startWith(ctx,
		zonePool("zone-a", "a", 0, blockSize, zoneA),
		zonePool("zone-b", "b", 0, blockSize, zoneB),
		zonePool("overflow", "", -10, overflowSize, overflow),
	); err != nil {
		return nil, err
	}
	z := &zones{env: e}
	for _, in := range []struct {
		*zone
		name, cidr string
	}{{&z.a, "a", zoneA}, {&z.b, "b", zoneB}} {
		var err error
		if in.node, err = e.nodeWith(ctx, "n"+in.name, map[string]string{zoneLabel: in.name}); err != nil {
			return nil, err
		}
		if in.pods, err = e.load(ctx, in.node, zonePods); err != nil {
			return nil, err
		}
		inside := countIn(in.pods, in.cidr)
		e.check(inside == zonePods, fmt.Sprintf("pods of the node in zone %s with an address of its zone's CIDR", in.name), "%d of %d", inside, zonePods)
	}
	z.probe = z.b.pods[0]
	return z, nil
}

// spill runs more pods in zone a than its pool has addresses for.
func (z *zones) spill(ctx context.Context) error {
	pods, errs := z.runPods(ctx, z.a.node, "spill", spillPods, 4)
	logAll(z.env, errs)
	z.a.pods = append(z.a.pods, pods...)
	cn, err := z.CiliumNode(ctx, z.a.node.Name)
	if err != nil {
		return err
	}
	own, next := blocksIn(podCIDRs(cn), zoneA), blocksIn(podCIDRs(cn), overflow)
	z.check(len(errs) == 0, fmt.Sprintf("spill: failed CNI ADDs of %d", spillPods), "%d", len(errs))
	z.check(own == 2 && next == 1, "spill: blocks of its own pool, then of the next", "%d of 2, %d", own, next)
	z.note("spill: pods with an address of the next pool", "%d", countIn(z.a.pods, overflow))
	return nil
}

// exhaust runs even more pods there. It returns those that found no address.
func (z *zones) exhaust(ctx context.Context) ([]*bed.Pod, error) {
	pods, errs, err := z.tryPods(ctx, z.a.node, "late", exhausted)
	if err != nil {
		return nil, err
	}
	var waiting []*bed.Pod
	for i, err := range errs {
		if err == nil {
			z.a.pods = append(z.a.pods, pods[i])
		} else {
			waiting = append(waiting, pods[i])
		}
	}
	others := otherReasons(slices.DeleteFunc(errs, func(err error) bool { return err == nil }))
	logAll(z.env, others)
	z.check(len(waiting) == waitPods && len(others) == 0, "exhausted: ADDs that failed, expected; for another reason than no address", "%d, %d; %d", len(waiting), waitPods, len(others))
	z.saysSo(ctx)
	more, errs := z.runPods(ctx, z.b.node, "late", lateB, 4)
	logAll(z.env, errs)
	z.b.pods = append(z.b.pods, more...)
	z.check(len(errs) == 0 && countIn(z.b.pods, zoneB) == len(z.b.pods), fmt.Sprintf("exhausted: failed ADDs of %d in zone b meanwhile; pods there outside its CIDR", lateB),
		"%d; %d", len(errs), len(z.b.pods)-countIn(z.b.pods, zoneB))
	return waiting, nil
}

// saysSo checks that a node that lacks addresses is reported as docs/reference/events.md
// promises.
func (z *zones) saysSo(ctx context.Context) {
	var node string
	err := z.Eventually(ctx, "the Node says that it lacks addresses", func(ctx context.Context) error {
		c, err := z.shortage(ctx)
		if err == nil && c.Status != corev1.ConditionTrue {
			err = fmt.Errorf("condition %q %s", c.Status, c.Reason)
		}
		node = c.Reason
		return err
	})
	z.check(err == nil && node == "PoolsExhausted", "exhausted: Node condition PodAddressShortage", "%s", node)
	for _, pool := range []string{"zone-a", "overflow"} {
		err := z.Eventually(ctx, "pool "+pool+" says that it is exhausted", func(ctx context.Context) error {
			p := &v1alpha1.PodIPPool{}
			if err := z.Client.Get(ctx, client.ObjectKey{Name: pool}, p); err != nil {
				return err
			}
			if !meta.IsStatusConditionTrue(p.Status.Conditions, "Exhausted") {
				return fmt.Errorf("conditions %v", p.Status.Conditions)
			}
			return nil
		})
		z.check(err == nil, "exhausted: condition Exhausted of PodIPPool "+pool, "%t", err == nil)
	}
	var missing []string
	err = z.Eventually(ctx, "the events are there", func(ctx context.Context) (err error) {
		missing, err = z.missingEvents(ctx, "PodAddressShortage of Node na", "PoolExhausted of PodIPPool zone-a", "PoolExhausted of PodIPPool overflow")
		if err == nil && len(missing) > 0 {
			err = fmt.Errorf("missing: %v", missing)
		}
		return err
	})
	z.check(err == nil, "exhausted: events missing of PodAddressShortage and two PoolExhausted", "%d", len(missing))
}

// setDrain drains one CIDR of a pool.
func setDrain(cidr string) func(*v1alpha1.PodIPPool) {
	return func(pool *v1alpha1.PodIPPool) {
		for i := range pool.Spec.IPv4.CIDRs {
			if pool.Spec.IPv4.CIDRs[i].CIDR == cidr {
				pool.Spec.IPv4.CIDRs[i].AllocationPolicy = v1alpha1.AllocationDrain
			}
		}
	}
}

func (e *env) editPool(ctx context.Context, name string, edit func(*v1alpha1.PodIPPool)) error {
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		pool := &v1alpha1.PodIPPool{}
		if err := e.Client.Get(ctx, client.ObjectKey{Name: name}, pool); err != nil {
			return fmt.Errorf("edit pool %s: %w", name, err)
		}
		edit(pool)
		return e.Client.Update(ctx, pool)
	})
}

// addCIDR returns an edit that adds a CIDR to a pool.
func addCIDR(cidr string) func(*v1alpha1.PodIPPool) {
	return func(p *v1alpha1.PodIPPool) {
		p.Spec.IPv4.CIDRs = append(p.Spec.IPv4.CIDRs, v1alpha1.PoolCIDR{CIDR: cidr})
	}
}

// relieve adds a CIDR to the pool of zone a, and retries the waiting pods.
func (z *zones) relieve(ctx context.Context, waiting []*bed.Pod) error {
	began := time.Now()
	err := z.editPool(ctx, "zone-a", addCIDR(addedToA))
	if err != nil {
		return err
	}
	err = z.Eventually(ctx, "the node has a block of it", func(ctx context.Context) error {
		cn, err := z.CiliumNode(ctx, z.a.node.Name)
		if err == nil && blocksIn(podCIDRs(cn), addedToA) == 0 {
			err = fmt.Errorf("podCIDRs %v", podCIDRs(cn))
		}
		return err
	})
	if err != nil {
		return err
	}
	published := time.Since(began)
	err = waiting[0].Attach(ctx)
	first := time.Since(began)
	z.check(err == nil, "CIDR added: from the edit until its first block is published; until a pod's ADD has succeeded", "%.2f s; %.1f s", published.Seconds(), first.Seconds())
	if err != nil {
		return err
	}
	errs := z.attachAll(ctx, waiting[1:])
	logAll(z.env, errs)
	z.check(len(errs) == 0, "CIDR added: failed next ADDs of the pods that waited", "%d of %d", len(errs), len(waiting))
	for _, p := range waiting {
		if p.Address.IsValid() {
			z.a.pods = append(z.a.pods, p)
			if err := p.Report(ctx); err != nil {
				return err
			}
		}
	}
	err = z.Eventually(ctx, "the Node has recovered", func(ctx context.Context) error {
		c, err := z.shortage(ctx)
		if err == nil && c.Status != corev1.ConditionFalse {
			err = fmt.Errorf("condition %q %s", c.Status, c.Reason)
		}
		return err
	})
	z.check(err == nil, "CIDR added: Node condition PodAddressShortage is False again", "%t", err == nil)
	return nil
}

// shortage returns the condition of the node in zone a.
func (z *zones) shortage(ctx context.Context) (corev1.NodeCondition, error) {
	node := &corev1.Node{}
	if err := z.Client.Get(ctx, client.ObjectKey{Name: z.a.node.Name}, node); err != nil {
		return corev1.NodeCondition{}, err
	}
	for _, c := range node.Status.Conditions {
		if c.Type == "PodAddressShortage" {
			return c, nil
		}
	}
	return corev1.NodeCondition{}, nil
}

// missingEvents returns those of the wanted "reason of kind name" without an event.
func (e *env) missingEvents(ctx context.Context, want ...string) ([]string, error) {
	events := &corev1.EventList{}
	if err := e.Client.List(ctx, events, client.InNamespace(metav1.NamespaceDefault)); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(want, func(w string) bool {
		return slices.ContainsFunc(events.Items, func(ev corev1.Event) bool {
			return fmt.Sprintf("%s of %s %s", ev.Reason, ev.InvolvedObject.Kind, ev.InvolvedObject.Name) == w
		})
	}), nil
}

// tryPods creates pods and tries one ADD for each, four at a time. It returns all pods, and an
// error or nil for each.
func (e *env) tryPods(ctx context.Context, n *bed.Node, prefix string, count int) ([]*bed.Pod, []error, error) {
	var pods []*bed.Pod
	for i := range count {
		p, err := n.CreatePod(ctx, fmt.Sprintf("%s-%s-%d", prefix, n.Name, i))
		if err != nil {
			return nil, nil, err
		}
		pods = append(pods, p)
	}
	errs := make([]error, count)
	eachOf(pods, func(i int, p *bed.Pod) {
		if errs[i] = p.Attach(ctx); errs[i] == nil {
			errs[i] = p.Report(ctx)
		}
	})
	return pods, errs, nil
}

// attachAll tries one ADD for each pod and returns those that failed.
func (e *env) attachAll(ctx context.Context, pods []*bed.Pod) []error {
	errs := make([]error, len(pods))
	eachOf(pods, func(i int, p *bed.Pod) { errs[i] = p.Attach(ctx) })
	return slices.DeleteFunc(errs, func(err error) bool { return err == nil })
}

func zonePool(name, zone string, priority, size int32, cidrs ...string) *v1alpha1.PodIPPool {
	p := &v1alpha1.PodIPPool{ObjectMeta: metav1.ObjectMeta{Name: name}}
	p.Spec.Priority = priority
	if zone != "" {
		p.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{zoneLabel: zone}}
	}
	p.Spec.IPv4 = &v1alpha1.IPv4Ranges{BlockSize: size}
	for _, c := range cidrs {
		p.Spec.IPv4.CIDRs = append(p.Spec.IPv4.CIDRs, v1alpha1.PoolCIDR{CIDR: c})
	}
	return p
}

// countIn counts the pods with an address in the CIDR.
func countIn(pods []*bed.Pod, cidr string) int {
	whole, count := netip.MustParsePrefix(cidr), 0
	for _, p := range pods {
		if slices.ContainsFunc(p.Addresses, whole.Contains) {
			count++
		}
	}
	return count
}

// blocksIn counts the blocks that lie in the CIDR.
func blocksIn(blocks []string, cidr string) int {
	whole, count := netip.MustParsePrefix(cidr), 0
	for _, b := range blocks {
		if p, err := netip.ParsePrefix(b); err == nil && whole.Contains(p.Addr()) {
			count++
		}
	}
	return count
}

func logAll(e *env, errs []error) {
	if err := errors.Join(errs...); err != nil {
		e.Logf("%v", err)
	}
}
