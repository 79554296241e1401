//go:build linux

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/cluster/kube"
	"github.com/cilium-pool/cilium-pool-operator/test/harness/script"
)

// query returns objects as kubectl get --output=json prints them.
func query[T any](ctx context.Context, b *bed, args ...string) (out T, err error) {
	if args[0] != "--raw" {
		args = append(args, "--output=json")
	}
	text, err := b.cluster.Kubectl(ctx, append([]string{"get"}, args...)...)
	if err == nil {
		err = json.Unmarshal([]byte(text), &out)
	}
	if err != nil {
		return out, fmt.Errorf("kubectl get %s: %w", strings.Join(args, " "), err)
	}
	return out, nil
}

func (b *bed) pods(ctx context.Context, args ...string) ([]corev1.Pod, error) {
	pods, err := query[corev1.PodList](ctx, b, append([]string{"pods"}, args...)...)
	return pods.Items, err
}

// blocks returns none before our CRDs are installed and after they are removed.
func (b *bed) blocks(ctx context.Context) ([]v1alpha1.PodIPBlock, error) {
	blocks, err := query[v1alpha1.PodIPBlockList](ctx, b, "podipblocks")
	if err != nil && (strings.Contains(err.Error(), "doesn't have a resource type") || strings.Contains(err.Error(), "could not find the requested resource")) {
		return nil, nil
	}
	return blocks.Items, err
}

func restartsOf(p corev1.Pod) (n int) {
	for _, c := range p.Status.ContainerStatuses {
		n += int(c.RestartCount)
	}
	return n
}

// ask makes a probe request a URL.
func (b *bed) ask(ctx context.Context, pod, url string) (string, error) {
	return b.cluster.Kubectl(ctx, "exec", "--namespace=default", pod, "--", "/probe", "get", url)
}

func cmdServed(ctx context.Context, e *env, _ *script.Arguments) error {
	service, err := query[corev1.Service](ctx, e.bed, "service", "probe")
	if err != nil {
		return err
	}
	pods, err := e.pods(ctx, "--selector=app in (probe,probe-host)")
	if err != nil {
		return err
	}
	served, asked := 0, 0
	for _, pod := range pods {
		for _, ip := range service.Spec.ClusterIPs {
			asked++
			url := "http://" + net.JoinHostPort(ip, "80") + "/"
			err := kube.Await(ctx, 20*time.Second, pod.Name+" reaches "+url, func(ctx context.Context) error {
				out, err := e.ask(ctx, pod.Name, url)
				if err == nil && !strings.HasPrefix(out, "probe-") {
					err = errors.New(out)
				}
				return err
			})
			if err != nil {
				e.say("%v", err)
				continue
			}
			served++
		}
	}
	e.Check(served == asked && asked > 0, "the Service answers each node and a pod on each", "%d of %d", served, asked)
	return nil
}

// cmdReach makes pods request one pod of an app in each block, from other nodes: a pod's own node
// always reaches it, as kubelet must.
func cmdReach(ctx context.Context, e *env, a *script.Arguments) error {
	from, app, all := a.Value("from", "probe"), a.Word(), a.Take("all")
	reached, asked := 0, 0
	err := kube.Await(ctx, time.Minute, "pods are reached as they should", func(ctx context.Context) error {
		probes, err := e.pods(ctx, "--selector=app="+from)
		targets, targetsErr := e.onePerBlock(ctx, app)
		reached, asked = 0, 0
		for _, probe := range probes {
			for address, node := range targets {
				if node == probe.Spec.NodeName {
					continue
				}
				asked++
				if _, err := e.ask(ctx, probe.Name, "http://"+net.JoinHostPort(address, "8080")+"/"); err == nil {
					reached++
				}
			}
		}
		if asked == 0 || all && reached < asked || !all && reached > 0 {
			err = errors.Join(err, fmt.Errorf("%d of %d", reached, asked))
		}
		return errors.Join(err, targetsErr)
	})
	e.Check(err == nil, "pods of "+app+", one for each block, that "+from+" of other nodes reach", "%d of %d", reached, asked)
	return err
}

