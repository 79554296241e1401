package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/common"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/event"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/pkg/suggest"
	"github.com/cilium-pool/cilium-pool-operator/pkg/termsafe"
)

// Topics of reports that are sent once about a node.
const (
	topicShortage = "shortage"
	topicLabels   = "labels"
	topicFamily   = "families"
	topicBad      = "bad fields"
	topicShadow   = "shadow"
	topicUnserved = "unserved"
)

// writesOf is the key of reports about the writes of a node; the node follows.
const writesOf = "node/"

// Reporter reports about nodes to users and schedulers: by events, and by a condition
// and a taint of the Node.
type Reporter struct {
	Client   client.Client
	Events   *event.Recorder
	Counters *common.Counters
	Clock    clock.PassiveClock
	// NodeCondition reports a shortage as a condition of the Node.
	NodeCondition bool
	// Cache reads from the informers, Live from the API server.
	Cache, Live client.Reader
	Ledger      *state.Ledger
}

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
	if assignment == nil || assignment.SingleBlock && !view.Lists(cidr) {
		return unused
	}
	if assignment.SingleBlock || isOfAgent {
		return "the Node is deleted, as its agent keeps the block until then"
	}
	return unused + " and, unless it is parked, the node's other blocks cover what its agent requests"
}

// sendBlock reports the fate of a block on the block and on its Node: the block may be gone before
// anybody reads the event.
func (r *Reporter) sendBlock(o *observation, b crd.Block, kind, message string) {
	node := o.Node
	if node == nil { // as the kubelet refers to a Node, and kubectl describe finds it
		node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: o.Name, UID: types.UID(o.Name)}}
	}
	block := &v1alpha1.PodIPBlock{ObjectMeta: metav1.ObjectMeta{Name: b.Name, UID: b.UID}}
	note := fmt.Sprintf("block %s of pool %s on node %s: %s", b.CIDR, b.Pool, o.Name, message)
	r.Events.SendOften(node, block, kind, note)
	r.Events.SendOften(block, node, kind, note)
}

// sendPhase reports that a block has entered a phase.
func (r *Reporter) sendPhase(o *observation, b crd.Block, phase ipalloc.Phase, reason expand.Reason, message string) {
	kind := map[ipalloc.Phase]string{
		ipalloc.InService: event.ReasonBlockBackInService, ipalloc.Draining: event.ReasonBlockDraining, ipalloc.CoolingDown: event.ReasonBlockCoolingDown,
	}[phase]
	if reason != expand.None {
		message = fmt.Sprintf("%s: %s", reason, message)
	}
	r.sendBlock(o, b, kind, message)
}

// sendClaimed reports that a block was claimed for a node, and why.
func (r *Reporter) sendClaimed(o *observation, d *decision, b crd.Block) {
	message := fmt.Sprintf("claimed, as the node wants %d more addresses", d.plan.Claim.Addresses)
	if r.Ledger.Pins.IsPinned(b) {
		message = "claimed, as it is pinned to the node"
	} else if first := d.Ruling(); first != b.Pool {
		message += "; pool " + first + ", which comes first, has no block for it"
	}
	r.sendBlock(o, b, event.ReasonBlockClaimed, message)
}

// longestShortage bounds the text of an event about a shortage, in bytes, so that its advice fits in.
const longestShortage = 700

