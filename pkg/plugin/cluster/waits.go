package cluster

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/suggest"
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

// Wait returns what a block waits for if it leaves, or must: as the operator reports it in the
// block's status, with the pods of now. users are those of its node.
func (c *Cluster) Wait(b crd.Block, users map[netip.Addr]string) Wait {
	if b.WaitsFor == "" && b.Phase != ipalloc.Draining {
		return Wait{}
	}
	if paused := c.pausedBecause(b); paused != "" {
		return Wait{What: "the operator, which changes nothing on the node: " + paused, Action: "end this first: " + paused}
	}
	pods := podsOf(b, users)
	switch b.WaitsFor {
	case "":
		return c.waitForAgent(pods)
	case expand.WaitPods:
		if len(pods) > 0 {
			return Wait{What: "pods " + suggest.Few(pods)}
		}
	case expand.WaitAgent:
		return Wait{What: b.WaitNote, Action: deleteTheNode}
	case expand.WaitRestart:
		settings := &c.Operator.Settings
		return Wait{What: b.WaitNote, Action: fmt.Sprintf(restartAgents, settings.AgentNamespace, settings.AgentSelector), Restart: true}
	case expand.WaitWindow:
		if strings.Contains(b.WaitNote, crd.NeverOpens) {
			return Wait{What: b.WaitNote, Action: openAWindow}
		}
	}
	return Wait{What: b.WaitNote}
}

// waitForAgent is the wait of a block of which the operator reports none, with the pods that use it.
func (c *Cluster) waitForAgent(pods []string) Wait {
	switch c.Objects.Mode {
	case ciliumnode.Kubernetes:
		return Wait{What: "its Node to be deleted", Action: replaceTheOne}
	case ciliumnode.MultiPool:
		return Wait{What: "the agent to give it back"}
	}
	if len(pods) > 0 { // the operator will report them
		return Wait{What: "pods " + suggest.Few(pods)}
	}
	return Wait{What: "the agent's answer"}
}

// podsOf returns the pods, by name, that use addresses of a block.
func podsOf(b crd.Block, users map[netip.Addr]string) []string {
	var pods []string
	for a, user := range users {
		if b.CIDR.Contains(a) && strings.Contains(user, "/") {
			pods = append(pods, user)
		}
	}
	slices.Sort(pods)
	return slices.Compact(pods)
}

// pausedBecause returns why nothing may change on a block's node; "": it may.
func (c *Cluster) pausedBecause(b crd.Block) string {
	node := c.Nodes[b.Node]
	if node == nil {
		return ""
	}
	return c.PausedBecause(node, c.Pools.Match(labels.Set(node.Labels)))
}
