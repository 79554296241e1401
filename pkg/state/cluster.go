// Package state holds everything known about the cluster: blocks, CiliumNodes,
// pools, pods and agents, as watches or lists show them, and this process's own
// writes that no watch has shown yet. The operator, the kubectl plugin
// and the audit derive the input of expand.Decide from it with the same code.
//
// It never calls the API server, keeps no clock, and makes no decision.
package state

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumconfig"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/suggest"
)

// Cluster is everything known about the cluster, plus the operator settings that determine how to
// read it. Its methods derive the input of expand.Decide, however the objects were read, and do not
// change it.
type Cluster struct {
	Ledger *Ledger
	Pools  *Pools
	Pods   *Pods
	Agents *Agents
	// Waiting are the pods without an address, whole, by node. A running operator has none: its
	// watch leaves out their tolerations, and it reads them when it needs them.
	Waiting map[string][]corev1.Pod
	// CiliumPools select pods for Cilium pools by label; nil: no labels do.
	CiliumPools *CiliumPools
	// Unscheduled are the pods that no node has addresses for (pkg/scheduling); nil: Nodes offer no
	// addresses to the scheduler.
	Unscheduled Unscheduled
	// Awaiting tracks nodes short of addresses; nil if they are never woken.
	Awaiting *Awaiting
	// TakenPercent returns the percentage of a pool's blocks of a family that are taken; nil: not
	// known.
	TakenPercent func(pool string, f ipalloc.Family) int
	// Cilium is how agents are configured. They must run in Mode, unless AnyMode is set.
	Cilium  *ciliumconfig.Latest
	Mode    ciliumnode.Mode
	AnyMode bool
	// Defaults apply where a pool sets no value, or if there is no pool.
	Defaults crd.Defaults
	// ParkBlocks: draining blocks are parked where agents are assigned whole blocks.
	ParkBlocks bool
	// CompactBlocks: so are blocks in use that their node can do without.
	CompactBlocks bool
	// Paused stops all writes about nodes and blocks.
	Paused bool
	// Recovery holds back changes after a restore of etcd; nil: never.
	Recovery *Recovery
	// IgnoreTaints are keys of taints that mark Nodes without Cilium.
	IgnoreTaints map[string]bool
	// StartupTaints are keys of taints of Nodes with labels that are not final.
	StartupTaints map[string]bool
	// ShortageTaint is the key of the taint for Nodes that lack addresses for their pods; "": none.
	ShortageTaint string
}

// Unscheduled describes a node's share for pods that no node has addresses for, and for nodes
// without a block.
type Unscheduled interface {
	// CiliumPools returns the Cilium pools that these pods request.
	CiliumPools() []string
	// Needs returns the number of addresses of a Cilium pool and family that the node should have
	// room for, if its bound pods request that many now, and the blocks that it should return.
	Needs(node, ciliumPool string, f ipalloc.Family, requested int) (expected int, recall []netip.Prefix)
	// IsScarce reports whether they wait for blocks of every one of these pools.
	IsScarce(f ipalloc.Family, pools []*crd.Pool) bool
	// SetWithoutBlock records whether a node waits for the first block of a family.
	SetWithoutBlock(node string, waits bool)
}

// Policy returns the rules for one family of a node, which may be nil, for one Cilium pool: the
// pools to claim from, best first, the policy, and the reason against any change ("" if there is
// none).
func (c *Cluster) Policy(node *corev1.Node, f ipalloc.Family, ciliumPool string) (pools []*crd.Pool, policy expand.Policy, paused string) {
	return c.policy(node, f, ciliumPool, c.servedFor(c.poolsFor(node), ciliumPool))
}

// policy is Policy with the pools for the node that serve the Cilium pool.
func (c *Cluster) policy(node *corev1.Node, f ipalloc.Family, ciliumPool string, served []*crd.Pool) (pools []*crd.Pool, policy expand.Policy, paused string) {
	if node != nil && !c.OptedOut(node) {
		pools = crd.ForFamily(served, f, ciliumPool)
	}
	if len(pools) > 0 {
		policy = pools[0].Policy
	} else {
		policy = c.Defaults.Policy
		policy.ReclaimDisabled = true // no pool defines the node's needs
	}
	return pools, policy, c.PausedBecause(node, pools)
}

// Cooldown returns the time that a block cools down: its pool's cooldown or the default one, and
// longer if its node is gone.
func (c *Cluster) Cooldown(b crd.Block) time.Duration {
	pool := c.Pools.Get(b.Pool)
	if pool == nil && b.Reason == expand.NodeGone {
		return c.Defaults.NodeGoneCooldown
	}
	if pool == nil {
		return c.Defaults.Cooldown
	}
	return cooldownIn(pool, b)
}

