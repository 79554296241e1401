//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/cilium-pool/cilium-pool-operator/test/cluster/kube"
)

const (
	migrationPage = "docs/migration.md"
	// oldValues are the values that readers of the page already have.
	oldValues = "your-old-values.yaml"
	// movedPods run while the cluster moves; grownPods make a node need a second block in crd
	// mode, and no longer fit into a node's old block.
	movedPods = 30
	grownPods = 60
	// refused is the exit code of plugin commands that leave something to do.
	refused = 3
)

// move is a cluster that is moving from cluster-pool mode to crd mode, or back.
type move struct {
	*trial
	page markedPage
	// addresses of the pods that have run from the start, by name, and restarts of their
	// containers.
	addresses map[string]string
	restarted int
	pinged    losses
}

// migrationScenario moves a cluster in cluster-pool mode to crd mode by the commands of the
// page, lets it grow, moves it back, and moves it again permanently.
func migrationScenario(ctx context.Context, t *trial) error {
	m := &move{trial: t}
	for _, step := range []struct {
		what string
		run  func(context.Context) error
	}{
		{"1 prepare", m.prepare},
		{"2 plan", m.plan},
		{"3 to 6, all agents in crd mode", m.forth},
		{"more pods than the old block has addresses", m.grow},
		{"back in cluster-pool mode", m.back},
		{"3 to 6 again", m.forth},
		{"7 finish", m.runs("finish")},
	} {
		began := time.Now()
		err := step.run(ctx)
		t.check(step.what+": took", seconds(began), err == nil)
		if err != nil {
			return err
		}
		if err := m.judge(ctx, step.what); err != nil {
			return err
		}
	}
	out, err := t.shell(ctx, "kubectl cilium-pool check")
	t.check("kubectl cilium-pool check finds nothing", err == nil, err == nil)
	if err != nil {
		t.say("%s", out)
	}
	return t.checkOperator(ctx)
}

// runs returns a step that runs a block of the page.
func (m *move) runs(block string, replace ...string) func(context.Context) error {
	return func(ctx context.Context) error {
		commands, err := m.page.commands(block, replace...)
		if err != nil {
			return err
		}
		for _, line := range commands {
			m.say("$ %s", line)
			if _, err := m.shell(ctx, line); err != nil {
				return err
			}
		}
		return nil
	}
}

// refused runs a block. Its last command must leave work to do.
func (m *move) refused(ctx context.Context, block string) error {
	err := m.runs(block)(ctx)
	exit := new(exec.ExitError)
	if errors.As(err, &exit) && exit.ExitCode() == refused {
		return nil
	}
	return fmt.Errorf("%s: exit code %d was to come: %w", block, refused, err)
}

// each runs blocks for all nodes, one after the other.
func (m *move) each(ctx context.Context, run func(ctx context.Context, node string) error) error {
	for number := 1; number <= m.options.nodes; number++ {
		if err := run(ctx, kube.NodeName(number)); err != nil {
			return fmt.Errorf("%s: %w", kube.NodeName(number), err)
		}
	}
	return nil
}

