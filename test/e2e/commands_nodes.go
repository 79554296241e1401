//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	ipamoption "github.com/cilium/cilium/pkg/ipam/option"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"errors"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/test/e2e/bed"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
	"github.com/cilium-pool/cilium-pool-operator/test/harness/script"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant/whole"
)

const (
	// restoreTime is longer than an agent takes to restore a pod.
	restoreTime = 15 * time.Second
	// slack is the largest difference between the times that two watchers see.
	slack = time.Second
	// spared is the agent's own address plus the most that it keeps free.
	spared = 1 + 16
)

// cmdHas checks that the agent has each of the pods at its addresses, and that the node may use
// these: in crd mode its pool has them, in the others a CIDR assigned to it.
func cmdHas(ctx context.Context, e *env, a *script.Arguments) error {
	text := strings.Join(a.Rest, " ")
	n, pods, err := e.nodeAndPods(a)
	if err != nil {
		return err
	}
	missing := 0
	err = e.Eventually(ctx, "the agent has its pods", func(ctx context.Context) (err error) {
		missing, err = n.Has(ctx, pods)
		return err
	})
	cn, getErr := e.CiliumNode(ctx, n.Name)
	assigned := append(whole.AssignedIn(cn, ""), prefixesOf(cn)...) // in kubernetes mode the agent writes podCIDRs
	for _, p := range pods {
		for _, a := range p.Addresses {
			_, published := cn.Spec.IPAM.Pool[a.String()]
			if e.options.IPAM != crdMode {
				published = slices.ContainsFunc(assigned, func(c netip.Prefix) bool { return c.Contains(a) })
			}
			if !published && !e.moves() {
				missing++
				err = fmt.Errorf("%s, at %s, is outside of pool and assigned CIDRs", p.Name, a)
			}
		}
	}
	if err = errors.Join(err, getErr); err != nil {
		e.logf("%v", err)
	}
	e.Check(err == nil, "pods at their addresses: "+text, "%d of %d", len(pods)-missing, len(pods))
	return nil
}

// cmdCrash kills operator and agent with SIGKILL, starts both, and checks that the agent has
// its pods.
func cmdCrash(ctx context.Context, e *env, a *script.Arguments) error {
	n := e.nodes[a.Rest[0]]
	if err := errors.Join(e.runOperators(0, e.flags), n.KillAgent(ctx), e.runOperators(1, e.flags)); err != nil {
		return err
	}
	if err := errors.Join(n.StartAgent(ctx), n.WaitAgent(ctx)); err != nil {
		return err
	}
	return cmdHas(ctx, e, a)
}

// cmdEncrypted checks that a pod's packets leave its node encrypted.
func cmdEncrypted(ctx context.Context, e *env, a *script.Arguments) error {
	_, from, err := e.source(a.Word())
	if err != nil {
		return err
	}
	to, err := e.groups(a)
	if err != nil {
		return err
	}
	before, err := from.Node().Encrypted(ctx)
	if err != nil {
		return err
	}
	flow, err := from.Ping(to[0].Address, 10*time.Millisecond)
	if err != nil {
		return err
	}
	if err := harness.Sleep(ctx, 2*time.Second); err != nil {
		return err
	}
	sent := e.countPings([]*bed.Pings{flow}).Sent
	after, err := from.Node().Encrypted(ctx)
	e.Check(err == nil && after-before >= sent, "pings; packets encrypted meanwhile", "%d; %d", sent, after-before)
	return err
}

// cmdLost counts the pods that the agent does not have once it has had time to restore them.
func cmdLost(ctx context.Context, e *env, a *script.Arguments) error {
	n, pods, err := e.nodeAndPods(a)
	if err != nil {
		return err
	}
	lost := 0
	short, cancel := context.WithTimeout(ctx, restoreTime)
	defer cancel()
	_ = e.Eventually(short, "all are restored", func(ctx context.Context) (err error) {
		lost, err = n.Has(ctx, pods)
		return err
	})
	e.Note("pods that the agent lost", "%d of %d", lost, len(pods))
	return nil
}

// terms returns the rest of the arguments, the terms about a node, as one text and as a check of them.
func (e *env) terms(a *script.Arguments) (text string, hold func(context.Context) error) {
	text = strings.Join(a.Rest, " ")
	node := a.Word()
	return text, func(ctx context.Context) error { return e.holds(ctx, node, a.Rest) }
}

