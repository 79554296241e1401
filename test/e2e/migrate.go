//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/cilium-pool/cilium-pool-operator/test/e2e/bed"
)

const migratePods = 14 // on each of three nodes

// origin is a cluster to move from.
type origin struct {
	mode string
	// cidrs are the Nodes' podCIDRs, if the mode uses them.
	cidrs []string
	// endpointRoutes is true if the old configuration enables them.
	endpointRoutes bool
	// more is a number of additional pods that exceeds the capacity of a node's old blocks.
	more int
	// several is true if the move back is possible with any number of blocks.
	several bool
}

// migrateClusterPool starts with a /26 for each node, twice the block size of the pool.
func migrateClusterPool(ctx context.Context, e *env) error {
	return migrate(ctx, e, origin{mode: "cluster-pool", more: 55})
}

// migrateKubernetes starts with blocks of the pool's block size.
func migrateKubernetes(ctx context.Context, e *env) error {
	return migrate(ctx, e, origin{
		mode: "kubernetes", more: 25, cidrs: []string{"100.66.224.0/27", "100.66.224.32/27", "100.66.224.64/27"},
	})
}

// migrateMultiPool starts with /28 blocks, several for each node. Cilium's guide enables
// endpoint routes in this mode.
func migrateMultiPool(ctx context.Context, e *env) error {
	return migrate(ctx, e, origin{mode: "multi-pool", more: 25, endpointRoutes: true, several: true})
}

// migrate moves a cluster that serves pods: up to its agents' restart and back, into crd mode,
// back, and into crd mode again, where it stays. Pods keep their addresses and connections.
// Every command that writes is killed several times, together with the operator, before it may
// complete.
func migrate(ctx context.Context, e *env, o origin) error {
	m := &mover{env: e, origin: o}
	if err := m.before(ctx); err != nil {
		return err
	}
	keeping, stop := context.WithCancel(ctx)
	defer stop()
	go m.keepOperator(keeping)
	steps := []step{{"turn-back", m.turnBack}, {"there", m.there}}
	if o.several {
		steps = append(steps, step{"more", m.growNode}, step{"back", m.back}, step{"again", m.there})
	} else {
		steps = append(steps, step{"back", m.back}, step{"again", m.there}, step{"more", m.growNode}, step{"refused", m.refused})
	}
	steps = append(steps, step{"finish", m.finish}, step{"reclaim", m.reclaimNode})
	for _, s := range steps {
		if err := m.during(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	if err := m.drainAdopted(ctx); err != nil {
		return fmt.Errorf("drain: %w", err)
	}
	m.Note("commands killed, the operator with them; operators killed beside that", "%d; %d", m.commandsKilled, m.operatorsKilled)
	return m.endWatch(ctx)
}

// step is a part of a move, run under its own traffic.
type step struct {
	name string
	do   func(context.Context) error
}

// mover is a cluster during a move.
type mover struct {
	*env
	origin

	nodes []*bed.Node
	pods  [][]*bed.Pod // by node; they stay
	extra []*bed.Pod   // on the first node, for a while
	// few counts the blocks of that node before the extra pods, many its addresses with
	// them.
	few, many int

	cilium  *bed.Operator // Cilium's own
	churn   *churn
	unwatch context.CancelFunc

	commandsKilled, operatorsKilled int
}

// before brings up the cluster in its old mode, without any trace of this operator.
func (m *mover) before(ctx context.Context) (err error) {
	m.options.Before, m.options.IPAM = true, m.mode
	if m.endpointRoutes {
		m.options.Set = []string{"endpointRoutes.enabled=true"}
	}
	m.sandboxTime = sandboxTime // An agent in multi-pool mode looks the pod up first.
	if err := m.start(ctx); err != nil {
		return err
	}
	if m.cilium, err = m.StartCiliumOperator(ctx); err != nil {
		return err
	}
	if err := m.bringUpNodes(ctx); err != nil {
		return err
	}
	return m.modes(m.mode)
}

// bringUpNodes brings up three nodes with their pods.
func (m *mover) bringUpNodes(ctx context.Context) error {
	for i, name := range []string{"n1", "n2", "n3"} {
		n, err := m.AddNode(ctx, name)
		if err != nil {
			return err
		}
		if len(m.cidrs) > 0 {
			n.PodCIDRs = m.cidrs[i : i+1]
		}
		if err := m.bringUp(ctx, n); err != nil {
			return err
		}
		pods, err := m.load(ctx, n, migratePods)
		if err != nil {
			return err
		}
		m.nodes, m.pods = append(m.nodes, n), append(m.pods, pods)
	}
	m.Note("pods, nodes", "%d, %d", migratePods*len(m.nodes), len(m.nodes))
	return nil
}

// during performs a step while pods communicate, and others are created and deleted.
func (m *mover) during(ctx context.Context, s step) error {
	m.logf("step: %s", s.name)
	traffic, err := startTraffic(m.pods)
	if err != nil {
		return err
	}
	m.churn = m.startChurn(ctx, "churn-"+s.name, m.nodes)
	err = s.do(ctx)
	m.judgeChurn(m.churn, s.name)
	m.judgeTraffic(traffic, s.name)
	if err != nil {
		return err
	}
	m.checkPods(ctx, s.name)
	return nil
}

// checkPods checks that the agents have all pods at their addresses.
func (m *mover) checkPods(ctx context.Context, over string) {
	missing, all := 0, 0
	var errs []error
	for i, n := range m.nodes {
		pods := m.pods[i]
		if i == 0 {
			pods = append(pods[:len(pods):len(pods)], m.extra...)
		}
		lacks := 0
		errs = append(errs, m.Eventually(ctx, "the agent has its pods", func(ctx context.Context) (err error) {
			lacks, err = n.Has(ctx, pods)
			return err
		}))
		missing, all = missing+lacks, all+len(pods)
	}
	err := errors.Join(errs...)
	if err != nil {
		m.logf("%v", err)
	}
	m.Check(err == nil, over+": pods at their address", "%d of %d", all-missing, all)
}

// modes checks that all agents run in a mode.
func (m *mover) modes(want string) error {
	var got []string
	for _, n := range m.nodes {
		mode, err := n.Mode()
		if err != nil {
			return err
		}
		got = append(got, mode)
	}
	if in := strings.Count(strings.Join(got, " ")+" ", want+" "); in != len(m.nodes) {
		return fmt.Errorf("agents are in modes %v, not %s", got, want)
	}
	return nil
}

// startWatch starts to check every version.
func (m *mover) startWatch(ctx context.Context) error {
	ctx, m.unwatch = context.WithCancel(ctx)
	return m.watch(ctx)
}

// endWatch checks the versions seen since startWatch.
func (m *mover) endWatch(ctx context.Context) error {
	defer m.unwatch()
	return m.judgeRules(ctx)
}
