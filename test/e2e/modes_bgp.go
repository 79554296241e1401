//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/cilium-pool/cilium-pool-operator/test/e2e/bed"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant/whole"
)

const (
	bgpFirst  = 10
	bgpMore   = 60 // reach into the third block
	bgpValues = "cilium-values-bgp.yaml"
	// slack is how much two watchers may disagree on the time of a change.
	slack = time.Second
)

// modesBGP lets agents in multi-pool mode announce their blocks to a router, and watches when
// each prefix is announced and withdrawn: while pods are added, while most of them are
// deleted, and while an agent is killed. The router pings pods over the announced routes.
func modesBGP(ctx context.Context, e *env) error { return announce(ctx, e, multiPoolMode) }

// modesBGPKubernetes does the same for the single block of each node in kubernetes mode.
func modesBGPKubernetes(ctx context.Context, e *env) error { return announce(ctx, e, kubernetesMode) }

func announce(ctx context.Context, e *env, mode string) error {
	carrier := whole.InPools()
	if mode == kubernetesMode {
		carrier = whole.OnNode()
	}
	e.options.Native = true // packets from outside find pods by their address
	if err := e.startBeside(ctx, mode, carrier, bgpValues); err != nil {
		return err
	}
	if err := e.operate(mode, wholeCooldown); err != nil {
		return err
	}
	a := &announced{env: e, mode: mode}
	if mode == kubernetesMode {
		return inTurn(ctx, a.begin, a.restart, a.judgeOrder, e.judgeWhole)
	}
	return inTurn(ctx, a.begin, a.grow, a.restart, a.shrink, a.judgeOrder, e.judgeWhole)
}

type announced struct {
	*env
	mode   string
	router *bed.Router
	nodes  []*bed.Node
	pods   []*bed.Pod // on the first node
}

// begin creates two nodes that peer with a router, and pods on the first.
func (a *announced) begin(ctx context.Context) error {
	for _, name := range []string{"n1", "n2"} {
		n, err := a.AddNode(ctx, name)
		if err != nil {
			return err
		}
		a.nodes = append(a.nodes, n)
	}
	var err error
	if a.router, err = a.StartRouter(ctx, a.nodes...); err != nil {
		return err
	}
	if err := a.peer(ctx); err != nil {
		return err
	}
	for _, n := range a.nodes {
		if err := a.bringUp(ctx, n, nil); err != nil {
			return err
		}
	}
	began := time.Now()
	if err := a.Eventually(ctx, "the router has every block", a.same); err != nil {
		return err
	}
	a.note("from the last agent ready until the router had every block", "%.1f s", time.Since(began).Seconds())
	if a.pods, err = a.load(ctx, a.nodes[0], bgpFirst); err != nil {
		return err
	}
	return a.reachable(ctx, "first", a.pods)
}

// peer applies the example manifests, with the router of the bed in place of
// theirs.
func (a *announced) peer(ctx context.Context) error {
	for _, name := range []string{"cilium-peers.yaml", "cilium-" + a.mode + ".yaml"} {
		data, err := os.ReadFile(filepath.Join(a.options.Examples, "bgp", name))
		if err != nil {
			return fmt.Errorf("read example: %w", err)
		}
		manifest := strings.Replace(string(data), "peerAddress: 192.168.0.1", "peerAddress: "+a.router.Machine.Addresses[0].String(), 1)
		for doc := range strings.SplitSeq(manifest, "\n---\n") {
			o := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(doc), &o.Object); err != nil {
				return fmt.Errorf("read example %s: %w", name, err)
			}
			if err := a.Client.Create(ctx, o); err != nil {
				return fmt.Errorf("create %s: %w", o.GetKind(), err)
			}
		}
	}
	return nil
}

// same returns an error while the router's routes differ from the CIDRs assigned to
// the nodes.
func (a *announced) same(ctx context.Context) error {
	events, err := a.router.Events()
	if err != nil {
		return err
	}
	routes := bed.Routes(events)
	assigned := 0
	for _, n := range a.nodes {
		cn, err := a.CiliumNode(ctx, n.Name)
		if err != nil {
			return err
		}
		for _, cidr := range blocksAt(cn) {
			assigned++
			if routes[cidr] != n.Addresses[0] {
				return fmt.Errorf("%s of %s, by %s", cidr, n.Name, routes[cidr])
			}
		}
	}
	if assigned != len(routes) || assigned < len(a.nodes) {
		return fmt.Errorf("%d blocks, the router has %v", assigned, routes)
	}
	return nil
}

// blocksAt returns the CIDRs that an agent has, in either mode.
func blocksAt(cn *ciliumv2.CiliumNode) []netip.Prefix {
	return append(whole.AssignedTo(cn), prefixesOf(cn)...)
}

// reachable pings pods from the router for a while.
func (a *announced) reachable(ctx context.Context, over string, pods []*bed.Pod) error {
	flows, err := a.fromRouter(pods)
	if err != nil {
		return err
	}
	if err := pause(ctx, probeTime); err != nil {
		return err
	}
	a.judgePings(flows, over+": packets lost from the router to pods, every 5 ms")
	return nil
}