func cmdAwait(ctx context.Context, e *env, a *script.Arguments) error {
	began := time.Now()
	text, hold := e.terms(a)
	err := e.Eventually(ctx, text, hold)
	e.Check(err == nil, text, "after %.0f s", time.Since(began).Seconds())
	return err
}

func cmdCheck(ctx context.Context, e *env, a *script.Arguments) error {
	text, hold := e.terms(a)
	err := hold(ctx)
	if err != nil {
		e.logf("%v", err)
	}
	e.Check(err == nil, text, "%t", err == nil)
	return nil
}

func cmdNever(ctx context.Context, e *env, a *script.Arguments) error {
	d, err := time.ParseDuration(a.Word())
	if err != nil {
		return err
	}
	text, hold := e.terms(a)
	short, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	err = e.Eventually(short, text, hold)
	e.Check(err != nil && ctx.Err() == nil, text+" within "+d.String(), "%t", err == nil)
	return ctx.Err()
}

func cmdRemember(ctx context.Context, e *env, a *script.Arguments) (err error) {
	name := a.Word()
	e.remembered[name], err = e.CiliumNode(ctx, name)
	return err
}

// cmdChoose sets $CIDR and $BLOCK to a block that has pods but none of the agent's own
// addresses; with the word any it may have some if no other does.
func cmdChoose(ctx context.Context, e *env, a *script.Arguments) error {
	anyBlock, node := a.Take("any"), a.Word()
	pods, err := e.groups(a)
	if err != nil {
		return err
	}
	s, err := e.state(ctx, node)
	if err != nil {
		return err
	}
	all, own := append(whole.AssignedTo(s.cn), prefixesOf(s.cn)...), s.own()
	i := slices.IndexFunc(all, func(c netip.Prefix) bool {
		return countIn(pods, c) > 0 && !slices.ContainsFunc(own, c.Contains)
	})
	if i < 0 && anyBlock {
		i = slices.IndexFunc(all, func(c netip.Prefix) bool { return countIn(pods, c) > 0 })
	}
	if i < 0 {
		return fmt.Errorf("none of %v has pods, and none of %v", all, own)
	}
	a.Script.Setenv("CIDR", all[i].String())
	a.Script.Setenv("BLOCK", crd.BlockName(all[i]))
	return nil
}

// cmdRoutes checks that the other node routes to the blocks of n, and to no other part of
// the pool except its own.
func cmdRoutes(ctx context.Context, e *env, a *script.Arguments) error {
	n, err := e.nodeAt(a)
	other, otherErr := e.nodeAt(a)
	if err := errors.Join(err, otherErr); err != nil {
		return err
	}
	var want, got []netip.Prefix
	err = e.Eventually(ctx, "the routes follow", func(ctx context.Context) error {
		cn, err := e.CiliumNode(ctx, n.Name)
		own, ownErr := e.CiliumNode(ctx, other.Name)
		routes, routesErr := other.Routes(ctx)
		if err := errors.Join(err, ownErr, routesErr); err != nil {
			return err
		}
		want, got = prefixesOf(cn), nil
		for _, r := range routes {
			if r.Device == "cilium_host" && !slices.ContainsFunc(ranges, func(c netip.Prefix) bool { return c.Contains(r.To.Addr()) }) {
				return fmt.Errorf("a route to %s, which is no address of a node or pod", r.To)
			}
			if isBlock(r.To) && !slices.Contains(prefixesOf(own), r.To) && e.leads(r, n) {
				got = append(got, r.To)
			}
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("routes %v, podCIDRs %v", got, want)
		}
		return nil
	})
	if err != nil {
		e.logf("%v", err)
	}
	e.Check(err == nil, "routes of the other node to it, podCIDRs", "%d, %d", len(got), len(want))
	return nil
}

func cmdMark(ctx context.Context, e *env, a *script.Arguments) error {
	n, pods, err := e.nodeAndPods(a)
	if err != nil {
		return err
	}
	marks := map[string]string{}
	for _, p := range pods {
		marks[p.Address.String()] = ipamoption.IPAMMarkForRelease
	}
	data, err := json.Marshal(map[string]any{"status": map[string]any{"ipam": map[string]any{"release-ips": marks}}})
	if err != nil {
		return fmt.Errorf("mark by hand: %w", err)
	}
	cn := &ciliumv2.CiliumNode{}
	cn.Name = n.Name
	return e.Client.Status().Patch(ctx, cn, client.RawPatch("application/merge-patch+json", data))
}

