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
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
	"github.com/cilium-pool/cilium-pool-operator/test/harness/script"
)

func cmdPods(ctx context.Context, e *env, a *script.Arguments) error {
	c := crowd{retry: a.Take("retry"), silent: a.Take("silent"), meta: metav1.ObjectMeta{Namespace: a.Value("namespace", "")}}
	for kind, to := range map[string]*map[string]string{"label": &c.meta.Labels, "annotation": &c.meta.Annotations} {
		if key, value, found := strings.Cut(a.Value(kind, ""), "="); found {
			*to = map[string]string{key: value}
		}
	}
	later, width, group := a.Take("&"), a.Value("width", "4"), a.Word()
	n, err := e.nodeAt(a)
	if err != nil {
		return err
	}
	var count int
	if _, err := fmt.Sscan(width+" "+a.Word(), &c.width, &count); err != nil {
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
			e.Check(len(errs) == 0, fmt.Sprintf("CNI ADDs of %d %s that failed; slowest", count, group),
				"%d; %.1f s of %.0f s", len(errs), slowest.Added.Sub(slowest.Created).Seconds(), took.Seconds())
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
	// An agent limits how many calls it processes, and on a slow machine refuses those that have
	// waited for a minute (Cilium v1.20.1, daemon/restapi/api_limits.go).
	return harness.Parallel(ctx, len(pods), 4, func(ctx context.Context, i int) error { return pods[i].Delete(ctx) })
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

// cmdPing pings from a node, the router, or the first pod of a group: to pods in each family, to a
// machine that has no route to pods, or to the health endpoint of a node.
func cmdPing(ctx context.Context, e *env, a *script.Arguments) error {
	every, err := time.ParseDuration(a.Value("every", "10ms"))
	if err != nil {
		return err
	}
	first, back := a.Value("first", ""), a.Take("back")
	name, from, to := a.Word(), a.Word(), a.Word()
	source, home, err := e.source(from)
	if err == nil && home == nil && (back || to == "outside") {
		err = fmt.Errorf("%s is no pod", from)
	}
	if err != nil {
		return err
	}
	switch node, health := strings.CutPrefix(to, "health:"); {
	case to == "outside":
		for _, address := range home.Addresses {
			err = errors.Join(err, e.flowTo(name, home, bed.Outside(address), every))
		}
		return err
	case health:
		cn, err := e.CiliumNode(ctx, node)
		address, parseErr := netip.ParseAddr(cn.Spec.HealthAddressing.IPv4)
		if err := errors.Join(err, parseErr); err != nil {
			return fmt.Errorf("read the address of the health endpoint: %w", err)
		}
		return e.flowTo(name, source, address, every)
	}
	pods, err := e.group(to)
	if n, numErr := strconv.Atoi(first); first != "" {
		pods, err = pods[:min(n, len(pods))], errors.Join(err, numErr)
	}
	if !back {
		home = nil
	}
	for _, p := range pods {
		err = errors.Join(err, e.flowsTo(name, source, home, p, every))
	}
	return err
}

// flowsTo pings a pod in each family, and the pod home, if any, from there.
func (e *env) flowsTo(name string, from pinger, home, to *bed.Pod, every time.Duration) (err error) {
	for i, address := range to.Addresses {
		err = errors.Join(err, e.flowTo(name, from, address, every))
		if home != nil {
			err = errors.Join(err, e.flowTo(name, to, home.Addresses[i], every))
		}
	}
	return err
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
	if err == nil {
		e.flows[name] = append(e.flows[name], f)
	}
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
		err = errors.Join(err, e.streamTo(name, from, to[0], address))
	}
	return err
}

func (e *env) streamTo(name string, from, to *bed.Pod, address netip.Addr) error {
	s, err := from.Stream(to, address, rapid)
	if err == nil {
		e.streams[name] = append(e.streams[name], s)
	}
	return err
}

func cmdUnbroken(_ context.Context, e *env, a *script.Arguments) error {
	return e.judgeConnections(a.Rest...)
}

// judgeConnections stops pings and streams. They must not have lost a packet.
func (e *env) judgeConnections(names ...string) error {
	for _, name := range names {
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
