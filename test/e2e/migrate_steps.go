//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/e2e/bed"
)

const (
	holdLabel    = "cilium-pool.io/old-ipam"
	adoptedLabel = "cilium-pool.io/adopted-from"
	// settleTime is the value for the operator in the bed, see soon.
	settleTime = " --settle-time=5s"
	// killWithin limits when the operator is killed while an agent restarts.
	killWithin = 8 * time.Second
)

// turnBack moves as far as possible without restarting an agent, and then back.
func (m *mover) turnBack(ctx context.Context) error {
	return inTurn(ctx, m.plan, m.adopt, m.hold, m.publish, m.endWatch, m.leave)
}

// there moves the cluster into crd mode, one agent at a time.
func (m *mover) there(ctx context.Context) error {
	if err := inTurn(ctx, m.plan, m.adopt, m.hold, m.publish, m.moveAgents); err != nil {
		return err
	}
	return m.modes("crd")
}

func inTurn(ctx context.Context, steps ...func(context.Context) error) error {
	for _, do := range steps {
		if err := do(ctx); err != nil {
			return err
		}
	}
	return nil
}

// plan creates the pool and runs the operator in shadow mode.
func (m *mover) plan(ctx context.Context) error {
	pool := &v1alpha1.PodIPPool{ObjectMeta: metav1.ObjectMeta{Name: "all"}}
	pool.APIVersion, pool.Kind = v1alpha1.GroupVersion.String(), "PodIPPool"
	pool.Spec.IPv4 = &v1alpha1.IPv4Ranges{BlockSize: blockSize, CIDRs: []v1alpha1.PoolCIDR{{CIDR: poolCIDR}}}
	if err := m.write("pools.yaml", pool); err != nil {
		return err
	}
	if err := m.must(ctx, cmdPools, 0); err != nil {
		return err
	}
	if err := m.shadow(true); err != nil {
		return err
	}
	return m.must(ctx, cmdPlan, 0)
}

// write writes a manifest to where the command lines of the page expect it.
func (m *mover) write(name string, object any) error {
	data, err := yaml.Marshal(object)
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return os.WriteFile(filepath.Join(m.options.Logs, name), data, 0o644)
}

// adopt creates PodIPBlocks for the CIDRs that the nodes have.
func (m *mover) adopt(ctx context.Context) error {
	if err := m.killed(ctx, cmdStart, 0, 0); err != nil {
		return err
	}
	blocks := &v1alpha1.PodIPBlockList{}
	if err := m.Client.List(ctx, blocks); err != nil {
		return err
	}
	adopted := map[string]int{}
	for _, b := range blocks.Items {
		if b.Labels[adoptedLabel] == m.mode {
			adopted[b.Spec.NodeName]++
		}
	}
	m.Check(len(adopted) == len(m.nodes), "nodes whose blocks were adopted; blocks", "%d of %d; %d", len(adopted), len(m.nodes), len(blocks.Items))
	for _, line := range []string{cmdAdopted, cmdStatus} {
		if err := m.must(ctx, line, 0); err != nil {
			return err
		}
	}
	return nil
}

// hold freezes the old mode: the ConfigMap says crd, agents that restart by themselves
// start in their old mode, and Cilium's operator allocates no more.
func (m *mover) hold(ctx context.Context) error {
	if err := m.must(ctx, cmdHold, 0); err != nil {
		return err
	}
	keep := holdConfig(m.mode, m.endpointRoutes)
	if err := m.writeHold(keep); err != nil {
		return err
	}
	if err := m.must(ctx, cmdHoldConfig, 0); err != nil {
		return err
	}
	others := differ(m.BeforeConfig(), m.MovedConfig(), keep)
	m.Check(len(others) == 0, "keys that the move changes for agents, and old-ipam.yaml does not hold", "%d %v", len(others), others)
	return m.configure(ctx, m.MovedConfig())
}

func (m *mover) writeHold(keys map[string]string) error {
	data, err := holdManifest(keys)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(m.options.Logs, "old-ipam.yaml"), data, 0o644); err != nil {
		return fmt.Errorf("write old-ipam.yaml: %w", err)
	}
	return nil
}

// holdManifest returns old-ipam.yaml of the page.
func holdManifest(keys map[string]string) ([]byte, error) {
	c := &ciliumv2.CiliumNodeConfig{
		TypeMeta:   metav1.TypeMeta{APIVersion: ciliumv2.SchemeGroupVersion.String(), Kind: "CiliumNodeConfig"},
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "old-ipam"},
		Spec: ciliumv2.CiliumNodeConfigSpec{
			Defaults: keys, NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{holdLabel: "true"}},
		},
	}
	data, err := yaml.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("write old-ipam.yaml: %w", err)
	}
	return data, nil
}

