package node

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/pkg/suggest"
)

// phaseMessage explains the phase that a block enters.
func (o *observation) phaseMessage(b crd.Block, phase ipalloc.Phase, reason expand.Reason) string {
	switch {
	case phase == ipalloc.InService && b.Phase == ipalloc.Draining && b.Reason == expand.Compaction:
		return "the node needs it again, or its agent has restarted: the block is in service again"
	case phase == ipalloc.InService && (b.Undone || b.Phase == ipalloc.Draining && b.Reason != expand.Reclaim):
		return "the reason for its drain is gone: the block is in service again"
	case phase == ipalloc.InService:
		return "demand is back: the block is in service again"
	case phase == ipalloc.CoolingDown && reason == expand.NodeGone && o.Node == nil:
		return "the Node is gone; the block cools down, as its machine may still be running"
	case phase == ipalloc.CoolingDown && reason == expand.NodeGone:
		return "the Node runs without Cilium, or with another block since it came back; this one cools down, as its machine may still use it"
	case phase == ipalloc.CoolingDown:
		return "no address of the block is published any more; it cools down before another node can have it"
	}
	return o.drainMessage(b.CIDR, reason)
}

func (o *observation) drainMessage(cidr netip.Prefix, reason expand.Reason) string {
	condition := "it goes once " + o.leaveText(cidr)
	switch reason {
	case expand.Deleted:
		return "the block was deleted; " + condition
	case expand.DrainRequested:
		return "its spec.drain is true; " + condition
	case expand.CIDRDraining:
		return "its range has allocationPolicy Drain or is no longer in the pool; " + condition
	case expand.PoolChanged:
		return "another pool rules the node now, and nothing of the block has been in use; it goes once the agent, when it starts, has agreed"
	case expand.NodeUnselected:
		return "its pool no longer selects the node (spec.unselectedNodes); " + condition
	case expand.PoolDeleted:
		return "its pool was deleted; " + condition
	}
	return "the node has more addresses than it needs; the block goes as its pods go"
}

// obstacleMessage describes what happens to a block while it waits.
func (o *observation) obstacleMessage(b crd.Block, obstacle expand.Obstacle) string {
	if b.Phase == ipalloc.Draining {
		return o.drainMessage(b.CIDR, b.Reason)
	}
	if obstacle.Request == v1alpha1.ConflictOverlap {
		return "an older block has its addresses, so they leave its node"
	}
	return "it must leave its node, and has not begun to"
}

// leaveText says when a block that people want back can go.
func (o *observation) leaveText(cidr netip.Prefix) string {
	unused := "no pod uses an address of it"
	view := o.CiliumNode
	if view == nil {
		return unused
	}
	isOfAgent := slices.ContainsFunc(view.Own, cidr.Contains)
	for addr, owner := range view.Used {
		isOfAgent = isOfAgent || cidr.Contains(addr) && expand.NamesAgent(owner)
	}
	assignment := view.BlockAssignment
	if assignment == nil && isOfAgent {
		return unused + " and the agent on node " + o.Name + ", which has addresses of its own in it, has restarted"
	}
	if assignment == nil || assignment.NodeAgent || assignment.SingleBlock && !view.ListsForDefaultPool(cidr) {
		return unused
	}
	if assignment.SingleBlock || isOfAgent {
		return "the Node is deleted, as its agent keeps the block until then"
	}
	return unused + " and, unless it is parked, the node's other blocks cover what its agent requests"
}

// unreadableText describes the values of the CiliumNode that cannot be read.
func (o *observation) unreadableText() string {
	if o.CiliumNode == nil || len(o.CiliumNode.BadFields) == 0 {
		return ""
	}
	var bad []string
	for _, b := range o.CiliumNode.BadFields {
		bad = append(bad, b.String())
	}
	return "the CiliumNode has values that cannot be read: " + suggest.First(5, bad) +
		". Agents of Cilium v1.20 and later follow no CiliumNode until they are corrected: kubectl edit ciliumnode " + o.Name
}

// obstacleNote describes an obstacle, and its remedy where it does not end by itself. That of a delay
// changes only when a window opens or closes, or the hourly rate is used up: it is written to
// every delayed block. pool may be nil.
func obstacleNote(b crd.Block, pool *crd.Pool, obstacle expand.Obstacle) string {
	switch obstacle.Reason {
	case expand.WaitPods:
		return "pods " + suggest.First(5, obstacle.By)
	case expand.WaitNewPods, expand.WaitRestart, expand.WaitAgent, expand.WaitHandshake, expand.WaitReturn, expand.WaitUnsettled, expand.WaitMode:
		return agentObstacleNote(b, obstacle)
	case expand.WaitReplacement:
		return fmt.Sprintf("a replacement: give a pool of %s free blocks, or raise the limit of its blocks", b.Node)
	case expand.WaitPodAddress:
		return "the addresses of new pods " + suggest.First(5, obstacle.By)
	case expand.WaitNodes:
		if pool != nil {
			return fmt.Sprintf("other nodes: pool %s no longer selects this one, and nodes move off it %d at a time (spec.unselectedNodes.maxConcurrent)", pool.Name, pool.MaxUnselected)
		}
	case expand.WaitTurn:
		if pool != nil {
			return fmt.Sprintf("its turn: %d blocks of pool %s may begin in an hour, and as many have", pool.Maintenance.BlocksPerHour, pool.Name)
		}
	case expand.WaitNoWindow:
		return fmt.Sprintf("a maintenance window of pool %s, and none will ever open: correct spec.maintenance.windows", b.Pool)
	case expand.WaitWindow:
		return fmt.Sprintf("the maintenance window of pool %s that opens at %s", b.Pool, obstacle.Until.UTC().Format(time.RFC3339))
	}
	return string(obstacle.Reason)
}

