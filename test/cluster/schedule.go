//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/cilium-pool/cilium-pool-operator/test/cluster/kube"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

const (
	addressResource = "cilium-pool.io/ipv4"
	// tooManyPods is more than the addresses of manifests/small-pool.yaml, manyPods more than
	// the pool has with all CIDRs that it gets, which have 14 addresses in each of 28 blocks.
	tooManyPods, manyPods = 80, 400
	// fullFor is the time without a change once all addresses are in use.
	fullFor     = 20 * time.Second
	fillTimeout = 15 * time.Minute
	moreCIDR    = "100.66.225.0/25"
	manyCIDR    = "100.66.226.0/24"
	addCIDR     = `kubectl patch podippool small --type=json -p '[{"op":"add","path":"/spec/ipv4/cidrs/-","value":{"cidr":"%s"}}]'`
	enableOffer = upgradeOperator + "--set scheduling.enabled=true"
	endOffer    = upgradeOperator + "--set scheduling.enabled=false"
)

// scheduleScenario checks that with scheduling.enabled as many pods of a Deployment run as
// there are addresses, and the others stay pending until the pool gets more: few at first,
// then hundreds. Kubelets that restart keep their pods, and disabling it evicts none.
func scheduleScenario(ctx context.Context, t *trial) error {
	s := setup{name: "few addresses", pools: []string{"test/cluster/manifests/small-pool.yaml"}}
	if err := t.startWith(ctx, s); err != nil {
		return err
	}
	if err := t.startPings(ctx); err != nil {
		return err
	}
	_, lackedBefore, _, err := t.failedSandboxes(ctx)
	if err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{t.enableOffers, t.fillUp, t.moreAddresses, t.fillWithMany, t.disableOffers} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	_, lacked, example, err := t.failedSandboxes(ctx)
	if err != nil {
		return err
	}
	t.check("sandboxes that failed for lack of an address", lacked-lackedBefore, lacked == lackedBefore)
	if lacked > lackedBefore {
		t.say("for example: %s", example)
	}
	return t.noPingLost(ctx, "pings lost")
}

func (t *trial) enableOffers(ctx context.Context) error {
	began := time.Now()
	if _, err := t.shell(ctx, enableOffer); err != nil {
		return err
	}
	err := t.awaitOffers(ctx, true)
	t.check("scheduling.enabled=true: all Nodes offer addresses, after", seconds(began), err == nil)
	return err
}

// awaitOffers waits until all Nodes offer addresses, or none does.
func (t *trial) awaitOffers(ctx context.Context, want bool) error {
	return kube.Await(ctx, time.Minute, "offers of Nodes", func(ctx context.Context) (bool, string) {
		nodes, err := query[corev1.NodeList](ctx, t.bed, "nodes")
		if err != nil {
			return false, err.Error()
		}
		for _, n := range nodes.Items {
			_, offered := n.Status.Capacity[addressResource]
			if _, allocatable := n.Status.Allocatable[addressResource]; offered != want || allocatable != want {
				return false, fmt.Sprintf("%s: %v", n.Name, n.Status.Allocatable)
			}
		}
		return true, ""
	})
}

// fillUp creates more pods than there are addresses, and then restarts a kubelet.
func (t *trial) fillUp(ctx context.Context) error {
	if err := t.cluster.Apply(ctx, webManifest); err != nil {
		return err
	}
	if err := t.fill(ctx, tooManyPods); err != nil {
		return err
	}
	if err := t.keepsPods(ctx, "kubelet of n2 restarts", t.restartKubelet); err != nil {
		return err
	}
	if err := harness.Sleep(ctx, fullFor); err != nil {
		return err
	}
	u, err := t.addressUse(ctx)
	t.check(fmt.Sprintf("%s later as many run", fullFor), u.running, err == nil && u.full(tooManyPods))
	return err
}

// fill creates enough pods that all addresses are in use.
func (t *trial) fill(ctx context.Context, pods int) error {
	began := time.Now()
	if _, err := t.cluster.Kubectl(ctx, "scale", "deployment", "web", fmt.Sprintf("--replicas=%d", pods)); err != nil {
		return err
	}
	var u addressUse
	err := kube.Await(ctx, fillTimeout, "all addresses are in use", func(ctx context.Context) (bool, string) {
		var err error
		u, err = t.addressUse(ctx)
		return err == nil && u.full(pods), fmt.Sprintf("%+v, %v", u, err)
	})
	t.check(fmt.Sprintf("of %d pods run as many as there are addresses for, after %s", pods, seconds(began)), fmt.Sprintf("%d of %d", u.running, u.addresses), err == nil)
	if err == nil {
		t.check("the others are pending, with Insufficient "+addressResource, fmt.Sprintf("%d of %d", u.insufficient, pods-u.running), u.insufficient == pods-u.running)
	}
	return err
}