// prepare starts the original cluster and performs step 1.
func (m *move) prepare(ctx context.Context) error {
	if err := m.start(ctx); err != nil {
		return err
	}
	const before = "test/cluster/values/before-migration.yaml"
	if _, err := m.shell(ctx, "helm install cilium "+m.options.cilium+" -n kube-system -f "+before+forcedCilium); err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{
		func(ctx context.Context) error { return m.awaitAgents(ctx, false) }, m.installDNS, m.installProbes,
		func(ctx context.Context) error { return m.cluster.Apply(ctx, webManifest) },
		func(ctx context.Context) error { return m.scale(ctx, "web", movedPods) },
		m.startPings,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	var err error
	if m.page, err = m.readMarked(migrationPage); err != nil {
		return err
	}
	if m.addresses, err = m.podAddresses(ctx); err != nil {
		return err
	}
	if err := m.writeOldValues(before, "prepare.yaml"); err != nil {
		return err
	}
	if err := m.runs("prepare")(ctx); err != nil {
		return err
	}
	return m.each(ctx, func(ctx context.Context, node string) error {
		if err := m.runs("prepare-agent", "NODE", node)(ctx); err != nil {
			return err
		}
		return m.awaitAgent(ctx, node)
	})
}

// writeOldValues stores the values that Cilium has before the page, plus the values of step 1,
// as a chart would merge them: the others do not contain the keys of step 1.
func (m *move) writeOldValues(before, prepared string) error {
	var text []string
	for _, path := range []string{filepath.Join(m.options.repository, before), filepath.Join(m.page.dir, prepared)} {
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		text = append(text, string(data))
	}
	return m.page.write(oldValues, strings.Join(text, "\n"))
}

// plan writes the pools with the plugin, as the page says, and performs step 2.
func (m *move) plan(ctx context.Context) error {
	if _, err := m.shell(ctx, "kubectl cilium-pool import --from cilium >"+filepath.Join(m.page.dir, "pools.yaml")); err != nil {
		return err
	}
	return m.runs("plan")(ctx)
}

// forth performs steps 3 to 6.
func (m *move) forth(ctx context.Context) error {
	for _, block := range []string{"adopt", "hold", "freeze"} {
		if err := m.runs(block)(ctx); err != nil {
			return err
		}
	}
	if err := m.rollout(ctx, "kube-system", "deployment/cilium-operator", agentsTimeout); err != nil {
		return err
	}
	if err := m.runs("publish")(ctx); err != nil {
		return err
	}
	err := m.each(ctx, func(ctx context.Context, node string) error { return m.runs("agent", "NODE", node)(ctx) })
	if err != nil {
		return err
	}
	return m.runs("settle")(ctx)
}

// back checks that the move back is refused while a node has a second block. Then it moves all
// nodes back.
func (m *move) back(ctx context.Context) error {
	before, err := m.blockNames(ctx)
	if err != nil {
		return err
	}
	err = m.refused(ctx, "abort")
	after, errAfter := m.blockNames(ctx)
	m.check("abort with a second block: exit code 3, blocks stay", err == nil && before == after, err == nil && before == after)
	if err := errors.Join(err, errAfter); err != nil {
		return err
	}
	if err := m.shrink(ctx); err != nil {
		return err
	}
	if err := m.refused(ctx, "abort"); err != nil {
		return err
	}
	err = m.each(ctx, func(ctx context.Context, node string) error {
		commands, err := m.page.commands("abort-agent", "NODE", node)
		if err != nil {
			return err
		}
		for _, line := range commands {
			if strings.Contains(line, "migrate abort") {
				if err := m.awaitAgent(ctx, node); err != nil {
					return err
				}
			}
			m.say("$ %s", line)
			if _, err := m.shell(ctx, line); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return m.runs("returned")(ctx)
}

// grow starts more pods on one node than its old block has addresses.
func (m *move) grow(ctx context.Context) error {
	before, err := m.burstBlocks(ctx)
	if err != nil {
		return err
	}
	if err := m.scale(ctx, "burst", grownPods); err != nil {
		return err
	}
	after, err := m.burstBlocks(ctx)
	if err != nil {
		return err
	}
	m.check("blocks of "+burstNode+" in cluster-pool mode and in crd mode with more pods", fmt.Sprintf("%d, %d", before, after), before == 1 && after > 1)
	return nil
}

// shrink deletes these pods and drains the blocks that were added for them. As long as the
// operator has not seen that the pods are gone, another block replaces a drained one.
func (m *move) shrink(ctx context.Context) error {
	if err := m.scale(ctx, "burst", 0); err != nil {
		return err
	}
	if err := m.awaitGone(ctx, "burst", 0); err != nil {
		return err
	}
	if _, err := m.shell(ctx, quicken); err != nil {
		return err
	}
	drained := map[string]bool{}
	return kube.Await(ctx, 2*returnTimeout, "blocks that were not adopted are gone", func(ctx context.Context) (bool, string) {
		out, err := m.cluster.Kubectl(ctx, "get", "podipblocks", "--selector=!cilium-pool.io/adopted-from", "--output=jsonpath={.items[*].metadata.name}")
		if err != nil {
			return false, err.Error()
		}
		for _, block := range strings.Fields(out) {
			if drained[block] {
				continue
			}
			drained[block] = true
			if err := m.runs("drain", "BLOCK", block)(ctx); err != nil {
				return false, err.Error()
			}
		}
		return out == "", out
	})
}

// judge checks the page's promises: pods keep their addresses and keep running, and Services
// answer.
func (m *move) judge(ctx context.Context, step string) error {
	now, err := m.podAddresses(ctx)
	if err != nil {
		return err
	}
	kept := 0
	for pod, address := range m.addresses {
		if now[pod] == address {
			kept++
		}
	}
	m.check(step+": pods that keep their address", fmt.Sprintf("%d of %d", kept, len(m.addresses)), kept == len(m.addresses))
	restarts, err := m.restarts(ctx)
	if err != nil {
		return err
	}
	m.check(step+": containers that restarted", restarts-m.restarted, restarts == m.restarted)
	m.restarted = restarts
	sum, err := m.pings(ctx)
	if err != nil {
		return err
	}
	since := losses{Sent: sum.Sent - m.pinged.Sent, Lost: sum.Lost - m.pinged.Lost, LongestGapMs: sum.LongestGapMs}
	m.pinged = sum
	m.check(step+": pings lost", since, since.Lost == 0 && since.Sent > 0)
	served, asked, err := m.servedFrom(ctx)
	m.check(step+": the Service answers", fmt.Sprintf("%d of %d", served, asked), served == asked)
	return err
}

// podAddresses returns the addresses of the pods outside the host network. It leaves out the
// pods that the scenario creates and deletes.
func (b *bed) podAddresses(ctx context.Context) (map[string]string, error) {
	pods, err := query[corev1.PodList](ctx, b, "pods", "--all-namespaces", "--selector=app!=burst")
	addresses := map[string]string{}
	for _, pod := range pods.Items {
		if !pod.Spec.HostNetwork && pod.DeletionTimestamp == nil {
			addresses[pod.Name] = pod.Status.PodIP
		}
	}
	if slices.Contains(slices.Collect(maps.Values(addresses)), "") {
		return nil, errors.Join(err, fmt.Errorf("a pod has no address: %v", addresses))
	}
	return addresses, err
}

// awaitAgent waits until a node's agent is Ready again after its pod was deleted.
func (b *bed) awaitAgent(ctx context.Context, node string) error {
	return kube.Await(ctx, agentsTimeout, "the agent of "+node+" is Ready", func(ctx context.Context) (bool, string) {
		pods, err := query[corev1.PodList](ctx, b, "pods", "--namespace=kube-system", "--selector=k8s-app=cilium", "--field-selector=spec.nodeName="+node)
		if err != nil || len(pods.Items) != 1 {
			return false, fmt.Sprintf("%d pods, %v", len(pods.Items), err)
		}
		for _, c := range pods.Items[0].Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
				return true, ""
			}
		}
		return false, string(pods.Items[0].Status.Phase)
	})
}
