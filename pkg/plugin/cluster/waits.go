package cluster

import (
	"fmt"
	"strings"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/output"
)

// Wait is the obstacle to a leaving block. Action is the step for users if the wait does not end on
// its own. Restart: that is a restart of the node's agent.
type Wait struct {
	What, Action string
	Restart      bool
}

// User actions for waits that do not end on their own.
const (
	deleteTheNode = "drain the Node and delete it, or leave the block where it is. Restarting the agent does not move its own addresses"
	restartAgents = "restart the agent, which then takes other addresses and completes the drain: kubectl -n %[1]s delete pod -l %[2]s --field-selector spec.nodeName=NODE, or of all nodes: kubectl -n %[1]s rollout restart daemonset/cilium"
	replaceTheOne = "drain the Node and delete it: in this mode a node keeps its block as long as its Node exists"
	openAWindow   = "no maintenance window of the pool will ever open: correct spec.maintenance.windows, or give --now"
)

// Waits returns the obstacles to the leaving blocks of a node, by name.
func (c *Cluster) Waits(node string) map[string]Wait {
	waits := map[string]Wait{}
	for _, d := range c.Decide(node) {
		for _, w := range d.Plan.Waits {
			is := Wait{What: waitsFor(w), Action: c.actionOn(w, &d)}
			is.Restart = w.For == expand.WaitRestart && is.Action != ""
			if w.For == expand.WaitRestart && !is.Restart && !c.hasPods(w, &d) {
				is.What = "the operator to retire the agent's own " + output.Few(w.By)
			}
			if w.For == expand.WaitReturn && d.State.BlockDemand.Fixed {
				is.What = "its Node to be deleted"
			}
			if b, ok := c.Ledger.Block(w.CIDR); ok && w.For == expand.WaitTurn {
				_, why, _ := strings.Cut(b.Held, ": ") // as the operator writes it
				is.What = "its turn: " + why
			}
			if d.Paused != "" {
				is = Wait{What: "the operator, which changes nothing on the node: " + d.Paused, Action: "end this first: " + d.Paused}
			}
			waits[crd.BlockName(w.CIDR)] = is
		}
	}
	return waits
}

// actionOn returns the user action that a wait needs; "": it ends on its own.
func (c *Cluster) actionOn(w expand.Wait, d *Decision) string {
	switch {
	case w.For == expand.WaitAgent && !c.hasPods(w, d):
		return deleteTheNode
	case w.For == expand.WaitRestart && !c.hasPods(w, d) && c.retired(w, d):
		return fmt.Sprintf(restartAgents, c.Operator.Settings.AgentNamespace, c.Operator.Settings.AgentSelector)
	case w.For == expand.WaitReturn && d.State.BlockDemand.Fixed:
		return replaceTheOne
	case w.For == expand.WaitWindow && w.Until.IsZero():
		return openAWindow
	}
	return ""
}

// retired reports whether the operator has retired every address of the block that is in use.
func (c *Cluster) retired(w expand.Wait, d *Decision) bool {
	for a := range c.Users(d.State.Node) {
		if w.CIDR.Contains(a) && d.State.Release[a] != expand.Released {
			return false
		}
	}
	return true
}

// hasPods reports whether pods, and not only the agent, use the block, or a person assigned an
// address of it to a pod.
func (c *Cluster) hasPods(w expand.Wait, d *Decision) bool {
	for a, user := range c.Users(d.State.Node) {
		if w.CIDR.Contains(a) && strings.Contains(user, "/") {
			return true
		}
	}
	for a, owner := range d.State.Pool {
		if w.CIDR.Contains(a) && owner != "" {
			return true
		}
	}
	return false
}

func waitsFor(w expand.Wait) string {
	by := output.Few(w.By)
	switch w.For {
	case expand.WaitPods:
		return "pods " + by
	case expand.WaitAgent:
		return "the agent's own " + by + ", which stays as long as the Node"
	case expand.WaitRestart:
		return "a restart of the agent, which has " + by + " there"
	case expand.WaitReplacement:
		return "a replacement: the node has no other addresses"
	case expand.WaitHandshake:
		return "the agent's answer"
	case expand.WaitReturn:
		return "the agent to give it back"
	case expand.WaitPodAddress:
		return "the addresses of " + by
	case expand.WaitUnsettled:
		return "the agent to run steadily"
	case expand.WaitMode:
		return "an agent that is configured for the operator's IPAM mode"
	case expand.WaitWindow:
		if w.Until.IsZero() {
			return "a maintenance window, and none will ever open"
		}
		return "the maintenance window that opens at " + w.Until.UTC().Format(time.RFC3339)
	}
	return string(w.For)
}