// PausedBecause returns why nothing may change on a node that pools serve, the ruling one first;
// "": it may.
func (c *Cluster) PausedBecause(node *corev1.Node, pools []*crd.Pool) string {
	if c.Paused {
		return "the operator is paused (--paused)"
	}
	if c.Recovery.Active() {
		return c.Recovery.because()
	}
	if node != nil && node.Annotations[v1alpha1.PausedAnnotation] == "true" {
		return "the Node is paused (annotation " + v1alpha1.PausedAnnotation + ")"
	}
	if len(pools) > 0 && pools[0].Paused {
		return "pool " + pools[0].Name + " is paused (spec.paused)"
	}
	return ""
}

// OptedOut reports whether the Node is labeled or tainted as running without Cilium, or has
// another operating system than Cilium's DaemonSet selects.
func (c *Cluster) OptedOut(node *corev1.Node) bool {
	if os := node.Labels[corev1.LabelOSStable]; node.Labels[v1alpha1.OptOutLabel] == "true" || os != "" && os != "linux" {
		return true
	}
	for _, taint := range node.Spec.Taints {
		if c.IgnoreTaints[taint.Key] {
			return true
		}
	}
	return false
}

// Unselected reports whether Cilium runs on a Node, which may be nil, but no PodIPPool
// selects it: the Node gets no block.
func (c *Cluster) Unselected(node *corev1.Node) bool {
	return node != nil && !c.OptedOut(node) && len(c.Pools.Match(labels.Set(node.Labels))) == 0
}

// PoolOf returns the pool of a block, or nil.
func (c *Cluster) PoolOf(cidr netip.Prefix) *crd.Pool {
	b, ok := c.Ledger.Block(cidr)
	if !ok {
		return nil
	}
	return c.Pools.Get(b.Pool)
}

// SetOf returns keys as a set.
func SetOf(keys []string) map[string]bool {
	set := make(map[string]bool, len(keys))
	for _, k := range keys {
		set[k] = true
	}
	return set
}

// ContainsAddr reports whether one of the prefixes contains the address.
func ContainsAddr(prefixes []netip.Prefix, addr netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// modeWait is when to look again whether agents are configured for the operator's mode.
const modeWait = time.Minute

// otherMode returns the IPAM mode that the agent of a node starts in next, if it would not find the
// node's blocks there; "": it would. A node that moves from or to another mode is listed for both,
// was adopted from that mode, or is paused meanwhile.
func (c *Cluster) otherMode(node *corev1.Node, blocks []crd.Block, view *ciliumnode.View) string {
	if c.AnyMode || node == nil {
		return ""
	}
	next := c.Cilium.Get().Mode(node.Labels)
	if next == "" || next == c.Mode.String() || c.OptedOut(node) || node.Annotations[v1alpha1.PausedAnnotation] == "true" {
		return ""
	}
	listed := view.CIDRsAgentReads(ciliumnode.Mode(next))
	if len(blocks) == 0 || len(ipalloc.Uncovered(crd.CIDRs(blocks), listed)) == 0 {
		return ""
	}
	if slices.ContainsFunc(blocks, func(b crd.Block) bool { return b.AdoptedFrom == next }) {
		return ""
	}
	return next
}

// NodesInMode are the nodes with agents that start next in a mode without their blocks.
type NodesInMode struct {
	Mode  string
	Nodes []string // sorted
}

// OtherModes groups nodes by the other mode that their agents start in next, sorted, and counts them.
func (c *Cluster) OtherModes(nodes []corev1.Node) (groups []NodesInMode, n int) {
	byMode := map[string][]string{}
	for i := range nodes {
		name := nodes[i].Name
		if mode := c.otherMode(&nodes[i], c.Ledger.NodeBlocks(name), c.Ledger.CiliumNode(name)); mode != "" {
			byMode[mode] = append(byMode[mode], name)
			n++
		}
	}
	for _, mode := range slices.Sorted(maps.Keys(byMode)) {
		slices.Sort(byMode[mode])
		groups = append(groups, NodesInMode{mode, byMode[mode]})
	}
	return groups, n
}

// Describe returns the consequences for the nodes, for users.
func (o NodesInMode) Describe(operator ciliumnode.Mode) string {
	return fmt.Sprintf("agents of %s start next in ipam mode %s, and the operator assigns blocks in mode %s: their pods would lose their network", suggest.First(5, o.Nodes), o.Mode, operator)
}

// modeDelay delays reclaims and drains of a node with an agent that starts next in another mode.
func modeDelay(now time.Time) expand.Obstacle {
	return expand.Obstacle{Reason: expand.WaitMode, Until: now.Add(modeWait)}
}