// onePerBlock returns one address of an app for each block that has any, with its node. Each of
// its addresses must be in a block.
func (e *env) onePerBlock(ctx context.Context, app string) (map[string]string, error) {
	pods, err := e.pods(ctx, "--selector=app="+app)
	blocks, blocksErr := e.blocks(ctx)
	if err := errors.Join(err, blocksErr); err != nil {
		return nil, err
	}
	targets, seen := map[string]string{}, map[string]bool{}
	for _, pod := range pods {
		for _, ip := range pod.Status.PodIPs {
			addr, err := netip.ParseAddr(ip.IP)
			i := slices.IndexFunc(blocks, func(b v1alpha1.PodIPBlock) bool {
				cidr, err := netip.ParsePrefix(b.Spec.CIDR)
				return err == nil && cidr.Contains(addr)
			})
			if err != nil || i < 0 {
				return nil, fmt.Errorf("pod %s has %s, which is in no block", pod.Name, ip.IP)
			}
			if cidr := blocks[i].Spec.CIDR; !seen[cidr] {
				seen[cidr], targets[ip.IP] = true, pod.Spec.NodeName
			}
		}
	}
	return targets, nil
}

// cmdMetrics requests the metrics of a replica's host.
func cmdMetrics(ctx context.Context, e *env, a *script.Arguments) error {
	outside, answers := a.Take("outside"), a.Take("answer")
	replicas, err := e.pods(ctx, "--namespace=kube-system", "--selector=app.kubernetes.io/name=cilium-pool-operator")
	if err != nil || len(replicas) == 0 {
		return fmt.Errorf("%d replicas of the operator: %w", len(replicas), err)
	}
	others, err := e.pods(ctx, "--selector=app=probe-host")
	if err != nil {
		return err
	}
	others = slices.DeleteFunc(others, func(p corev1.Pod) bool { return p.Spec.NodeName == replicas[0].Spec.NodeName })
	url := "http://" + replicas[0].Status.HostIP + ":9870/metrics"
	what := fmt.Sprintf("the operator's metrics answer from outside: %t", outside)
	err = kube.Await(ctx, time.Minute, what, func(ctx context.Context) (err error) {
		if outside {
			err = e.cluster.AskOutside(ctx, url)
		} else {
			_, err = e.ask(ctx, others[0].Name, url)
		}
		if answers {
			return err
		}
		if err == nil {
			return errors.New("they answer")
		}
		return nil
	})
	e.Check(err == nil, what+"; they do", "%t", answers == (err == nil))
	return err
}

// losses counts the losses of all pings between pods.
type losses struct {
	Sent, Lost   int
	LongestGapMs int64
}

func (l losses) String() string {
	if l.Lost == 0 {
		return fmt.Sprintf("0 of %d", l.Sent)
	}
	return fmt.Sprintf("%d of %d, longest gap %d ms", l.Lost, l.Sent, l.LongestGapMs)
}

func cmdPings(ctx context.Context, e *env, a *script.Arguments) error {
	start, none, note := a.Take("start"), a.Take("none"), a.Take("note")
	probes, err := e.pods(ctx, "--selector="+cmp.Or(a.Word(), "app=probe"))
	for i := 0; start && err == nil && i < len(probes); i++ {
		_, err = e.ask(ctx, probes[i].Name, "http://127.0.0.1:8080/ping?peer="+probes[(i+1)%len(probes)].Status.PodIP)
	}
	if err != nil {
		return err
	}
	var since, sum losses
	// A probe without CPU reads replies late: a datagram is lost if it still has none in the end.
	err = kube.Await(ctx, time.Minute, "no ping is lost", func(ctx context.Context) (err error) {
		if sum, err = e.pings(ctx, probes); err != nil {
			return err
		}
		since = losses{sum.Sent - e.pinged.Sent, sum.Lost - e.pinged.Lost, sum.LongestGapMs}
		if none && since.Lost > 0 {
			return errors.New(since.String())
		}
		return nil
	})
	e.pinged = sum
	switch {
	case err != nil && !none:
		return err
	case none:
		e.Check(err == nil && since.Sent > 0, "pings lost", "%v", since)
	case note:
		e.Note("pings lost, to Cilium's own restart", "%v", since)
	}
	return nil
}

func (e *env) pings(ctx context.Context, probes []corev1.Pod) (sum losses, err error) {
	for _, pod := range probes {
		out, err := e.ask(ctx, pod.Name, "http://127.0.0.1:8080/pings")
		if err != nil {
			return sum, err
		}
		var results map[string]losses // by the address that it pings
		if err := json.Unmarshal([]byte(out), &results); err != nil {
			return sum, err
		}
		for _, r := range results {
			sum = losses{sum.Sent + r.Sent, sum.Lost + r.Lost, max(sum.LongestGapMs, r.LongestGapMs)}
		}
	}
	return sum, nil
}

