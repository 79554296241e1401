package drain

import (
	"context"
	"fmt"
	"io"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cluster"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/list"
)

// restarter restarts agents that keep a block by addresses of their own. What it remembers
// keeps it from restarting an agent twice to no avail.
type restarter struct {
	client client.Client
	out    io.Writer
	// limit is how many agents may be restarting at a time, whoever restarts them. Of a
	// zone it is one.
	limit int
	// restarted are the agents' pods that were deleted, by node.
	restarted map[string]types.UID
}

func newRestarter(c client.Client, out io.Writer, limit int) *restarter {
	return &restarter{client: c, out: out, limit: limit, restarted: map[string]types.UID{}}
}

// step restarts agents that rows wait for, until as many restart as may. Rows that it takes
// care of need no user action.
func (v *restarter) step(ctx context.Context, c *cluster.Cluster, rows []list.BlockRow) ([]list.BlockRow, error) {
	busy, zones := unsettled(c)
	rows = slices.Clone(rows)
	for i := range rows {
		r := &rows[i]
		if !r.NeedsRestart {
			continue
		}
		agent, zone := agentOn(c, r.Node), zoneOf(c.Nodes[r.Node])
		anew := agent != nil && v.restarted[r.Node] != "" && v.restarted[r.Node] != agent.UID
		switch {
		case anew && reportsAnew(c, r.Node):
			continue // it still has its addresses
		case agent == nil || v.restarted[r.Node] != "" || busy >= v.limit || zones[zone]:
		default:
			if err := v.restart(ctx, r.Node, agent); err != nil {
				return nil, err
			}
			busy, zones[zone] = busy+1, true
		}
		r.NeedsAction = ""
	}
	return rows, nil
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

// reportsAnew says that an agent has run for so long that its CiliumNode no longer has the
// report of the one before.
func reportsAnew(c *cluster.Cluster, node string) bool {
	settled, _ := c.Agents.Settled(node, c.Now.Add(-4*reportEvery))
	return settled
}

// unsettled counts the agents that do not run steadily, and returns their zones.
func unsettled(c *cluster.Cluster) (n int, zones map[string]bool) {
	zones = map[string]bool{}
	for name, node := range c.Nodes {
		if c.OptedOut(node) {
			continue
		}
		agent := agentOn(c, name)
		if settled, _ := c.Agents.Settled(name, c.Now); !settled || agent == nil || agent.DeletionTimestamp != nil {
			n++
			zones[zoneOf(node)] = true
		}
	}
	return n, zones
}

// zoneOf is the zone of a Node, which may be nil; "": it has none.
func zoneOf(node *corev1.Node) string {
	if node == nil {
		return ""
	}
	return node.Labels[corev1.LabelTopologyZone]
}

// agentOn is the agent's pod on a node that began last, or nil.
func agentOn(c *cluster.Cluster, node string) *corev1.Pod {
	var agent *corev1.Pod
	for i := range c.Objects.Agents {
		p := &c.Objects.Agents[i]
		if p.Spec.NodeName == node && (agent == nil || agent.CreationTimestamp.Before(&p.CreationTimestamp)) {
			agent = p
		}
	}
	return agent
}