func cmdRouter(ctx context.Context, e *env, a *script.Arguments) (err error) {
	for len(a.Rest) > 0 {
		n, err := e.nodeAt(a)
		if err != nil {
			return err
		}
		e.peers = append(e.peers, n)
	}
	e.router, err = e.StartRouter(ctx, e.peers...)
	return err
}

// cmdPeers applies the example manifests for a mode, with the router of the bed in place of theirs.
func cmdPeers(ctx context.Context, e *env, a *script.Arguments) error {
	for _, name := range []string{"cilium-peers.yaml", "cilium-" + a.Word() + ".yaml"} {
		data, err := os.ReadFile(filepath.Join(e.options.Examples, "bgp", name))
		if err != nil {
			return fmt.Errorf("read example: %w", err)
		}
		manifest := strings.Replace(string(data), "peerAddress: 192.168.0.1", "peerAddress: "+e.router.Machine.Addresses[0].String(), 1)
		for doc := range strings.SplitSeq(manifest, "\n---\n") {
			o := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(doc), &o.Object); err != nil {
				return fmt.Errorf("read example %s: %w", name, err)
			}
			if err := e.Client.Create(ctx, o); err != nil {
				return fmt.Errorf("create %s: %w", o.GetKind(), err)
			}
		}
	}
	return nil
}

// cmdRouted waits until the router has a route to each block of the peers, and no other. With
// the word kept it must not have withdrawn any since the last time.
func cmdRouted(ctx context.Context, e *env, a *script.Arguments) error {
	var events []bed.RouteEvent
	err := e.Eventually(ctx, "the router has every block", func(ctx context.Context) (err error) {
		if events, err = e.router.Events(); err != nil {
			return err
		}
		routes, assigned := bed.Routes(events), 0
		for _, n := range e.peers {
			s, err := e.state(ctx, n.Name)
			if err != nil {
				return err
			}
			for _, cidr := range append(whole.AssignedTo(s.cn), prefixesOf(s.cn)...) {
				assigned++
				if routes[cidr] != n.Addresses[0] {
					return fmt.Errorf("%s of %s, by %s", cidr, n.Name, routes[cidr])
				}
			}
		}
		if assigned != len(routes) || assigned < len(e.peers) {
			return fmt.Errorf("%d blocks, the router has %v", assigned, routes)
		}
		return nil
	})
	e.Check(err == nil, "the router has the blocks of its peers, and no other prefix", "%t", err == nil)
	if err != nil {
		return err
	}
	if a.Take("kept") {
		withdrawn := countFunc(events[e.seen:], func(v bed.RouteEvent) bool { return v.What == "withdraw" })
		e.Check(withdrawn == 0, "prefixes withdrawn meanwhile", "%d", withdrawn)
	}
	e.seen = len(events)
	return nil
}

// cmdSession waits until a node has a new session since the router had every block.
func cmdSession(ctx context.Context, e *env, a *script.Arguments) error {
	n, err := e.nodeAt(a)
	if err != nil {
		return err
	}
	return e.Eventually(ctx, "the session is back", func(context.Context) error {
		events, err := e.router.Events()
		if err == nil && !slices.ContainsFunc(events[e.seen:], func(v bed.RouteEvent) bool { return v.What == "up" && v.Peer == n.Addresses[0] }) {
			err = fmt.Errorf("%d events since", len(events)-e.seen)
		}
		return err
	})
}

// cmdOrder checks that each prefix was announced after it was assigned to its node, withdrawn
// after the assignment ended, and gone before another node could get its block.
func cmdOrder(ctx context.Context, e *env, _ *script.Arguments) error {
	if err := e.rules.Sync(ctx); err != nil {
		return err
	}
	events, err := e.router.Events()
	if err != nil {
		return err
	}
	j := judgeRoutes(events, e.whole.Timeline())
	for _, w := range j.wrong {
		e.logf("out of order: %s", w)
	}
	e.Check(len(j.wrong) == 0 && j.announced > 0, "prefixes announced, withdrawn; out of order", "%d, %d; %d", j.announced, j.withdrawn, len(j.wrong))
	return nil
}
