package demo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant"
)

// The demo's applications.
const (
	baseApp  = "base"
	burstApp = "burst"
)

const (
	basePods  = 5
	burstPods = 75
	quietFor  = 5 * time.Second
)

// waves runs the parts of the demo. Each continues from the state of the one before.
func (s *story) waves(ctx context.Context, o options) error {
	if err := s.joins(ctx, o); err != nil {
		return err
	}
	for _, wave := range []func(context.Context) error{
		s.burst, s.shrink, s.exhaust, s.killOperator, s.loseCiliumNode, s.rest,
	} {
		if err := wave(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (s *story) joins(ctx context.Context, o options) (err error) {
	s.heading(fmt.Sprintf("1. %d nodes in two zones join", o.nodes),
		"The pools of examples/ are applied. Each node gets its CiliumNode and a first block before its",
		"agent asks, from the pool of its zone. Then "+plural(basePods, "pod")+" start on each.")
	if s.names, err = s.setUp(ctx, o); err != nil {
		return err
	}
	err = s.until(ctx, "every node has a block and published addresses", func(seen *sight) bool {
		return len(seen.nodes) == o.nodes && seen.every(func(n nodeSight) bool { return len(n.blocks) > 0 && n.addresses > 0 })
	})
	if err != nil {
		return err
	}
	ready, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err = s.fleet.Ready(ready)
	s.expect(err == nil, "all %d agents are up", o.nodes)
	if err := s.scaleAll(ctx, baseApp, basePods, s.names...); err != nil {
		return err
	}
	return s.until(ctx, "every pod has an address", allRunning)
}

// burstNodes returns the first two nodes of the first zone and the first of the
// second, or fewer in a small cluster.
func (s *story) burstNodes() []string {
	names := slices.Sorted(slices.Values(s.names))
	var out []string
	for i, zone := range zones {
		in := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return !strings.HasPrefix(n, zone) })
		out = append(out, in[:min(2-i, len(in))]...)
	}
	return out
}

func (s *story) burst(ctx context.Context) error {
	nodes := s.burstNodes()
	s.heading(fmt.Sprintf("2. %d pods arrive at once on each of %s", burstPods, strings.Join(nodes, ", ")),
		"The operator sees the bound pods before their agents report anything, and gives each node the blocks",
		"it needs as they come.")
	if err := s.scaleAll(ctx, burstApp, burstPods, nodes...); err != nil {
		return err
	}
	if err := s.until(ctx, "every pod has an address", allRunning); err != nil {
		return err
	}
	seen, err := s.look(ctx)
	if err != nil {
		return err
	}
	for _, node := range nodes {
		s.expect(len(seen.node(node).blocks) >= 3, "%s has %s", node, plural(len(seen.node(node).blocks), "block"))
	}
	return nil
}

func (s *story) shrink(ctx context.Context) error {
	nodes := s.burstNodes()
	if s.wholeBlocks() {
		s.heading("3. They go again", "Agents return empty blocks once the others cover their request. These cool down.")
		return s.allGo(ctx, nodes)
	}
	const stay = 6
	s.heading("3. Most of them go again",
		fmt.Sprintf("%d of %d stay on each node, on addresses scattered over its blocks. What is idle for %s drains: free", stay, burstPods, idleFor),
		"addresses leave by the handshake with the agent at once, those in use when their pods go.")
	if err := s.scaleAll(ctx, burstApp, stay, nodes...); err != nil {
		return err
	}
	err := s.until(ctx, "each of these nodes drains blocks", func(seen *sight) bool {
		return !slices.ContainsFunc(nodes, func(n string) bool {
			return len(seen.node(n).leaving) == 0 && len(seen.node(n).blocks) > 1
		})
	})
	if err != nil {
		return err
	}
	if err := s.comeBack(ctx, nodes[1]); err != nil {
		return err
	}
	s.note("now all of them go")
	return s.allGo(ctx, nodes)
}

func (s *story) allGo(ctx context.Context, nodes []string) error {
	if err := s.scaleAll(ctx, burstApp, 0, nodes...); err != nil {
		return err
	}
	return s.until(ctx, "every node is back to one block, and what they had is free again", shrunk)
}

// comeBack scales the pods of a draining node up again.
func (s *story) comeBack(ctx context.Context, node string) error {
	s.note("on %s demand comes back: draining blocks serve again before any other is claimed", node)
	undrained := s.checker.Stats().Undrains
	if err := s.scaleAll(ctx, burstApp, burstPods, node); err != nil {
		return err
	}
	if err := s.until(ctx, "every pod has an address", allRunning); err != nil {
		return err
	}
	undrained = s.checker.Stats().Undrains - undrained
	s.expect(undrained > 0, "%s undone", plural(undrained, "drain"))
	return nil
}

// shrunk reports whether no node has more than one block, and none is draining or
// cooling down.
func shrunk(seen *sight) bool {
	return seen.every(func(n nodeSight) bool { return len(n.blocks) <= 1 && len(n.leaving) == 0 })
}

func (s *story) exhaust(ctx context.Context) error {
	pool := rackPool()
	nodes := slices.Sorted(slices.Values(s.names))[:2]
	s.heading("4. A pool is exhausted",
		"A small pool of higher priority is made for one rack: "+poolCIDRs(pool)+", two blocks. Then its nodes",
		"("+strings.Join(nodes, ", ")+") grow: first from it, then from the pool of their zone.")
	if err := s.client.Create(ctx, pool); err != nil {
		return err
	}
	if err := s.until(ctx, "pool "+pool.Name+" is ready", func(seen *sight) bool { return seen.pool(pool.Name, v1alpha1.PoolReady) }); err != nil {
		return err
	}
	if err := s.scaleAll(ctx, burstApp, burstPods, nodes...); err != nil {
		return err
	}
	if err := s.until(ctx, "every pod has an address", allRunning); err != nil {
		return err
	}
	if err := s.until(ctx, "pool "+pool.Name+" says that it is exhausted", func(seen *sight) bool { return seen.pool(pool.Name, v1alpha1.PoolExhausted) }); err != nil {
		return err
	}
	seen, err := s.look(ctx)
	if err != nil {
		return err
	}
	from := map[string]int{}
	for _, node := range nodes {
		for _, p := range seen.node(node).fromPools {
			from[p]++
		}
	}
	s.expect(from[pool.Name] == 2 && from[zones[0]] > 2, "the rack has %s of pool %s and %d of pool %s",
		plural(from[pool.Name], "block"), pool.Name, from[zones[0]], zones[0])
	more := client.RawPatch(types.JSONPatchType, []byte(`[{"op": "add", "path": "/spec/ipv4/cidrs/-", "value": {"cidr": "100.71.8.0/26"}}]`))
	if err := s.client.Patch(ctx, pool, more); err != nil {
		return err
	}
	return s.until(ctx, "more addresses end that", func(seen *sight) bool { return !seen.pool(pool.Name, v1alpha1.PoolExhausted) })
}

func (s *story) killOperator(ctx context.Context) error {
	var nodes []string
	for _, name := range slices.Sorted(slices.Values(s.names)) {
		if strings.HasPrefix(name, zones[1]) && len(nodes) < 4 {
			nodes = append(nodes, name)
		}
	}
	s.heading("5. The operator is killed in the middle of it",
		"Pods go from the rack and arrive on "+strings.Join(nodes, ", ")+". The operator",
		"gets SIGKILL as soon as it has claimed the first block. All state is in the API objects: a new one goes on.")
	if err := s.scaleAll(ctx, burstApp, 0, slices.Sorted(slices.Values(s.names))[:2]...); err != nil {
		return err
	}
	burst := make(chan error, 1)
	claimed, err := s.nextClaim(ctx)
	if err != nil {
		return err
	}
	go func() { burst <- s.scaleAll(ctx, burstApp, burstPods, nodes...) }()
	select {
	case <-claimed:
	case <-time.After(patience):
		s.expect(false, "a block is claimed within %s", patience)
	case <-ctx.Done():
		return ctx.Err()
	}
	failed := s.fleet.Failed.Load()
	pid := s.operator.PID()
	if err := s.operator.Kill(); err != nil {
		return err
	}
	s.event(red, "operator", "killed, pid %d", pid)
	if err := <-burst; err != nil {
		return err
	}
	if err := harness.Sleep(ctx, 2*time.Second); err != nil {
		return err
	}
	seen, err := s.look(ctx)
	if err != nil {
		return err
	}
	s.note("without an operator, %s wait for an address", plural(seen.waiting, "pod"))
	if err := s.startOperator(); err != nil {
		return err
	}
	s.event(bold, "operator", "started again, pid %d", s.operator.PID())
	err = s.until(ctx, "every pod has an address", allRunning)
	s.failedWithout = s.fleet.Failed.Load() - failed
	return err
}

// nextClaim returns a channel that is closed when the next block is claimed.
func (s *story) nextClaim(ctx context.Context) (<-chan struct{}, error) {
	blocks := &v1alpha1.PodIPBlockList{}
	if err := s.client.List(ctx, blocks); err != nil {
		return nil, err
	}
	w, err := s.client.Watch(ctx, blocks, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: blocks.ResourceVersion}})
	if err != nil {
		return nil, err
	}
	claimed := make(chan struct{})
	go func() {
		defer w.Stop()
		for e := range w.ResultChan() {
			if e.Type == watch.Added {
				close(claimed)
				return
			}
		}
	}()
	return claimed, nil
}

