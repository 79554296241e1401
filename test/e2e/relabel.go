//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	ipamoption "github.com/cilium/cilium/pkg/ipam/option"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/e2e/bed"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant/whole"
)

const (
	leftPool, joinedPool = "100.66.224.0/25", "100.66.240.0/25"
	relabelPods          = 18 // on each node, more than one block of 14 holds
)

// relabel moves two nodes to another zone by their labels. The pool that they leave drains
// such nodes, one at a time: it releases its blocks, including the first one with the agent's
// own addresses, as pods are replaced and agents restart, in either order, while pods are
// pinged.
func relabel(ctx context.Context, e *env) error {
	r, err := startRelabel(ctx, e)
	if err != nil {
		return err
	}
	moving, err := r.countMoving(ctx)
	if err != nil {
		return err
	}
	for _, n := range r.nodes {
		if err := r.label(ctx, n.node.Name, "b"); err != nil {
			return err
		}
	}
	for _, agentFirst := range []bool{true, false} {
		if err := r.moveNext(ctx, agentFirst); err != nil {
			return err
		}
	}
	most, err := moving()
	r.check(err == nil && most == 1, "nodes that moved off the pool at the same time, at most", "%d, allowed 1", most)
	for _, n := range r.nodes {
		r.checkKept(ctx, n.node, n.pods, n.node.Name+": pods at their address in the end")
		r.judgePings(n.flows, n.node.Name+": packets lost by the pods that replaced others")
	}
	r.checkLeft(ctx)
	return errors.Join(err, r.judgeRules(ctx))
}

type relabeling struct {
	*env
	nodes []*relabeled
	probe *bed.Pod // in the other zone
}

// relabeled is a node that changes its zone.
type relabeled struct {
	node  *bed.Node
	pods  []*bed.Pod
	flows []*bed.Pings
	done  bool
}

func startRelabel(ctx context.Context, e *env) (*relabeling, error) {
	left := zonePool("a", "a", 0, drainBlock, leftPool)
	left.Spec.UnselectedNodes = v1alpha1.UnselectedNodesPolicy{Mode: v1alpha1.UnselectedNodesDrain}
	if err := e.startWith(ctx, left, zonePool("b", "b", 0, drainBlock, joinedPool)); err != nil {
		return nil, err
	}
	r := &relabeling{env: e}
	other, err := e.nodeWith(ctx, "n3", map[string]string{zoneLabel: "b"})
	if err != nil {
		return nil, err
	}
	if r.probe, err = other.Run(ctx, "probe"); err != nil {
		return nil, err
	}
	for _, name := range []string{"n1", "n2"} {
		n := &relabeled{}
		if n.node, err = e.nodeWith(ctx, name, map[string]string{zoneLabel: "a"}); err != nil {
			return nil, err
		}
		if n.pods, err = e.load(ctx, n.node, relabelPods); err != nil {
			return nil, err
		}
		if n.flows, err = startPings(r.probe, n.pods[:pinged]); err != nil {
			return nil, err
		}
		e.check(countIn(n.pods, leftPool) == relabelPods, name+": pods in its zone's CIDR", "%d of %d", countIn(n.pods, leftPool), relabelPods)
		r.nodes = append(r.nodes, n)
	}
	return r, nil
}

// label moves a node to a zone.
func (e *env) label(ctx context.Context, node, zone string) error {
	n := &corev1.Node{}
	n.Name = node
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, zoneLabel, zone))
	if err := e.Client.Patch(ctx, n, patch); err != nil {
		return fmt.Errorf("move %s to another zone: %w", node, err)
	}
	return nil
}

// countMoving counts, at every version of every block, the nodes with a block that drains
// because their pool no longer selects them. stop returns the maximum.
func (r *relabeling) countMoving(ctx context.Context) (stop func() (most int, err error), err error) {
	w, err := r.Client.Watch(ctx, &v1alpha1.PodIPBlockList{})
	if err != nil {
		return nil, fmt.Errorf("watch blocks: %w", err)
	}
	counted := make(chan int, 1)
	go func() {
		most, drains := 0, map[string]string{} // nodes by block
		for event := range w.ResultChan() {
			b, ok := event.Object.(*v1alpha1.PodIPBlock)
			if !ok {
				most = -1 // the watch failed
				break
			}
			delete(drains, b.Name)
			if movesOff(b) {
				drains[b.Name] = b.Spec.NodeName
			}
			nodes := map[string]bool{}
			for _, n := range drains {
				nodes[n] = true
			}
			most = max(most, len(nodes))
		}
		counted <- most
	}()
	return func() (int, error) {
		w.Stop()
		if most := <-counted; most >= 0 {
			return most, nil
		}
		return -1, errors.New("the watch of the blocks has failed")
	}, nil
}

func movesOff(b *v1alpha1.PodIPBlock) bool {
	c := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.BlockDraining)
	return b.Status.Phase == v1alpha1.PhaseDraining && c != nil && c.Reason == v1alpha1.ReasonNodeUnselected
}

// moveNext waits until the next node drains, and moves it: its agent is restarted before its
// pods are replaced, or after the addresses that they left have been released too.
func (r *relabeling) moveNext(ctx context.Context, agentFirst bool) error {
	began := time.Now()
	n, err := r.next(ctx)
	if err != nil {
		return err
	}
	if err := r.retired(ctx, n); err != nil {
		return err
	}
	name := n.node.Name
	r.note(name+": from the edit, or the end of the node before, until its agent's addresses are retired and all free ones have left", "%.0f s", time.Since(began).Seconds())
	steps := []func(context.Context, *relabeled) error{r.replace, r.emptied, r.restart}
	if agentFirst {
		steps = []func(context.Context, *relabeled) error{r.restart, r.replace}
	}
	for _, do := range steps {
		if err := do(ctx, n); err != nil {
			return err
		}
	}
	began = time.Now()
	err = r.Eventually(ctx, name+" has left the pool", func(ctx context.Context) error { return r.left(ctx, name) })
	r.check(err == nil, name+": after its last pod and the restart of its agent, until nothing is left of its old zone", "%t; %.0f s", err == nil, time.Since(began).Seconds())
	n.done = true
	return err
}