// fillWithMany does the same as fillUp with hundreds of pods.
func (t *trial) fillWithMany(ctx context.Context) error {
	if _, err := t.shell(ctx, fmt.Sprintf(addCIDR, manyCIDR)); err != nil {
		return err
	}
	return t.fill(ctx, manyPods)
}

func (t *trial) moreAddresses(ctx context.Context) error {
	began := time.Now()
	if _, err := t.shell(ctx, fmt.Sprintf(addCIDR, moreCIDR)); err != nil {
		return err
	}
	err := t.awaitPods(ctx, "web", tooManyPods)
	t.check("with another CIDR all run, after", seconds(began), err == nil)
	return err
}

func (t *trial) disableOffers(ctx context.Context) error {
	err := t.keepsPods(ctx, "scheduling.enabled=false", func(ctx context.Context) error {
		if _, err := t.shell(ctx, endOffer); err != nil {
			return err
		}
		err := t.awaitOffers(ctx, false)
		t.check("scheduling.enabled=false: no Node has the resource", err == nil, err == nil)
		return err
	})
	if err != nil {
		return err
	}
	return t.keepsPods(ctx, "kubelet of n2 restarts without the resource", t.restartKubelet)
}

// keepsPods checks that a step leaves all pods as they are.
func (t *trial) keepsPods(ctx context.Context, what string, step func(context.Context) error) error {
	before, err := t.runningPods(ctx)
	if err != nil {
		return err
	}
	if err := step(ctx); err != nil {
		return err
	}
	after, err := t.runningPods(ctx)
	kept := before.Intersection(after)
	t.check(what+": pods that run on, with their address", fmt.Sprintf("%d of %d", len(kept), len(before)), len(kept) == len(before))
	failed, errFailed := t.cluster.Kubectl(ctx, "get", "pods", "--namespace=default", "--field-selector=status.phase=Failed", "--output=name")
	t.check(what+": pods that failed", len(strings.Fields(failed)), failed == "")
	return errors.Join(err, errFailed)
}

// runningPods returns the pods of the namespace default, each with its address and its number
// of restarts.
func (b *bed) runningPods(ctx context.Context) (sets.Set[string], error) {
	pods, err := query[corev1.PodList](ctx, b, "pods", "--namespace=default")
	running := sets.New[string]()
	for _, p := range pods.Items {
		restarts := int32(0)
		for _, c := range p.Status.ContainerStatuses {
			restarts += c.RestartCount
		}
		if p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
			running.Insert(fmt.Sprintf("%s %s %s %d", p.Name, p.UID, p.Status.PodIP, restarts))
		}
	}
	return running, err
}

// addressUse describes how the addresses of all nodes are used.
type addressUse struct {
	// addresses counts all but an agent's own and the ones of pods that request none.
	addresses int
	// running counts pods that request an address, insufficient pending ones that lack one.
	running, insufficient int
	// free is the number of blocks that the pool has left.
	free string
}

func (u addressUse) full(pods int) bool {
	return u.free == "0" && u.running == u.addresses && u.running+u.insufficient == pods
}

// addressList contains the fields of CiliumNodes that addressUse reads.
type addressList struct {
	Items []struct {
		Spec   struct{ IPAM struct{ Pool map[string]any } }
		Status struct {
			IPAM struct {
				Used map[string]struct{ Owner string }
			}
		}
	}
}

func (b *bed) addressUse(ctx context.Context) (addressUse, error) {
	var u addressUse
	nodes, err := query[addressList](ctx, b, "ciliumnodes")
	if err != nil {
		return u, err
	}
	for _, n := range nodes.Items {
		u.addresses += len(n.Spec.IPAM.Pool)
		for _, use := range n.Status.IPAM.Used {
			if !strings.Contains(use.Owner, "/") {
				u.addresses--
			}
		}
	}
	pods, err := query[corev1.PodList](ctx, b, "pods", "--all-namespaces")
	if err != nil {
		return u, err
	}
	for _, p := range pods.Items {
		switch {
		case p.Spec.HostNetwork:
		case !requestsAddress(p):
			u.addresses--
		case p.Status.Phase == corev1.PodRunning:
			u.running++
		case lacksAddresses(p):
			u.insufficient++
		}
	}
	u.free, err = b.cluster.Kubectl(ctx, "get", "podippool", "small", "--output=jsonpath={.status.ipv4.blocks.free}")
	return u, err
}

func requestsAddress(p corev1.Pod) bool {
	_, requests := p.Spec.Containers[0].Resources.Requests[addressResource]
	return requests
}

// lacksAddresses reports whether the scheduler reports that no node has an address for a pod.
func lacksAddresses(p corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return c.Reason == corev1.PodReasonUnschedulable && strings.Contains(c.Message, "Insufficient "+addressResource)
		}
	}
	return false
}