func (s *story) loseCiliumNode(ctx context.Context) error {
	name := slices.Sorted(slices.Values(s.names))[min(2, len(s.names)-1)]
	s.heading("6. A CiliumNode is deleted under a running agent",
		"The agent of "+name+" would not recreate it by itself. Its pods keep their addresses, so the node must",
		"get exactly its blocks back.")
	cn := &ciliumv2.CiliumNode{ObjectMeta: metav1.ObjectMeta{Name: name}}
	before, err := s.look(ctx)
	if err != nil {
		return err
	}
	end := s.checker.Sync
	if s.lost = "CiliumNode " + name; !s.wholeBlocks() {
		end, err = s.checker.Exempt(ctx, invariant.Exemption{Rule: 2, Subject: s.lost, Text: "deleted though its Node is there"})
		if err != nil {
			return err
		}
	}
	if err := errors.Join(s.client.Delete(ctx, cn), end(ctx)); err != nil {
		return err
	}
	was := before.node(name)
	return s.until(ctx, fmt.Sprintf("%s has its %s and its %d used ones back", name, plural(was.addresses, "address"), was.used),
		func(seen *sight) bool {
			n := seen.node(name)
			return n.exists && slices.Equal(n.blocks, was.blocks) && n.addresses == was.addresses && n.used == was.used
		})
}

func (s *story) rest(ctx context.Context) error {
	s.heading("7. Everything calms down",
		"The bursts end, idle blocks go back, and then nothing is written any more.")
	if err := s.scaleAll(ctx, burstApp, 0, s.names...); err != nil {
		return err
	}
	if err := s.until(ctx, "every node is back to one block, and what they had is free again", shrunk); err != nil {
		return err
	}
	// The pools' statuses follow within a second, the agents' within updateRate.
	if err := harness.Sleep(ctx, updateRate+2*time.Second); err != nil {
		return err
	}
	writes, err := s.checker.Quiet(ctx, quietFor)
	s.expect(err == nil && len(writes) == 0, "no CiliumNode, block or pool is written for %s", quietFor)
	return err
}
