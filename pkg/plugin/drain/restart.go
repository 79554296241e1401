package drain

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/clusterview"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/list"
	"github.com/cilium-pool/cilium-pool-operator/pkg/suggest"
)

// restarter restarts agents if their own addresses keep a block. Its memory prevents it from
// restarting an agent twice in vain.
type restarter struct {
	client client.Client
	out    io.Writer
	// limit is the number of agents that may restart at a time, while no others do; at most one per
	// zone.
	limit int
	// restarted are the agents' pods that were deleted, by node.
	restarted map[string]types.UID
	// said is the last line about agents that a batch waits for.
	said string
}

func newRestarter(c client.Client, out io.Writer, limit int) *restarter {
	return &restarter{client: c, out: out, limit: limit, restarted: map[string]types.UID{}}
}

// step restarts agents that rows wait for, a batch of as many as may at a time. Rows that it
// takes care of need no user action.
//
// A batch begins once the blocks of the last have left, and no other is leaving: an agent removes a
// route only if it sees a CIDR go, so an agent that restarts meanwhile keeps it (Cilium v1.20.1,
// pkg/datapath/linux/node.go, nodeUpdate).
//
// An agent restarts once, after the last of its node's blocks has drained: from an undrained one it
// may take an address for its own, and would need another restart.
func (v *restarter) step(ctx context.Context, c *clusterview.Cluster, rows []list.BlockRow) ([]list.BlockRow, error) {
	agents := newestAgents(c)
	unsettled := v.unsettled(c, agents)
	begins := len(unsettled) == 0 && !slices.ContainsFunc(rows, func(r list.BlockRow) bool { return v.leaves(c, agents[r.Node], &r) })
	began := 0
	zones := map[string]bool{}
	undrained := undrainedOn(rows)
	rows = slices.Clone(rows)
	if slices.ContainsFunc(rows, func(r list.BlockRow) bool { return r.NeedsRestart }) {
		v.sayWaits(unsettled)
	}
	for i := range rows {
		r := &rows[i]
		if !r.NeedsRestart {
			continue
		}
		if action, waits := undrained[r.Node]; waits {
			r.NeedsAction = action
			continue
		}
		agent := agents[r.Node]
		zone := zoneOf(c.Nodes[r.Node])
		if v.successorRuns(agent) && hasReportedItself(c, r.Node) {
			continue // it still has its addresses
		}
		if begins && agent != nil && v.restarted[r.Node] == "" && began < v.limit && !zones[zone] {
			if err := v.restart(ctx, r.Node, agent); err != nil {
				return nil, err
			}
			began++
			zones[zone] = true
		}
		r.NeedsAction = ""
	}
	return rows, nil
}

// undrainedOn returns the nodes with blocks that wait for anything but a restart of their agent,
// and the users' steps for these; "": at least one needs none.
func undrainedOn(rows []list.BlockRow) map[string]string {
	actions := map[string]string{}
	for i := range rows {
		r := &rows[i]
		if r.NeedsRestart || r.Phase == ipalloc.CoolingDown.String() {
			continue
		}
		if action, known := actions[r.Node]; !known || action != "" {
			actions[r.Node] = r.NeedsAction
		}
	}
	return actions
}

// leaves reports whether a block is about to leave its node without a restart or user action,
// or has left its PodIPPool but not its CiliumNode. A block in service is far from that.
func (v *restarter) leaves(c *clusterview.Cluster, agent *corev1.Pod, r *list.BlockRow) bool {
	if r.Phase == ipalloc.CoolingDown.String() {
		view := c.State.Ledger.CiliumNode(r.Node)
		return view != nil && slices.Contains(view.ListedInAnyPool(), r.CIDR)
	}
	if r.NeedsRestart {
		return v.successorRuns(agent) && !hasReportedItself(c, r.Node)
	}
	return r.Phase == ipalloc.Draining.String() && r.NeedsAction == ""
}

// successorRuns reports whether an agent is the successor of a restarted one.
func (v *restarter) successorRuns(agent *corev1.Pod) bool {
	return agent != nil && v.restarted[agent.Spec.NodeName] != "" && v.restarted[agent.Spec.NodeName] != agent.UID
}

func (v *restarter) restart(ctx context.Context, node string, agent *corev1.Pod) error {
	fmt.Fprintf(v.out, "  the agent on %s is restarted\n", node)
	v.restarted[node] = agent.UID
	err := v.client.Delete(ctx, agent, client.Preconditions{UID: &agent.UID})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("deleting pod %s/%s: %w", agent.Namespace, agent.Name, err)
	}
	return nil
}

// reportEvery is the interval of an agent's reports of addresses in use and of its answers to marks
// (Cilium v1.20.1, --ipam-cilium-node-update-rate).
const reportEvery = 15 * time.Second

// hasReportedItself reports whether an agent has run for long enough that its CiliumNode no longer
// has its predecessor's report.
func hasReportedItself(c *clusterview.Cluster, node string) bool {
	settled, _ := c.State.Agents.Settled(node, c.Now.Add(-4*reportEvery))
	return settled
}

// unsettled returns the nodes with agents that are not settled. One whose kubelet has ceased to report may
// be off for good: it counts only if this command has restarted its agent.
func (v *restarter) unsettled(c *clusterview.Cluster, agents map[string]*corev1.Pod) (nodes []string) {
	for name, node := range c.Nodes {
		if c.State.OptedOut(node) || clusterview.IsLost(node) && v.restarted[name] == "" {
			continue
		}
		agent := agents[name]
		if settled, _ := c.State.Agents.Settled(name, c.Now); !settled || agent == nil || agent.DeletionTimestamp != nil {
			nodes = append(nodes, name)
		}
	}
	slices.Sort(nodes)
	return nodes
}

// sayWaits prints the nodes with agents that the next restarts wait for, if they have changed.
func (v *restarter) sayWaits(nodes []string) {
	line := ""
	if len(nodes) > 0 {
		line = fmt.Sprintf("  no agent is restarted until the agent runs steadily on %s\n", suggest.Few(nodes))
	}
	if line != v.said {
		v.said = line
		fmt.Fprint(v.out, line)
	}
}

// zoneOf returns the zone of a Node, which may be nil; "": none.
func zoneOf(node *corev1.Node) string {
	if node == nil {
		return ""
	}
	return node.Labels[corev1.LabelTopologyZone]
}

// newestAgents returns the pods of agents by node, the newest if a node has several.
func newestAgents(c *clusterview.Cluster) map[string]*corev1.Pod {
	agents := make(map[string]*corev1.Pod, len(c.Nodes))
	for i := range c.Objects.Agents {
		p := &c.Objects.Agents[i]
		if known := agents[p.Spec.NodeName]; known == nil || known.CreationTimestamp.Before(&p.CreationTimestamp) {
			agents[p.Spec.NodeName] = p
		}
	}
	return agents
}