func (a *announced) fromRouter(pods []*bed.Pod) ([]*bed.Pings, error) {
	var flows []*bed.Pings
	for _, p := range pods {
		f, err := a.router.Machine.Ping(p.Address, rapid)
		if err != nil {
			return nil, err
		}
		flows = append(flows, f)
	}
	return flows, nil
}

// grow runs pods until the node has further blocks.
func (a *announced) grow(ctx context.Context) error {
	flows, err := a.fromRouter(a.pods[:pinged])
	if err != nil {
		return err
	}
	more, _, err := a.runStubborn(ctx, a.nodes[0], "more", bgpMore)
	if err != nil {
		return err
	}
	if err := a.Eventually(ctx, "the router has every block", a.same); err != nil {
		return err
	}
	a.judgePings(flows, "growing: packets lost from the router to pods that were there, every 5 ms")
	first := len(a.pods)
	a.pods = append(a.pods, more...)
	return a.reachable(ctx, "grown", []*bed.Pod{a.pods[0], a.pods[first], a.pods[len(a.pods)-1]})
}

// restart kills the agent, and thereby its BGP session. The router must keep its routes.
func (a *announced) restart(ctx context.Context) error {
	before, err := a.router.Events()
	if err != nil {
		return err
	}
	flows, err := a.fromRouter(a.pods[:pinged])
	if err != nil {
		return err
	}
	if err := a.nodes[0].RestartAgent(ctx); err != nil {
		return err
	}
	if err := a.Eventually(ctx, "the session is back", func(context.Context) error { return a.sessionIsBack(len(before)) }); err != nil {
		return err
	}
	if err := a.Eventually(ctx, "the router has every block", a.same); err != nil {
		return err
	}
	after, err := a.router.Events()
	if err != nil {
		return err
	}
	withdrawn := 0
	for _, e := range after[len(before):] {
		if e.What == "withdraw" {
			withdrawn++
		}
	}
	a.check(withdrawn == 0, "agent killed: prefixes withdrawn over its restart", "%d", withdrawn)
	a.judgePings(flows, "agent killed: packets lost from the router to its pods, every 5 ms")
	a.checkAssigned(ctx, a.nodes[0], a.pods, "agent killed: pods restored at their address")
	return nil
}

func (a *announced) sessionIsBack(since int) error {
	events, err := a.router.Events()
	if err != nil {
		return err
	}
	up := slices.ContainsFunc(events[since:], func(e bed.RouteEvent) bool { return e.What == "up" && e.Peer == a.nodes[0].Addresses[0] })
	if !up {
		return fmt.Errorf("%d events since, the last %+v", len(events)-since, events[len(events)-1])
	}
	return nil
}

// shrink deletes all pods but the first ones, and waits until the prefixes of the
// blocks that the agent returned are withdrawn and these blocks have cooled down.
func (a *announced) shrink(ctx context.Context) error {
	keep := a.pods[:pinged]
	flows, err := a.fromRouter(keep)
	if err != nil {
		return err
	}
	before, err := a.blocksOf(ctx, a.nodes[0].Name)
	if err != nil {
		return err
	}
	if err := a.deletePods(ctx, a.pods[pinged:]); err != nil {
		return err
	}
	a.pods = keep
	l := &wholeLife{env: a.env, ours: true, node: a.nodes[0], keep: keep}
	err = a.Eventually(ctx, "the node has no block that it can do without", l.spare)
	if err == nil {
		err = a.Eventually(ctx, "the router has no other prefix", a.same)
	}
	after, listErr := a.blocksOf(ctx, a.nodes[0].Name)
	a.check(err == nil && listErr == nil && len(after) < len(before), "blocks of the node before, after; the router has just these", "%d, %d; %t",
		len(before), len(after), err == nil)
	a.judgePings(flows, "shrinking: packets lost from the router to pods that stayed, every 5 ms")
	return errors.Join(err, listErr)
}

// judgeOrder checks that each prefix was announced after it was assigned to its node,
// withdrawn after the assignment ended, and gone before another node could get its block. It
// records how long each took.
func (a *announced) judgeOrder(ctx context.Context) error {
	if err := a.rules.Sync(ctx); err != nil {
		return err
	}
	events, err := a.router.Events()
	if err != nil {
		return err
	}
	j := judgeRoutes(events, a.whole.Timeline())
	for _, w := range j.wrong {
		a.Logf("out of order: %s", w)
	}
	a.check(len(j.wrong) == 0 && j.announced > 0, "prefixes announced, withdrawn; out of order", "%d, %d; %d", j.announced, j.withdrawn, len(j.wrong))
	a.note("from a node's first block assigned to its prefix announced, session included, longest", "%.1f s", longest(j.first).Seconds())
	if len(j.up) > 0 {
		a.note("from a further block assigned to its prefix announced, median and longest", "%.2f s, %.2f s", median(j.up).Seconds(), longest(j.up).Seconds())
	}
	if j.withdrawn > 0 {
		a.note("from a block no longer assigned to its prefix withdrawn, median and longest", "%.2f s, %.2f s", median(j.down).Seconds(), longest(j.down).Seconds())
		a.note("from a prefix withdrawn to its block free for others, shortest", "%.1f s", shortest(j.free).Seconds())
	}
	return nil
}