// agentObstacleNote describes an obstacle that the agent of a block's node is.
func agentObstacleNote(b crd.Block, obstacle expand.Obstacle) string {
	switch obstacle.Reason {
	case expand.WaitNewPods:
		return fmt.Sprintf("pods, also new ones: the agent of %s takes parked blocks back, so drain the Node (kubectl drain)", b.Node)
	case expand.WaitRestart:
		return fmt.Sprintf("a restart of the agent of %s, which has %s there: restart it, and it takes other addresses", b.Node, suggest.First(5, obstacle.By))
	case expand.WaitAgent:
		return fmt.Sprintf("the agent of %s, which keeps %s there as long as the Node exists: drain and delete the Node, or keep the block", b.Node, suggest.First(5, obstacle.By))
	case expand.WaitHandshake:
		return fmt.Sprintf("the agent of %s to agree, and for a moment after that", b.Node)
	case expand.WaitReturn:
		return fmt.Sprintf("the agent of %s to return it", b.Node)
	case expand.WaitUnsettled:
		return fmt.Sprintf("the agent of %s to run steadily", b.Node)
	default:
		return fmt.Sprintf("an agent of %s that is configured for the operator's IPAM mode", b.Node)
	}
}

// familyDisabledText describes the families that pools offer the node and its agent does not run.
func (o *observation) familyDisabledText() string {
	var parts []string
	rest := "one that it holds stays until it is drained"
	if o.CiliumNode != nil && o.CiliumNode.BlockAssignment != nil {
		rest = "the agent returns one that it holds"
	}
	for i := range o.Shares {
		if f := &o.Shares[i]; o.CiliumNode.FamilyDisabled(f.Family) && len(f.Pools) > 0 {
			parts = append(parts, fmt.Sprintf("the agent does not run %s, which pool %s has: no %s block is claimed for this node, and %s",
				f.Family, f.Ruling(), f.Family, rest))
		}
	}
	return suggest.Sentences(parts)
}

// poolNames lists the pools of a node, each with the reason if it assigns no block.
func poolNames(share *state.Share) string {
	if len(share.Pools) == 0 {
		return "none"
	}
	var names []string
	for _, pool := range share.Pools {
		name := pool.Name
		_, assigns := pool.Cut(share.Family)
		switch {
		case pool.Frozen():
			name += ": invalid"
		case pool.Paused:
			name += ": paused"
		case !assigns:
			name += ": no open CIDR"
		}
		names = append(names, name)
	}
	return suggest.First(5, names)
}

// cooldownPools bounds the pools of each family that an event about a shortage describes.
const cooldownPools = 3

// cooldowns describes the full pools that could serve the node's shortage: the number of cooling
// blocks, and the end of their cooldown. The condition of the Node does not say so: each block that
// comes or goes would be a write about every node that starves.
func cooldowns(ledger *state.Ledger, accounts []account) string {
	var text string
	for _, s := range accounts {
		if s.Exhausted == 0 {
			continue
		}
		for _, pool := range s.Pools[:min(len(s.Pools), cooldownPools)] {
			text += fmt.Sprintf(". Pool %s (%s): %s", pool.Name, s.Family, ledger.Cooldowns(pool, s.Family))
		}
	}
	return text
}

// advice is the advice about a shortage, by its reason.
var advice = map[string]string{
	v1alpha1.NodePoolsExhausted: "Add a CIDR to a pool of this node or another pool for it, or move pods away",
	reasonMoves:                 "The condition of the pin says why. Wait until another node has returned the address; if that node is off, delete its Node",
	reasonPaused:                "End the pause, or move pods away",
	reasonLimitReached:          "Raise that limit, or move pods away",
	reasonBlockFull:             "Move pods away; Nodes that need more addresses must join with a pool of larger blocks",
	reasonNoPool: "Widen the nodeSelector of a pool, add a pool, or label the node; where Cilium does not run, set the label " +
		v1alpha1.OptOutLabel + "=true",
	reasonNotServed:     "Add a pool that has it and selects this node, or correct what asks for it: Cilium's settings, or annotations of pods and namespaces",
	reasonWriteFails:    "Let the operator's write pass, or correct the block that is named there",
	reasonRunsWithOther: "Drain the Node, stop its kubelet for a minute, and delete the Node; or, if the podCIDR is no other node's, write it into the Node's annotation",
}