// restart restarts the node's agent.
func (r *relabeling) restart(ctx context.Context, n *relabeled) error {
	if err := n.node.RestartAgent(ctx); err != nil {
		return err
	}
	r.checkKept(ctx, n.node, n.pods, n.node.Name+": pods restored at their address")
	return nil
}

// next waits until the blocks of a node drain, and checks that those of the other node, if it
// has not moved, wait for that.
func (r *relabeling) next(ctx context.Context) (next *relabeled, err error) {
	err = r.Eventually(ctx, "the blocks of a node drain", func(ctx context.Context) error {
		draining, waiting, err := r.drainingOf(ctx)
		if err != nil {
			return err
		}
		next = nil
		for _, n := range r.nodes {
			switch name := n.node.Name; {
			case n.done:
			case draining[name] > 0 && waiting[name] == 0:
				next = n
			case waiting[name] == 0:
				return fmt.Errorf("%s neither drains nor waits", name)
			}
		}
		if next == nil {
			return fmt.Errorf("none does: %v", draining)
		}
		return nil
	})
	return next, err
}

// drainingOf counts, by node, the blocks that drain because their nodes move off, and those
// that wait for other nodes.
func (r *relabeling) drainingOf(ctx context.Context) (draining, waiting map[string]int, err error) {
	blocks := &v1alpha1.PodIPBlockList{}
	if err := r.Client.List(ctx, blocks); err != nil {
		return nil, nil, fmt.Errorf("list blocks: %w", err)
	}
	draining, waiting = map[string]int{}, map[string]int{}
	for _, b := range blocks.Items {
		if movesOff(&b) {
			draining[b.Spec.NodeName]++
		}
		if c := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.BlockDraining); c != nil && c.Reason == v1alpha1.WaitsFor+"Nodes" {
			waiting[b.Spec.NodeName]++
		}
	}
	return draining, waiting, nil
}

// retired waits until only used addresses of the node's old blocks are left, and those of its
// agent are retired.
func (r *relabeling) retired(ctx context.Context, n *relabeled) error {
	s := &restarts{env: r.env, node: n.node}
	return s.await(ctx, "the agent's addresses are retired", func(cn *ciliumv2.CiliumNode) bool {
		published, used, err := count(cn, leftPool)
		return err == nil && published == used && releases(cn, ipamoption.IPAMReleased) == 1
	})
}

// emptied waits until only the agent's own address of the node's old blocks is left. An agent
// that restarts earlier may take one that a pod has just left.
func (r *relabeling) emptied(ctx context.Context, n *relabeled) error {
	s := &restarts{env: r.env, node: n.node}
	return s.await(ctx, "what the pods left has gone", func(cn *ciliumv2.CiliumNode) bool {
		published, _, err := count(cn, leftPool)
		return err == nil && published == 1 && releases(cn, ipamoption.IPAMReleased) == 1
	})
}

// replace starts a successor for each pod, and then deletes the pods.
func (r *relabeling) replace(ctx context.Context, n *relabeled) error {
	name, old := n.node.Name, n.pods
	next, errs := r.runPods(ctx, n.node, "moved", len(old), 4)
	r.checkNone(errs, name+": failed CNI ADDs of as many pods again")
	r.check(countIn(next, joinedPool) == len(old), name+": of these, with an address of the new zone", "%d of %d", countIn(next, joinedPool), len(old))
	r.judgePings(n.flows, name+": packets lost by the pods before they were replaced")
	var err error
	if n.flows, err = startPings(r.probe, next[:min(len(next), pinged)]); err != nil {
		return err
	}
	n.pods = next
	return r.deletePods(ctx, old)
}

// checkLeft checks that no route of the other node leads into the zone that both have left.
func (r *relabeling) checkLeft(ctx context.Context) {
	var left []netip.Prefix
	err := r.Eventually(ctx, "the routes have gone", func(ctx context.Context) error {
		routes, err := r.probe.Node().Routes(ctx)
		if err != nil {
			return err
		}
		left = nil
		for _, route := range routes {
			if netip.MustParsePrefix(leftPool).Contains(route.To.Addr()) {
				left = append(left, route.To)
			}
		}
		if len(left) > 0 {
			return fmt.Errorf("there are routes to %v", left)
		}
		return nil
	})
	r.check(err == nil, "routes of the other node into the zone that both have left", "%d", len(left))
}

// left returns an error while a node has anything of the pool that it leaves.
func (r *relabeling) left(ctx context.Context, name string) error {
	cn, err := r.CiliumNode(ctx, name)
	if err != nil {
		return err
	}
	whence := netip.MustParsePrefix(leftPool)
	published, _, err := count(cn, leftPool)
	blocks, listErr := r.blocksOf(ctx, name)
	if err := errors.Join(err, listErr); err != nil {
		return err
	}
	if blocksIn(podCIDRs(cn), leftPool)+published > 0 || slices.ContainsFunc(blocks, func(b netip.Prefix) bool { return whence.Contains(b.Addr()) }) ||
		slices.ContainsFunc(whole.OwnAddresses(cn), whence.Contains) {
		return fmt.Errorf("podCIDRs %v, %d addresses, blocks %v, own %v", podCIDRs(cn), published, blocks, whole.OwnAddresses(cn))
	}
	return nil
}