// sendShortage reports a shortage when its reason changes, or its families and Cilium pools; nil: there is
// none. The event adds the blocks that full pools get back.
func (r *Reporter) sendShortage(node *corev1.Node, lack *shortage, cooldowns func() string) {
	subject := ""
	if lack != nil {
		subject = lack.reason + " " + strings.Join(lack.shares, ", ")
	}
	if !r.Events.Last.Changed(node.Name, topicShortage, subject) || lack == nil {
		return
	}
	kind := event.ReasonPodAddressShortage
	if lack.reason == reasonNoPool {
		kind = event.ReasonNoPoolSelectsNode
	}
	r.Events.Send(node, kind, lack.reason, termsafe.Cut(lack.message+cooldowns(), longestShortage)+". "+advice[lack.reason])
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

// sendObstacle reports an obstacle to a block that does not go by itself.
func (r *Reporter) sendObstacle(node *corev1.Node, b crd.Block, obstacle expand.Obstacle) {
	switch obstacle.Reason {
	case expand.WaitPods, expand.WaitNewPods, expand.WaitRestart, expand.WaitAgent, expand.WaitReplacement:
		r.Events.SendWith(node, &v1alpha1.PodIPBlock{ObjectMeta: metav1.ObjectMeta{Name: b.Name}}, event.ReasonDrainWaits,
			"WaitFor"+string(obstacle.Reason), fmt.Sprintf("block %s waits for %s: %s", b.CIDR, obstacle.Reason, obstacle.Note))
	}
}

// logHolder logs that a node claimed a block, returned it (no address of it is published any
// more), or that the block is freed for other nodes. Log stores answer from these lines who held
// an address (docs/operations.md), so their fields stay as they are.
func logHolder(ctx context.Context, message string, b crd.Block, reason string, keysAndValues ...any) {
	log.FromContext(ctx).Info(message, append([]any{"block", b.CIDR.String(), "node", b.Node, "pool", b.Pool, "reason", reason}, keysAndValues...)...)
}

// logPlan logs a decision and its inputs once, although every reconcile repeats it for a node with
// conflicting writes or without addresses to get.
func (r *Reporter) logPlan(ctx context.Context, share *state.Share, p expand.Plan) {
	line := ""
	if !p.Empty() {
		line = p.String()
	}
	level := 0
	if !r.Events.Last.Changed(p.Node, planTopics[share.Family]+share.CiliumPool, line) {
		level = 1
	}
	if line == "" {
		return
	}
	keysAndValues := []any{"family", p.Family.String()}
	if share.CiliumPool != "" {
		keysAndValues = append(keysAndValues, "ciliumPool", share.CiliumPool)
	}
	log.FromContext(ctx).V(level).Info("decided", append(keysAndValues, "needs", p.Demand, "has", p.Capacity, "plan", line)...)
}

// planTopics are the topics of plans for the default pool; the name of another one follows.
var planTopics = [2]string{ipalloc.IPv4: "plan ipv4 ", ipalloc.IPv6: "plan ipv6 "}

// setNodeCondition writes the condition when it first becomes true and when it changes, its
// figures included; a Node without any shortage so far has none.
func (r *Reporter) setNodeCondition(ctx context.Context, node *corev1.Node, lack *shortage) error {
	want := corev1.NodeCondition{Type: v1alpha1.NodeAddressShortage, Status: corev1.ConditionFalse, Reason: reasonEnough,
		Message: "every pod of this node can have an address"}
	if lack != nil && lack.podsWait {
		want.Status = corev1.ConditionTrue
		want.Reason = lack.reason
		want.Message = lack.message
	}
	now := metav1.NewTime(r.Clock.Now())
	want.LastTransitionTime = now
	want.LastHeartbeatTime = now
	i := slices.IndexFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == v1alpha1.NodeAddressShortage })
	if i < 0 && want.Status == corev1.ConditionFalse {
		return nil
	}
	if i >= 0 && node.Status.Conditions[i].Status == want.Status {
		current := &node.Status.Conditions[i]
		// The text of a failure may differ each time, and a write would bring the Node back here at once.
		if current.Reason == want.Reason && (current.Message == want.Message || want.Reason == reasonWriteFails) {
			return nil
		}
		want.LastTransitionTime = current.LastTransitionTime
	}
	_, err := r.patchNodeStatus(ctx, node.Name, "condition", types.StrategicMergePatchType, map[string]any{
		"status": map[string]any{"conditions": []corev1.NodeCondition{want}},
	})
	return err
}

// reportLabelsWait reports once that a node waits for its labels, or that it did for too long,
// and logs when the wait is over.
func (r *Reporter) reportLabelsWait(ctx context.Context, o *observation) {
	if o.Node == nil {
		return
	}
	awaits := ""
	if o.Standing.Kind == state.AwaitsLabels {
		awaits = o.Standing.Cause
	}
	overdue := o.Standing.Overdue
	switch {
	case !r.Events.Last.Changed(o.Name, topicLabels, cmp.Or(awaits, overdue)):
		return
	case overdue != "":
		r.Events.Send(o.Node, event.ReasonLabelsOverdue, event.Reconcile, overdue)
	case awaits != "":
		r.Events.Send(o.Node, event.ReasonWaitsForLabels, event.Reconcile, awaits)
		log.FromContext(ctx).Info("the node waits for its first block", "reason", awaits)
	default:
		log.FromContext(ctx).Info("the node no longer waits for its first block")
	}
}

// reportWrites reports on the object concerned that the API server refuses a write of a reconcile or
// that the reconcile makes no progress, and when that ends; err is its error.
func (r *Reporter) reportWrites(ctx context.Context, node string, err error) {
	r.Events.ReportResult(writesOf+node, err, func(refused *common.Refusal) runtime.Object {
		return r.concerned(ctx, node, refused)
	})
}

