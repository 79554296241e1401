package node

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/config"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/common"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/event"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
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

// sendBlock reports the fate of a block on its Node: the block may be gone before anybody reads the
// event, and its status tells the same.
func (r *Reporter) sendBlock(o *observation, b crd.Block, kind, message string) {
	node := o.Node
	if node == nil { // as the kubelet refers to a Node, and kubectl describe finds it
		node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: o.Name, UID: types.UID(o.Name)}}
	}
	block := &v1alpha1.PodIPBlock{ObjectMeta: metav1.ObjectMeta{Name: b.Name, UID: b.UID}}
	note := fmt.Sprintf("block %s of pool %s on node %s: %s", b.CIDR, b.Pool, o.Name, message)
	r.Events.SendOften(node, block, kind, note)
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
// none. The event adds the blocks that full pools get back. An earlier process has reported what the condition says, and
// full pools report by themselves that pods of Nodes with the condition wait.
func (r *Reporter) sendShortage(node *corev1.Node, lack *shortage, cooldowns func() string) {
	subject := ""
	if lack != nil {
		subject = lack.reason + " " + strings.Join(lack.shares, ", ")
	}
	isFirst := r.Events.Last.Text(node.Name, topicShortage) == ""
	if !r.Events.Last.Changed(node.Name, topicShortage, subject) || lack == nil {
		return
	}
	said := shortageCondition(node)
	if isFirst && said != nil && said.Status == corev1.ConditionTrue && said.Reason == lack.reason || r.NodeCondition && lack.ofPools {
		return
	}
	kind := event.ReasonPodAddressShortage
	if lack.reason == reasonNoPool {
		kind = event.ReasonNoPoolSelectsNode
	}
	r.Events.Send(node, kind, lack.reason, termsafe.Cut(lack.message+cooldowns(), longestShortage)+". "+advice[lack.reason])
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
// more), or that the block is freed for other nodes.
func logHolder(ctx context.Context, message string, b crd.Block, reason string) {
	line := config.HolderLine{
		Message: message, Block: b.CIDR, Node: b.Node, Pool: b.Pool, Reason: reason, Since: b.Created, Until: b.Since, Owner: crd.OwnerOfPool(b.CiliumPool),
	}
	log.FromContext(ctx).Info(message, line.KeysAndValues()...)
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

// setNodeCondition writes the condition when its status or reason changes, and another message alone once a minute at
// most: every kubelet that watches the Node receives it. It returns the time of the next write; zero: none is due. A
// Node without any shortage so far has no condition.
func (r *Reporter) setNodeCondition(ctx context.Context, node *corev1.Node, lack *shortage) (due time.Time, err error) {
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
	current := shortageCondition(node)
	if current == nil && want.Status == corev1.ConditionFalse {
		return time.Time{}, nil
	}
	if current != nil && current.Status == want.Status {
		if current.Reason == want.Reason {
			// The text of a failure may differ each time.
			if current.Message == want.Message || want.Reason == reasonWriteFails {
				return time.Time{}, nil
			}
			if written := current.LastHeartbeatTime; !written.After(now.Time) && now.Sub(written.Time) < common.RewordEvery {
				return written.Add(common.RewordEvery), nil
			}
		}
		want.LastTransitionTime = current.LastTransitionTime
	}
	_, err = r.patchNodeStatus(ctx, node.Name, "condition", types.StrategicMergePatchType, map[string]any{
		"status": map[string]any{"conditions": []corev1.NodeCondition{want}},
	})
	return time.Time{}, err
}

// shortageCondition returns the condition of a Node; nil: it has none.
func shortageCondition(node *corev1.Node) *corev1.NodeCondition {
	i := slices.IndexFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == v1alpha1.NodeAddressShortage })
	if i < 0 {
		return nil
	}
	return &node.Status.Conditions[i]
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

// maxNotified bounds the pods of a node that get an event about one unserved Cilium pool. Pods of one
// workload have the same fault.
const maxNotified = 10

// sendUnservedPods reports to pods, once each, that no PodIPPool serves the Cilium pool that they
// ask for on their node. A pod that the limit of events leaves out is told by a later reconcile.
func (r *Reporter) sendUnservedPods(o *observation) {
	pods := o.UnservedPods()
	earlier := strings.Fields(r.Events.Last.Text(o.Name, topicUnserved))
	var notified []string
	for _, u := range o.Unserved {
		isNew := func(name string) bool { return !slices.Contains(earlier, string(pods[name].UID)) }
		names := slices.DeleteFunc(slices.Clone(u.Pods), isNew)
		names = append(names, slices.DeleteFunc(slices.Clone(u.Pods), func(name string) bool { return !isNew(name) })...)
		for _, name := range names[:min(maxNotified, len(names))] {
			namespace, pod, _ := strings.Cut(name, "/")
			obj := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: pod, UID: pods[name].UID}}
			if !isNew(name) || slices.Contains(notified, string(obj.UID)) ||
				r.Events.SendOften(obj, o.Node, event.ReasonCiliumPoolNotServed, pods[name].Message) {
				notified = append(notified, string(obj.UID))
			}
		}
	}
	r.Events.Last.Changed(o.Name, topicUnserved, strings.Join(notified, " "))
}

// writeOffer changes capacity and allocatable together: kubelets derive the one from the
// other. The Node must not have changed since version. It returns the Node as written.
func (r *Reporter) writeOffer(ctx context.Context, node, version string, change map[string]any) (*corev1.Node, error) {
	return r.patchNodeStatus(ctx, node, "offer", types.MergePatchType, map[string]any{
		"metadata": map[string]any{"resourceVersion": version},
		"status":   map[string]any{"capacity": change, "allocatable": change},
	})
}

// patchNodeStatus patches the status of a Node, which may be gone, and returns the Node as written.
func (r *Reporter) patchNodeStatus(ctx context.Context, node, operation string, kind types.PatchType, patch map[string]any) (*corev1.Node, error) {
	body, err := json.Marshal(patch)
	if err != nil {
		return nil, err
	}
	patched := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
	err = r.Client.Status().Patch(ctx, patched, client.RawPatch(kind, body))
	if err := r.Counters.CountWrite("Node", node, operation, client.IgnoreNotFound(err)); err != nil {
		return nil, fmt.Errorf("writing the %s of Node %s: %w", operation, node, err)
	}
	return patched, nil
}
