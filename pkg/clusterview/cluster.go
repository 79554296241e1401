// Package clusterview is one reading of a cluster in the operator's own terms, and the operator's
// decisions on it.
package clusterview

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/clusterread"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/scheduling"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/pkg/suggest"
)

// Cluster is a snapshot in the operator's own terms.
type Cluster struct {
	Now time.Time
	// Objects are the objects read.
	Objects *clusterread.Objects
	// Client reads and writes in that cluster.
	Client client.Client
	// Operator is the operator's mode and settings, as the cluster shows them.
	Operator clusterread.Operator

	// State is what the operator knows of the cluster.
	State state.Cluster
	// Nodes and PodIPPools are by name.
	Nodes      map[string]*corev1.Node
	PodIPPools map[string]*v1alpha1.PodIPPool
	// runsWith are the podCIDRs that agents run with, by node, in kubernetes mode.
	runsWith map[string][]netip.Prefix
	// Hypothetical: the pools differ from the cluster's.
	Hypothetical bool
}

// New derives a cluster from the objects of one snapshot.
func New(s *clusterread.Objects, operator clusterread.Operator) *Cluster {
	settings := &operator.Settings
	c := &Cluster{
		Now: s.Time, Objects: s, Operator: operator,
		Nodes: map[string]*corev1.Node{}, PodIPPools: map[string]*v1alpha1.PodIPPool{}, runsWith: map[string][]netip.Prefix{},
	}
	for i := range s.Pools {
		c.PodIPPools[s.Pools[i].Name] = &s.Pools[i]
	}
	for i := range s.Nodes {
		c.Nodes[s.Nodes[i].Name] = &s.Nodes[i]
	}
	var views []*ciliumnode.View
	for _, cn := range s.CiliumNodes {
		view := cn.View
		if cn.BlockAssignment != nil {
			c.runsWith[cn.Name] = cn.BlockAssignment.ActiveCIDRs
		}
		if s.Mode == ciliumnode.Kubernetes { // the operator's has no report of the agent
			view = s.Mode.View(c.Nodes[cn.Name])
			if operator.Observe {
				view.Own = cn.Own
			}
		}
		views = append(views, view)
	}
	c.State = *s.State(*settings, views)
	c.State.Recovery = operator.Recovery
	pressure := state.NewPressure()
	for _, name := range c.State.Pools.Names() {
		pool := c.State.Pools.Get(name)
		state.Press(pressure, pool, state.FamiliesOf(c.State.Ledger, pool))
	}
	c.State.TakenPercent = pressure.TakenPercent
	if len(settings.OfferFamilies) > 0 {
		c.State.Unscheduled = scheduling.NewUnscheduled()
	}
	return c
}

// CannotRead reports whether a kind, in the plural, may not be read.
func (c *Cluster) CannotRead(kind string) bool { return slices.Contains(c.Objects.Unread, kind) }

// AllocationObject returns the kind of the objects that assign blocks to agents.
func (c *Cluster) AllocationObject() string {
	kind, _ := c.Objects.Mode.Resource()
	return kind.Kind
}

