//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant/whole"
)

// The commands in docs/modes.md for a move between modes, in addition to those for a move from
// another IPAM.
const (
	cmdAssigned = "kubectl get ciliumnodes -o custom-columns=NODE:.metadata.name,ASSIGNED:.spec.ipam.pools.allocated[*].cidrs"
	cmdListed   = "kubectl get ciliumnodes -o custom-columns=NODE:.metadata.name,PODCIDRS:.spec.ipam.podCIDRs"
)

// modeCommands returns the commands of docs/modes.md for a move.
func modeCommands() []string {
	return []string{cmdHold, cmdHoldConfig, cmdAssigned, cmdListed, cmdLetGo, cmdDeleteAgent, cmdFinish, cmdTidy}
}

const movePods = 40 // more than a block holds

// modesMove moves a cluster that serves pods from this operator's crd mode to its
// multi-pool mode and back, with all its blocks: pods keep their addresses and
// connections. The operator is killed while agents restart.
func modesMove(ctx context.Context, e *env) error {
	m := &modeMover{mover: &mover{env: e, origin: origin{mode: crdMode, endpointRoutes: true}}}
	if err := m.begin(ctx); err != nil {
		return err
	}
	keeping, stop := context.WithCancel(ctx)
	defer stop()
	go m.keepOperator(keeping)
	for _, s := range []step{{"there", m.toMultiPool}, {"more", m.grow}, {"back", m.toCRD}, {"reclaim", m.reclaimNode}} {
		if err := m.during(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	m.Note("operators killed while an agent restarted", "%d", m.operatorsKilled)
	return m.endWatch(ctx)
}

// modeMover is a cluster that moves between two of our modes.
type modeMover struct{ *mover }

// begin brings up three nodes in crd mode.
func (m *modeMover) begin(ctx context.Context) (err error) {
	m.options.IPAM, m.options.Then, m.options.ThenValues = crdMode, multiPoolMode, []string{ciliumValues(multiPoolMode)}
	m.sandboxTime = sandboxTime // An agent in multi-pool mode looks the pod up first.
	if err := m.start(ctx); err != nil {
		return err
	}
	if err := m.createPool(ctx); err != nil {
		return err
	}
	if m.cilium, err = m.StartCiliumOperator(ctx); err != nil {
		return err
	}
	if err := m.startWatch(ctx); err != nil {
		return err
	}
	if err := m.reoperate(crdMode); err != nil {
		return err
	}
	if err := m.bringUpNodes(ctx); err != nil {
		return err
	}
	return m.modes(crdMode)
}

// reoperate restarts the operator in a mode.
func (m *modeMover) reoperate(mode string) error {
	return m.runOperator(append(soon(), "--leader-elect-lease-duration=4s", "--ack-hold=10s", "--reclaim-threshold-percent=70", "--cooldown=30s", "--mode="+mode))
}

// toMultiPool moves all nodes to multi-pool mode. The operator moves first: it assigns the
// blocks of every node in a field that agents in crd mode do not read.
func (m *modeMover) toMultiPool(ctx context.Context) error {
	err := inTurn(ctx,
		func(ctx context.Context) error { return m.holdIn(ctx, m.BeforeConfig(), m.MovedConfig()) },
		func(ctx context.Context) error { return m.switchCilium(ctx, m.MovedConfig(), multiPoolMode) },
		func(ctx context.Context) error { return m.extraObjects(ctx, multiPoolMode) },
		m.endWatch, m.watchMoved,
		func(context.Context) error { return m.reoperate(multiPoolMode) },
		func(ctx context.Context) error { return m.Eventually(ctx, "all blocks are assigned", m.allAssigned) },
		func(ctx context.Context) error { return m.must(ctx, cmdAssigned, 0) },
		func(ctx context.Context) error { return m.rollAll(ctx, multiPoolMode) },
	)
	if err != nil {
		return err
	}
	return m.checkLeft(ctx, "there: what CiliumNodes name of crd mode after the move", func(cn *ciliumv2.CiliumNode) int {
		return len(cn.Spec.IPAM.Pool) + len(cn.Spec.IPAM.PodCIDRs) + len(cn.Status.IPAM.Used) + len(cn.Status.IPAM.ReleaseIPs)
	})
}

// toCRD moves all nodes back.
func (m *modeMover) toCRD(ctx context.Context) error {
	err := inTurn(ctx,
		func(ctx context.Context) error { return m.holdIn(ctx, m.MovedConfig(), m.BeforeConfig()) },
		func(ctx context.Context) error { return m.switchCilium(ctx, m.BeforeConfig(), "") },
		m.judgeWhole,
		func(context.Context) error { m.unwatch(); return m.reoperate(crdMode) },
		func(ctx context.Context) error { return m.Eventually(ctx, "all blocks are published", m.allPublished) },
		func(ctx context.Context) error { return m.must(ctx, cmdListed, 0) },
		m.startWatch,
		func(ctx context.Context) error { return m.rollAll(ctx, crdMode) },
	)
	if err != nil {
		return err
	}
	cn, err := m.CiliumNode(ctx, m.nodes[0].Name)
	if err != nil {
		return err
	}
	m.many = len(cn.Spec.IPAM.Pool)
	return m.checkLeft(ctx, "back: what CiliumNodes name of multi-pool mode after the move", func(cn *ciliumv2.CiliumNode) int {
		return len(cn.Spec.IPAM.Pools.Allocated) + len(cn.Spec.IPAM.Pools.Requested)
	})
}

// checkLeft checks that no CiliumNode has anything of one kind left.
func (m *modeMover) checkLeft(ctx context.Context, what string, of func(*ciliumv2.CiliumNode) int) error {
	left := 0
	for _, n := range m.nodes {
		cn, err := m.CiliumNode(ctx, n.Name)
		if err != nil {
			return err
		}
		left += of(cn)
	}
	m.Check(left == 0, what, "%d", left)
	return nil
}

// holdIn keeps agents that restart by themselves in their current mode.
func (m *modeMover) holdIn(ctx context.Context, now, then map[string]string) error {
	if err := m.must(ctx, cmdHold, 0); err != nil {
		return err
	}
	keep := modeHoldConfig(now)
	if err := m.writeHold(keep); err != nil {
		return err
	}
	if err := m.must(ctx, cmdHoldConfig, 0); err != nil {
		return err
	}
	others := differ(now, then, keep)
	m.Check(len(others) == 0, "keys that the move changes for agents, and old-ipam.yaml does not hold", "%d %v", len(others), others)
	return nil
}

// modeHoldConfig returns the keys that such a move changes, with their values in
// config.
func modeHoldConfig(config map[string]string) map[string]string {
	keep := map[string]string{}
	for _, key := range []string{"ipam", "ipv4-range", "ipv6-range"} {
		keep[key] = config[key]
	}
	return keep
}

// switchCilium makes a Helm upgrade of Cilium that restarts its operator, with the flags for a
// mode ("": none), but no agent.
func (m *modeMover) switchCilium(ctx context.Context, config map[string]string, mode string) (err error) {
	var args []string
	if mode != "" {
		if args, err = m.ciliumOperatorArgs(mode); err != nil {
			return err
		}
	}
	if err := m.EditConfig(ctx, config); err != nil {
		return err
	}
	if err := m.cilium.Stop(); err != nil {
		return err
	}
	m.cilium, err = m.StartCiliumOperator(ctx, args...)
	return err
}

// watchMoved checks the rules of multi-pool mode from the current state on.
func (m *modeMover) watchMoved(ctx context.Context) error {
	ctx, m.unwatch = context.WithCancel(ctx)
	w := whole.New(whole.InPools())
	for kind, list := range map[invariant.Kind]client.ObjectList{
		invariant.KindBlock: &v1alpha1.PodIPBlockList{}, invariant.KindCiliumNode: &ciliumv2.CiliumNodeList{},
	} {
		if err := m.Client.List(ctx, list); err != nil {
			return err
		}
		if err := w.Begin(kind, list); err != nil {
			return err
		}
	}
	return m.watchRules(ctx, w)
}

// allAssigned returns an error while a block in service is not assigned.
func (m *modeMover) allAssigned(ctx context.Context) error {
	return m.eachBlock(ctx, func(b whole.Block, cn *ciliumv2.CiliumNode) error {
		if !slices.Contains(whole.AssignedTo(cn), b.CIDR) {
			return fmt.Errorf("%s is not assigned %s", b.Node, b.CIDR)
		}
		return nil
	})
}

// allPublished returns an error while addresses of a block are missing from a pool.
func (m *modeMover) allPublished(ctx context.Context) error {
	return m.eachBlock(ctx, func(b whole.Block, cn *ciliumv2.CiliumNode) error {
		published, _, err := count(cn, b.CIDR.String())
		if err == nil && (published != wholeBlock(blockSize, true) || !slices.Contains(prefixesOf(cn), b.CIDR)) {
			err = fmt.Errorf("%s has %d addresses of %s", b.Node, published, b.CIDR)
		}
		return err
	})
}

// eachBlock calls is for each block in service, with the CiliumNode of its node.
func (m *modeMover) eachBlock(ctx context.Context, is func(whole.Block, *ciliumv2.CiliumNode) error) error {
	blocks := &v1alpha1.PodIPBlockList{}
	if err := m.Client.List(ctx, blocks); err != nil {
		return err
	}
	var errs []error
	for i := range blocks.Items {
		b, ok := whole.BlockOf(&blocks.Items[i])
		if !ok || b.Cooling {
			continue
		}
		cn, err := m.CiliumNode(ctx, b.Node)
		if err != nil {
			return err
		}
		errs = append(errs, is(b, cn))
	}
	return errors.Join(errs...)
}

// rollAll restarts all agents in the mode of the ConfigMap, one by one, and removes the
// rest of the other mode.
func (m *modeMover) rollAll(ctx context.Context, mode string) error {
	for _, n := range m.nodes {
		if err := m.roll(ctx, n, cmdLetGo); err != nil {
			return err
		}
	}
	if err := m.modes(mode); err != nil {
		return err
	}
	began := time.Now()
	err := m.Eventually(ctx, "nothing is left of the other mode", func(ctx context.Context) error {
		return m.must(ctx, cmdFinish+settleTime, 0)
	})
	m.Note("from the last agent's restart until nothing was left of the other mode", "%.0f s", time.Since(began).Seconds())
	return errors.Join(err, m.must(ctx, cmdTidy, 0))
}

// grow runs more pods on the first node than fit into its block.
func (m *modeMover) grow(ctx context.Context) error {
	n := m.nodes[0]
	before, err := m.CiliumNode(ctx, n.Name)
	if err != nil {
		return err
	}
	pods, errs := m.runPods(ctx, n, "more", movePods, crowd{width: 4})
	m.extra, m.few = pods, len(whole.AssignedTo(before))
	after, err := m.CiliumNode(ctx, n.Name)
	if err != nil {
		return err
	}
	m.Check(len(errs) == 0 && len(whole.AssignedTo(after)) > m.few, fmt.Sprintf("more: failed CNI ADDs of %d; blocks before, after", movePods), "%d; %d, %d",
		len(errs), m.few, len(whole.AssignedTo(after)))
	return nil
}

// createPool creates the pool of all nodes.
func (e *env) createPool(ctx context.Context) error {
	p := &v1alpha1.PodIPPool{ObjectMeta: metav1.ObjectMeta{Name: "all"}}
	p.Spec.IPv4 = &v1alpha1.IPv4Ranges{BlockSize: blockSize, CIDRs: []v1alpha1.PoolCIDR{{CIDR: poolCIDR}}}
	return e.Client.Create(ctx, p)
}
