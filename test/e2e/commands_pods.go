//go:build linux

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/test/e2e/bed"
	"github.com/cilium-pool/cilium-pool-operator/test/harness/script"
)

func cmdPods(ctx context.Context, e *env, a *script.Arguments) error {
	c := crowd{retry: a.Take("retry"), silent: a.Take("silent"), meta: metav1.ObjectMeta{Namespace: a.Value("namespace", "")}}
	for kind, to := range map[string]*map[string]string{"label": &c.meta.Labels, "annotation": &c.meta.Annotations} {
		if key, value, found := strings.Cut(a.Value(kind, ""), "="); found {
			*to = map[string]string{key: value}
		}
	}
	later, width, most, group := a.Take("&"), a.Value("width", "4"), a.Value("refused", "0"), a.Word()
	n, err := e.nodeAt(a)
	if err != nil {
		return err
	}
	var count, refused int
	if _, err := fmt.Sscan(width+" "+most+" "+a.Word(), &c.width, &refused, &count); err != nil {
		return err
	}
	c.first = e.numbers[group]
	e.numbers[group] += count
	run := func() func() error {
		began := time.Now()
		pods, errs := e.runPods(ctx, n, group, count, c)
		took := time.Since(began)
		return func() error {
			e.pods[group] = append(e.pods[group], pods...)
			if c.retry || len(pods) == 0 {
				return errors.Join(errs...)
			}
			slowest := slices.MaxFunc(pods, func(a, b *bed.Pod) int { return cmp.Compare(a.Added.Sub(a.Created), b.Added.Sub(b.Created)) })
			others := len(otherReasons(errs))
			e.Check(len(errs) == others && others <= refused, fmt.Sprintf("CNI ADDs of %d %s that found no address, failed otherwise; slowest", count, group),
				"%d, %d; %.1f s of %.0f s", len(errs)-others, others, slowest.Added.Sub(slowest.Created).Seconds(), took.Seconds())
			return nil
		}
	}
	if !later {
		return run()()
	}
	done := make(chan func() error, 1)
	e.starting = append(e.starting, done)
	go func() { done <- run() }()
	return nil
}

// cmdJoined waits for the pods that were started in the background.
func cmdJoined(_ context.Context, e *env, _ *script.Arguments) (err error) {
	for _, done := range e.starting {
		err = errors.Join(err, (<-done)())
	}
	e.starting = nil
	return err
}

func cmdReport(ctx context.Context, e *env, a *script.Arguments) error {
	pods, err := e.groups(a)
	for _, p := range pods {
		err = errors.Join(err, p.Report(ctx))
	}
	return err
}

func cmdDelete(ctx context.Context, e *env, a *script.Arguments) error {
	names := slices.Clone(a.Rest)
	pods, err := e.groups(a)
	if err != nil {
		return err
	}
	for _, name := range names {
		e.pods[name] = nil
	}
	return e.deletePods(ctx, pods)
}

// cmdSplit moves the pods of a group to two others.
func cmdSplit(_ context.Context, e *env, a *script.Arguments) error {
	every, first, cidr, group := a.Value("every", ""), a.Value("first", ""), a.Value("in", ""), a.Word()
	pods, err := e.group(group)
	if err != nil {
		return err
	}
	kept, rest := a.Word(), a.Word()
	var n int
	var within netip.Prefix
	switch {
	case every != "":
		n, err = strconv.Atoi(every)
	case first != "":
		n, err = strconv.Atoi(first)
	default:
		within, err = netip.ParsePrefix(cidr)
	}
	if err != nil {
		return err
	}
	var left, others []*bed.Pod
	for i, p := range pods {
		if every != "" && i%n == 0 || first != "" && i < n || cidr != "" && slices.ContainsFunc(p.Addresses, within.Contains) {
			left = append(left, p)
		} else {
			others = append(others, p)
		}
	}
	delete(e.pods, group)
	e.pods[kept], e.pods[rest] = append(e.pods[kept], left...), append(e.pods[rest], others...)
	return nil
}

// podsOn returns all pods of a node.
func (e *env) podsOn(node string) (on []*bed.Pod) {
	for _, pods := range e.pods {
		for _, p := range pods {
			if p.Node().Name == node {
				on = append(on, p)
			}
		}
	}
	return on
}