// differ returns the keys with different values, except for keys of Cilium's operator
// alone and held keys.
func differ(before, after, held map[string]string) []string {
	var keys []string
	all := maps.Clone(before)
	maps.Copy(all, after)
	for _, key := range slices.Sorted(maps.Keys(all)) {
		_, kept := held[key]
		operators := strings.HasPrefix(key, "cluster-pool-") || key == "auto-create-cilium-pod-ip-pools"
		if before[key] != after[key] && !kept && !operators {
			keys = append(keys, key)
		}
	}
	return keys
}

// configure makes a Helm upgrade of Cilium that restarts its operator but no agent.
func (m *mover) configure(ctx context.Context, config map[string]string) (err error) {
	if err := m.EditConfig(ctx, config); err != nil {
		return err
	}
	if err := m.cilium.Stop(); err != nil {
		return err
	}
	m.cilium, err = m.StartCiliumOperator(ctx)
	return err
}

// publish ends the operator's shadow mode.
func (m *mover) publish(ctx context.Context) error {
	if err := m.must(ctx, cmdStart, 0); err != nil {
		return err
	}
	if err := m.shadow(false); err != nil {
		return err
	}
	if err := m.must(ctx, cmdPublished, 0); err != nil {
		return err
	}
	return m.startWatch(ctx)
}

// moveAgents restarts the agents in crd mode. While one restarts, it kills the operator.
func (m *mover) moveAgents(ctx context.Context) error {
	for _, n := range m.nodes {
		if err := m.roll(ctx, n, cmdLetGo); err != nil {
			return err
		}
		if err := m.must(ctx, on(cmdMoved, "NODE", n.Name), 0); err != nil {
			return err
		}
	}
	return m.must(ctx, cmdSettled+settleTime, 0)
}

// roll restarts an agent in the mode that a label of its Node chooses.
func (m *mover) roll(ctx context.Context, n *bed.Node, label string) error {
	if err := m.must(ctx, on(label, "NODE", n.Name), 0); err != nil {
		return err
	}
	var down bed.Downtime
	deleted, rolled := make(chan error, 1), make(chan error, 1)
	go func() { deleted <- m.must(ctx, on(cmdDeleteAgent, "NODE", n.Name), 0) }()
	go func() {
		var err error
		down, err = n.RollAgent(ctx)
		rolled <- err
	}()
	err := pause(ctx, rand.N(killWithin))
	if err == nil {
		err = m.runOperator(m.flags)
		m.operatorsKilled++
	}
	if err := errors.Join(err, <-deleted, <-rolled); err != nil {
		return err
	}
	m.churn.wasDown(n.Name, down)
	mode, err := n.Mode()
	m.Note(n.Name+": mode after its agent's restart; the agent was down", "%s; %.1f s", mode, down.Until.Sub(down.From).Seconds())
	return err
}

// back moves the cluster to its old mode. In that mode addresses leave pools that no agent
// reads any more, so the rules are not checked until it moves again.
func (m *mover) back(ctx context.Context) error {
	if err := m.endWatch(ctx); err != nil {
		return err
	}
	if err := m.killed(ctx, cmdAbort+answerTimeout, blockedCode, 0); err != nil {
		return err
	}
	for i, n := range m.nodes {
		if err := m.roll(ctx, n, cmdHoldOne); err != nil {
			return err
		}
		if i > 0 {
			continue
		}
		if err := m.must(ctx, on(cmdAbortOne, "NODE", n.Name)+answerTimeout, 0); err != nil {
			return err
		}
	}
	return m.leave(ctx)
}

// leave removes our blocks and addresses from nodes with agents in their old mode,
// and restores Cilium's old configuration.
func (m *mover) leave(ctx context.Context) error {
	if err := m.killed(ctx, cmdAbort+answerTimeout, 0, answerWait); err != nil {
		return err
	}
	if err := m.shadow(true); err != nil {
		return err
	}
	if err := m.configure(ctx, m.BeforeConfig()); err != nil {
		return err
	}
	for _, line := range []string{cmdTidy, cmdFree} {
		if err := m.must(ctx, line, 0); err != nil {
			return err
		}
	}
	return m.modes(m.mode)
}

// finish completes the move.
func (m *mover) finish(ctx context.Context) error {
	if err := m.must(ctx, cmdSettled+settleTime, 0); err != nil {
		return err
	}
	if err := m.killed(ctx, cmdFinish+settleTime, 0, 0); err != nil {
		return err
	}
	if err := m.must(ctx, cmdTidy, 0); err != nil {
		return err
	}
	blocks := &v1alpha1.PodIPBlockList{}
	if err := m.Client.List(ctx, blocks); err != nil {
		return err
	}
	left := slices.DeleteFunc(blocks.Items, func(b v1alpha1.PodIPBlock) bool { return b.Labels[adoptedLabel] == "" })
	pools := 0
	for _, n := range m.nodes {
		cn, err := m.CiliumNode(ctx, n.Name)
		if err != nil {
			return err
		}
		pools += len(cn.Spec.IPAM.Pools.Allocated)
	}
	m.Check(len(left)+pools == 0, "finish: blocks that still say where they came from; pools left in CiliumNodes", "%d; %d", len(left), pools)
	return nil
}