// countShortage counts from now on.
func (e *env) countShortage(ctx context.Context) (err error) {
	_, e.lacked, err = e.failedSandboxes(ctx)
	return err
}

func cmdShortage(ctx context.Context, e *env, a *script.Arguments) error {
	total, lacked, err := e.failedSandboxes(ctx)
	if err != nil {
		return err
	}
	if a.Take("none") {
		e.Check(lacked == e.lacked, "sandboxes that failed for want of an address", "%d", lacked-e.lacked)
	}
	e.Note("sandboxes that failed, for want of an address", "%d, %d", total, lacked-e.lacked)
	return nil
}

// failedSandboxes counts kubelet's events of failed sandboxes, and the ones for want of an address.
func (e *env) failedSandboxes(ctx context.Context) (total, lacked int, err error) {
	events, err := query[corev1.EventList](ctx, e.bed, "events", "--all-namespaces", "--field-selector=reason=FailedCreatePodSandBox")
	for _, event := range events.Items {
		times := int(max(event.Count, 1))
		total += times
		if lacksAddress(event.Message) {
			lacked += times
			e.say("%s", event.Message)
		}
	}
	return total, lacked, err
}

// lacksAddress reports whether kubelet's event is of an agent that had no address. An agent
// that has not seen the pod yet, and so does not know its pool, may have many.
func lacksAddress(message string) bool {
	if strings.Contains(message, "unable to determine IPAM pool") {
		return false
	}
	return slices.ContainsFunc([]string{"IPAM", "ipam", "Ipam", "No more IPs", "address"}, func(word string) bool {
		return strings.Contains(message, word)
	})
}

const addressResource = v1alpha1.IPv4Resource

// addressUse describes how the addresses of all nodes are used.
type addressUse struct {
	// addresses counts all but an agent's own and the ones of pods that request none.
	addresses int
	// running counts pods that request an address, insufficient pending ones that lack one.
	running, insufficient int
	// free is the number of blocks that the pool has left.
	free string
}

func cmdFull(ctx context.Context, e *env, a *script.Arguments) error {
	began, pool, n := time.Now(), a.Word(), a.Word()
	var u addressUse
	err := kube.Await(ctx, 2*scaleTimeout, "all addresses are in use", func(ctx context.Context) (err error) {
		u, err = e.addressUse(ctx, pool)
		if err == nil && (u.free != "0" || u.running != u.addresses || fmt.Sprint(u.running+u.insufficient) != n) {
			err = fmt.Errorf("%+v of %s pods", u, n)
		}
		return err
	})
	e.Check(err == nil, "of "+n+" pods run, of addresses; the others are pending, with Insufficient "+addressResource, "%d, %d; %d, after %s", u.running, u.addresses, u.insufficient, seconds(began))
	return err
}

func (e *env) addressUse(ctx context.Context, pool string) (u addressUse, err error) {
	nodes, err := query[ciliumv2.CiliumNodeList](ctx, e.bed, "ciliumnodes")
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
		v := ciliumnode.NewView(&n)
		for _, a := range v.Allocated { // in multi-pool mode, without a report of use
			own := slices.DeleteFunc(slices.Clone(v.Own), func(addr netip.Addr) bool { return !a.CIDR.Contains(addr) })
			u.addresses += ipalloc.CountWhole(a.CIDR) - 2 - len(own) // pods get neither edge
		}
	}
	pods, err := e.pods(ctx, "--all-namespaces")
	if err != nil {
		return u, err
	}
	for _, p := range pods {
		_, requests := p.Spec.Containers[0].Resources.Requests[addressResource]
		switch {
		case p.Spec.HostNetwork:
		case !requests:
			u.addresses--
		case p.Status.Phase == corev1.PodRunning:
			u.running++
		case lacksAddresses(p):
			u.insufficient++
		}
	}
	u.free, err = e.cluster.Kubectl(ctx, "get", "podippool", pool, "--output=jsonpath={.status.ipv4.blocks.free}")
	return u, err
}

// lacksAddresses reports whether the scheduler reports that no node has an address for a pod.
func lacksAddresses(p corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse &&
			c.Reason == corev1.PodReasonUnschedulable && strings.Contains(c.Message, "Insufficient "+addressResource)
	})
}