// concerned is the object that people look at: the block to be written, or the Node, also for its
// CiliumNode and for a block to be created.
func (r *Reporter) concerned(ctx context.Context, node string, refused *common.Refusal) runtime.Object {
	blocks := r.Ledger.NodeBlocks(node)
	if i := slices.IndexFunc(blocks, func(b crd.Block) bool {
		return refused != nil && refused.Kind == "PodIPBlock" && b.Name == refused.Name
	}); i >= 0 {
		return &v1alpha1.PodIPBlock{ObjectMeta: metav1.ObjectMeta{Name: blocks[i].Name, UID: blocks[i].UID}}
	}
	obj := &corev1.Node{}
	if err := r.Cache.Get(ctx, types.NamespacedName{Name: node}, obj); err != nil {
		obj.Name = node // an event by its name is better than none
	}
	return obj
}

// setShortage writes the condition of the Node, puts the shortage taint on it while its pods cannot
// get an address, and takes it off afterwards. A Node that registered with the taint keeps it until
// it is served: autoscalers take a node without its startup taint for a complete one.
func (r *Reconciler) setShortage(ctx context.Context, o *observation, decisions []decision, accounts []account, lack *shortage) (err error) {
	if r.Cluster.Paused { // a pause promises no write about nodes
		return nil
	}
	if r.Reporter.NodeCondition {
		err = r.Reporter.setNodeCondition(ctx, o.Node, lack)
	}
	short := lack != nil && lack.podsWait && !lack.someOnly
	if r.Cluster.ShortageTaint == "" || !short && !r.Cluster.OptedOut(o.Node) && !o.servesPods(r.OfferFamilies, decisions, accounts) {
		return err
	}
	return errors.Join(err, r.Reporter.setNodeTaint(ctx, o.Node, r.Cluster.ShortageTaint, short && !r.SetsNoTaint))
}

// servesPods reports whether the node has all addresses that it gets for now: of its first block,
// and for unscheduled pods. Where Nodes offer addresses, they count once they are offered. Another
// IPAM serves its nodes by itself.
func (o *observation) servesPods(families []ipalloc.Family, decisions []decision, accounts []account) bool {
	if o.Standing.Kind == state.OtherIPAM {
		return true
	}
	if o.CiliumNode == nil || len(o.Shares) == 0 {
		return false
	}
	for i := range accounts {
		s := &accounts[i]
		grows := len(s.plan.Publish)+len(s.plan.Assign) > 0 || s.plan.Claim.Blocks > 0 && s.Exhausted == 0 // by this plan
		if !s.State.FamilyDisabled && (grows || s.CiliumPool == "" && !o.provides(families, decisions, s.Family)) {
			return false
		}
	}
	return true
}

// provides reports whether the node has addresses of a family for pods.
func (o *observation) provides(families []ipalloc.Family, decisions []decision, f ipalloc.Family) bool {
	if slices.Contains(families, f) {
		n, known := o.offerOf(families, decisions, f, "")
		last := o.memory.lastOffer(o.Node)
		// An offer that was written in this reconcile has changed the Node.
		return known && n > 0 && n == last.allocatable.Of("")[f] && last.version == o.Node.ResourceVersion
	}
	return slices.ContainsFunc(o.CiliumNode.Named(), func(p netip.Prefix) bool { return ipalloc.FamilyOf(p.Addr()) == f })
}

// setNodeTaint keeps pods off a Node without addresses for them, by a taint of this key.
func (r *Reporter) setNodeTaint(ctx context.Context, node *corev1.Node, key string, short bool) error {
	isOurs := func(t corev1.Taint) bool { return t.Key == key }
	if slices.ContainsFunc(node.Spec.Taints, isOurs) == short {
		return nil
	}
	changed := node.DeepCopy()
	changed.Spec.Taints = slices.DeleteFunc(changed.Spec.Taints, isOurs)
	if short {
		changed.Spec.Taints = append(changed.Spec.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule})
	}
	patch := client.MergeFromWithOptions(node, client.MergeFromWithOptimisticLock{})
	if err := r.Counters.CountWrite("Node", node.Name, "taint", client.IgnoreNotFound(r.Client.Patch(ctx, changed, patch))); err != nil {
		return fmt.Errorf("tainting Node %s: %w", node.Name, err)
	}
	return nil
}