// NodeNames returns the names of all Nodes and CiliumNodes, and of all nodes in blocks.
func (c *Cluster) NodeNames() []string {
	names := map[string]bool{}
	for name := range c.Nodes {
		names[name] = true
	}
	for _, cn := range c.Objects.CiliumNodes {
		names[cn.Name] = true
	}
	for _, name := range c.State.Ledger.Nodes() {
		names[name] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// Blocks returns all blocks, sorted by address.
func (c *Cluster) Blocks() []crd.Block {
	var blocks []crd.Block
	for _, node := range c.State.Ledger.Nodes() {
		blocks = append(blocks, c.State.Ledger.NodeBlocks(node)...)
	}
	slices.SortFunc(blocks, func(a, b crd.Block) int { return a.CIDR.Compare(b.CIDR) })
	return blocks
}

// Users returns the addresses of a node in use, and by whom, from the agent's report, pods'
// statuses and the agent's own addresses.
func (c *Cluster) Users(node string) map[netip.Addr]string {
	users := map[netip.Addr]string{}
	if v := c.State.Ledger.CiliumNode(node); v != nil {
		for _, a := range v.Own {
			users[a] = "the agent"
		}
		for a, user := range v.Used {
			users[a] = strings.TrimSuffix(user, " [restored]")
		}
	}
	for _, p := range c.State.Pods.On(node) {
		for _, a := range p.IPs {
			users[a] = p.Name
		}
	}
	return users
}

// UsableCount returns the number of addresses of a block that pods can have.
func (c *Cluster) UsableCount(b crd.Block) int {
	view := c.State.Ledger.CiliumNode(b.Node)
	if view != nil && view.BlockAssignment != nil {
		return view.Of(view.ListedFor(b.CIDR)).BlockAssignment.Count(b.CIDR)
	}
	if view != nil && c.Operator.Observe { // its writer may leave some out
		return len(view.PublishedIn(b.CIDR))
	}
	if pool := c.State.Pools.Get(b.Pool); pool != nil && !pool.Frozen() {
		return pool.UsableCount(b.CIDR)
	}
	return 0
}

// PodStarts returns since when each pod runs, by namespace/name.
func (c *Cluster) PodStarts() map[string]time.Time {
	starts := map[string]time.Time{}
	for i := range c.Objects.Pods {
		pod := &c.Objects.Pods[i]
		starts[pod.Namespace+"/"+pod.Name] = ptr.Deref(pod.Status.StartTime, pod.CreationTimestamp).Time
	}
	return starts
}

// DeleteBlock deletes a block, and its finalizer keeps it: from then on the operator publishes none
// of its addresses. A block that was recreated in the meantime is left alone.
func (c *Cluster) DeleteBlock(ctx context.Context, b crd.Block) error {
	obj := &v1alpha1.PodIPBlock{ObjectMeta: metav1.ObjectMeta{Name: b.Name}}
	preconditions := client.Preconditions{UID: &b.UID}
	err := c.Client.Delete(ctx, obj, preconditions)
	if apierrors.IsForbidden(err) { // by the chart's policy
		allowed := fmt.Sprintf(`{"metadata":{"uid":%q,"annotations":{%q:"true"}}}`, b.UID, v1alpha1.AllowDeleteAnnotation)
		if err = c.PatchBlock(ctx, b, allowed); err == nil {
			err = c.Client.Delete(ctx, obj, preconditions)
		}
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting block %s: %w", b.Name, err)
	}
	return nil
}

// PatchBlock applies a merge patch to a block.
func (c *Cluster) PatchBlock(ctx context.Context, b crd.Block, patch string) error {
	obj := &v1alpha1.PodIPBlock{ObjectMeta: metav1.ObjectMeta{Name: b.Name}}
	if err := c.Client.Patch(ctx, obj, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		return fmt.Errorf("patching block %s: %w", b.Name, err)
	}
	return nil
}

// CountIn returns the number of addresses in users that lie in cidr.
func CountIn(cidr netip.Prefix, users map[netip.Addr]string) int {
	n := 0
	for a := range users {
		if cidr.Contains(a) {
			n++
		}
	}
	return n
}

// CheckNode fails for a name that belongs to no node.
func (c *Cluster) CheckNode(name string) error {
	if c.Nodes[name] == nil && c.State.Ledger.CiliumNode(name) == nil && len(c.State.Ledger.NodeBlocks(name)) == 0 {
		return fmt.Errorf("there is neither a Node nor a CiliumNode %s, and it holds no block%s", name, suggest.DidYouMean(name, c.NodeNames()))
	}
	return nil
}

// Decision is the operator's decision for one family of a node on this snapshot, without its
// memory.
type Decision struct {
	state.Share
	Plan   expand.Plan
	Memory expand.Memory
	// At is the time of the plan.
	At time.Time
}

// Decide collects the state of a node and calls expand.Decide. It omits families without a meaning
// for the node.
func (c *Cluster) Decide(name string) []Decision {
	snapshot := c.State.Snapshot(name, c.Nodes[name], c.Now)
	var out []Decision
	for _, share := range snapshot.Shares {
		s := &share.State
		s.Gone = snapshot.Node == nil && snapshot.CiliumNode == nil
		c.delayAsReported(s)
		if w := s.BlockAssignment; w != nil && len(w.Assigned) == 0 && len(snapshot.Blocks) > 0 { // as the operator reads it
			w.ActiveCIDRs = c.RunsWith(name, share.Family)
		}
		d := Decision{Share: share, At: c.Now}
		d.Plan, d.Memory = expand.Decide(c.Now, d.Policy, d.State, expand.Budget{}, expand.Memory{})
		out = append(out, d)
	}
	return out
}

// RunsWith returns the podCIDRs of a family that a node's agent runs with, in kubernetes mode.
// Its Node need not name them.
func (c *Cluster) RunsWith(node string, f ipalloc.Family) []netip.Prefix {
	return slices.DeleteFunc(slices.Clone(c.runsWith[node]), func(p netip.Prefix) bool { return ipalloc.FamilyOf(p.Addr()) != f })
}

// delayAsReported delays blocks as the operator reports it in their statuses: it alone knows turns, and the
// windows of its flags.
func (c *Cluster) delayAsReported(s *expand.State) {
	for i := range s.Blocks {
		b := &s.Blocks[i]
		if reported, ok := c.State.Ledger.Block(b.CIDR); ok && reported.Obstacle.Reason.IsDelay() && state.MayWait(b) && b.Delay.Reason == "" && !c.Hypothetical {
			b.Delay.Reason = reported.Obstacle.Reason
		}
	}
}

// Advice names the obstacle to a leaving block in words for users. Action is the step for them if it does
// not end on its own. Restart: that is a restart of the node's agent.
type Advice struct {
	Obstacle, Action string
	Restart          bool
}

// User actions for obstacles that do not end on their own.
const (
	deleteTheNode = "drain the Node and delete it, or leave the block where it is. Restarting the agent does not move its own addresses"
	restartAgents = "restart the agent, which then takes other addresses and completes the drain: kubectl -n %[1]s delete pod -l %[2]s --field-selector spec.nodeName=NODE, or of all nodes: kubectl -n %[1]s rollout restart daemonset/cilium"
	replaceTheOne = "drain the Node and delete it: in this mode a node keeps its block as long as its Node exists"
	openAWindow   = "no maintenance window of the pool will ever open: correct spec.maintenance.windows, or give --now"
)

// Advise returns the advice on a block that leaves, or must: as the operator reports the obstacle in
// its status, with the pods of now. users are those of its node.
func (c *Cluster) Advise(b crd.Block, users map[netip.Addr]string) Advice {
	if b.Obstacle.Reason == "" && b.Phase != ipalloc.Draining {
		return Advice{}
	}
	if c.Objects.Leader.Missing() != "" {
		return Advice{Obstacle: "an operator that leads"}
	}
	if paused := c.pauseOfBlock(b); paused != "" {
		return Advice{Obstacle: "the operator, which changes nothing on the node: " + paused, Action: "end this first: " + paused}
	}
	pods := podsOf(b, users)
	switch b.Obstacle.Reason {
	case "", expand.WaitHandshake, expand.WaitReturn:
		return c.adviseOnAgent(pods)
	case expand.WaitPods:
		if len(pods) > 0 {
			return Advice{Obstacle: "pods " + suggest.Few(pods)}
		}
	case expand.WaitAgent:
		return Advice{Obstacle: b.Obstacle.Note, Action: deleteTheNode}
	case expand.WaitRestart:
		settings := &c.Operator.Settings
		return Advice{Obstacle: b.Obstacle.Note, Action: fmt.Sprintf(restartAgents, settings.AgentNamespace, settings.AgentSelector), Restart: true}
	case expand.WaitNoWindow:
		return Advice{Obstacle: b.Obstacle.Note, Action: openAWindow}
	}
	return Advice{Obstacle: b.Obstacle.Note}
}

// adviseOnAgent returns the advice on a block that waits for its agent only, as far as the operator
// reports. pods use it.
func (c *Cluster) adviseOnAgent(pods []string) Advice {
	switch c.Objects.Mode {
	case ciliumnode.Kubernetes:
		return Advice{Obstacle: "its Node to be deleted", Action: replaceTheOne}
	case ciliumnode.MultiPool:
		return Advice{Obstacle: "the agent to give it back"}
	case ciliumnode.DelegatedPlugin:
		if len(pods) == 0 {
			return Advice{Obstacle: "the node agent to give it back"}
		}
	}
	if len(pods) > 0 { // the operator will report them
		return Advice{Obstacle: "pods " + suggest.Few(pods)}
	}
	return Advice{Obstacle: "the agent's answer"}
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

// pauseOfBlock returns why nothing may change on a block's node; "": it may.
func (c *Cluster) pauseOfBlock(b crd.Block) string {
	node := c.Nodes[b.Node]
	if node == nil {
		return ""
	}
	return c.State.PausedBecause(node, c.State.Pools.Match(labels.Set(node.Labels)))
}

// IsLost reports whether the kubelet of a Node has ceased to report.
func IsLost(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionUnknown
	})
}