// cmdPing pings from a node, the router, or the first pod of a group, to pods in each family.
func cmdPing(ctx context.Context, e *env, a *script.Arguments) error {
	every, err := time.ParseDuration(a.Value("every", "10ms"))
	if err != nil {
		return err
	}
	first, back := a.Value("first", ""), a.Take("back")
	name, from, to := a.Word(), a.Word(), a.Word()
	if to == "outside" {
		return e.pingOutside(name, from, every)
	}
	if node, found := strings.CutPrefix(to, "health:"); found {
		return e.pingHealth(ctx, name, from, node, every)
	}
	pods, err := e.firstOf(to, first)
	if err != nil {
		return err
	}
	source, home, err := e.source(from)
	if err == nil && back && home == nil {
		err = fmt.Errorf("%s is no pod to ping back", from)
	}
	if err != nil {
		return err
	}
	for _, p := range pods {
		for i, address := range p.Addresses {
			err := e.flowTo(name, source, address, every)
			if err == nil && back {
				err = e.flowTo(name, p, home.Addresses[i], every)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// firstOf returns so many pods of a group; "": all.
func (e *env) firstOf(group, most string) ([]*bed.Pod, error) {
	pods, err := e.group(group)
	if err != nil || most == "" {
		return pods, err
	}
	n, err := strconv.Atoi(most)
	return pods[:min(n, len(pods))], err
}

// pingOutside pings a machine that has no route to pods.
func (e *env) pingOutside(name, from string, every time.Duration) error {
	pods, err := e.group(from)
	if err != nil {
		return err
	}
	for _, address := range pods[0].Addresses {
		if err := e.flowTo(name, pods[0], bed.Outside(address), every); err != nil {
			return err
		}
	}
	return nil
}

// pingHealth pings the health endpoint of a node.
func (e *env) pingHealth(ctx context.Context, name, from, node string, every time.Duration) error {
	source, _, err := e.source(from)
	if err != nil {
		return err
	}
	cn, err := e.CiliumNode(ctx, node)
	if err != nil {
		return err
	}
	address, err := netip.ParseAddr(cn.Spec.HealthAddressing.IPv4)
	if err != nil {
		return fmt.Errorf("read the address of the health endpoint: %w", err)
	}
	return e.flowTo(name, source, address, every)
}

// pinger is a machine or a pod.
type pinger interface {
	Ping(netip.Addr, time.Duration) (*bed.Pings, error)
}

// source returns the pinger of a name, which is home if it is a pod.
func (e *env) source(name string) (from pinger, home *bed.Pod, err error) {
	if n := e.nodes[name]; n != nil {
		return n, nil, nil
	}
	if name == "router" && e.router != nil {
		return e.router.Machine, nil, nil
	}
	pods, err := e.group(name)
	if err != nil || len(pods) == 0 {
		return nil, nil, fmt.Errorf("no node and no pods %q", name)
	}
	return pods[0], pods[0], nil
}

func (e *env) flowTo(name string, from pinger, to netip.Addr, every time.Duration) error {
	f, err := from.Ping(to, every)
	e.flows[name] = append(e.flows[name], f)
	return err
}

func cmdStream(_ context.Context, e *env, a *script.Arguments) error {
	name := a.Word()
	_, from, err := e.source(a.Word())
	if err != nil {
		return err
	}
	to, err := e.group(a.Word())
	if err != nil {
		return err
	}
	for _, address := range to[0].Addresses {
		s, err := from.Stream(to[0], address, rapid)
		if err != nil {
			return err
		}
		e.streams[name] = append(e.streams[name], s)
	}
	return nil
}

// cmdUnbroken stops pings and streams. They must not have lost a packet.
func cmdUnbroken(ctx context.Context, e *env, a *script.Arguments) error {
	for name := a.Word(); name != ""; name = a.Word() {
		if e.flows[name] == nil && e.streams[name] == nil {
			return fmt.Errorf("no pings %q", name)
		}
		if len(e.flows[name]) > 0 {
			e.judgePings(e.flows[name], "packets lost: "+name)
		}
		if len(e.streams[name]) > 0 {
			e.judgeStreams(e.streams[name], "TCP echoes; slowest: "+name)
		}
		delete(e.flows, name)
		delete(e.streams, name)
	}
	return nil
}

// cmdCarry pings both ways between a pod and one pod in each block of a node. The node
// must have three blocks of each family at least.
func cmdCarry(ctx context.Context, e *env, a *script.Arguments) error {
	n, err := e.nodeAt(a)
	if err != nil {
		return err
	}
	_, from, err := e.source(a.Word())
	if err != nil {
		return err
	}
	pods, err := e.groups(a)
	if err != nil {
		return err
	}
	cn, err := e.CiliumNode(ctx, n.Name)
	if err != nil {
		return err
	}
	var talking []*bed.Pod
	blocks := 0
	for _, cidr := range prefixesOf(cn) {
		i := slices.IndexFunc(pods, func(p *bed.Pod) bool { return slices.ContainsFunc(p.Addresses, cidr.Contains) })
		if i < 0 {
			continue // The last block may have no pod yet.
		}
		blocks++
		if !slices.Contains(talking, pods[i]) {
			talking = append(talking, pods[i])
		}
	}
	e.Check(blocks >= 3*len(from.Addresses), "blocks with a pod that talks to the other node", "%d of %d", blocks, len(cn.Spec.IPAM.PodCIDRs))
	flows, err := flowsBetween(from, talking, rapid)
	if err != nil {
		return err
	}
	if err := pause(ctx, probeTime); err != nil {
		return err
	}
	e.judgePings(flows, "packets lost between these pods and the other node, both ways")
	return nil
}
