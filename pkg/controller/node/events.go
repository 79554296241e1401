package node

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/event"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// Topics of what is reported about a node once.
const (
	topicShortage = "shortage"
	topicWaits    = "drains"
	topicLabels   = "labels"
	topicFamily   = "families"
	topicShadow   = "shadow"
)

func phaseMessage(phase ipalloc.Phase, reason expand.Reason) string {
	switch {
	case phase == ipalloc.InService:
		return "demand is back: the block is in service again"
	case phase == ipalloc.CoolingDown && reason == expand.NodeGone:
		return "the Node is gone; the block cools down, as its machine may still be running"
	case phase == ipalloc.CoolingDown:
		return "no address of the block is published any more; it cools down before another node can have it"
	}
	switch reason {
	case expand.Deleted:
		return "the block was deleted; it goes once no pod uses an address of it"
	case expand.CIDRDraining:
		return "its range has allocationPolicy Drain or is no longer in the pool; it goes once no pod uses an address of it"
	case expand.PoolChanged:
		return "another pool rules the node now, and nothing of the block has been in use; it goes once the agent, when it starts, has agreed"
	case expand.PoolDeleted:
		return "its pool was deleted; it goes once no pod uses an address of it"
	}
	return "the node has more addresses than it needs; the block goes as its pods go"
}

// sendPhase reports that a block has entered a phase.
func (r *Reconciler) sendPhase(b *v1alpha1.PodIPBlock, phase ipalloc.Phase, reason expand.Reason, message string) {
	kind := map[ipalloc.Phase]string{
		ipalloc.InService: event.ReasonBlockBackInService, ipalloc.Draining: event.ReasonBlockDraining, ipalloc.CoolingDown: event.ReasonBlockCoolingDown,
	}[phase]
	if reason != expand.None {
		message = fmt.Sprintf("%s: %s", reason, message)
	}
	r.Events.SendPhase(b, kind, message)
}

// sendShortage reports a shortage when its reason changes; nil: there is none.
func (r *Reconciler) sendShortage(node *corev1.Node, lack *shortage) {
	reason := ""
	if lack != nil {
		reason = lack.reason
	}
	if !r.Events.Last.Changed(node.Name, topicShortage, reason) || lack == nil {
		return
	}
	kind := event.ReasonPodAddressShortage
	if lack.reason == reasonNoPool {
		kind = event.ReasonNoPoolSelectsNode
	}
	r.Events.Send(node, kind, lack.reason, lack.message+". "+adviceFor(lack.reason))
}

// sendFamilyNotRun reports families that pools offer and the agent does not run; "": it
// runs all.
func (r *Reconciler) sendFamilyNotRun(node *corev1.Node, why string) {
	if r.Events.Last.Changed(node.Name, topicFamily, why) && why != "" {
		r.Events.Send(node, event.ReasonFamilyNotRun, event.Reconcile, why)
	}
}

// sendDrainWaits reports what the drain of each block waits for.
func (r *Reconciler) sendDrainWaits(node *corev1.Node, waits []expand.Wait) {
	var lasting []expand.Wait
	news := ""
	for _, w := range waits {
		switch w.For {
		case expand.WaitHandshake, expand.WaitReturn, expand.WaitUnsettled, expand.WaitPodAddress, expand.WaitWindow, expand.WaitTurn:
			continue // these resolve by themselves
		}
		news += fmt.Sprintf("%s %s; ", w.CIDR, w.For)
		lasting = append(lasting, w)
	}
	// The pods that hold up a block change constantly and are not reported again.
	if !r.Events.Last.Changed(node.Name, topicWaits, news) {
		return
	}
	for _, w := range lasting {
		block := &v1alpha1.PodIPBlock{ObjectMeta: metav1.ObjectMeta{Name: crd.BlockName(w.CIDR)}}
		r.Events.SendWith(node, block, event.ReasonDrainWaits, "WaitFor"+string(w.For), waitNote(w))
	}
}

func waitNote(w expand.Wait) string {
	const most = 5
	note := fmt.Sprintf("block %s waits for %s", w.CIDR, w.For)
	if len(w.By) > 0 {
		note += " " + strings.Join(w.By[:min(len(w.By), most)], ", ")
	}
	if len(w.By) > most {
		note += fmt.Sprintf(" and %d more", len(w.By)-most)
	}
	return note
}

// logPlan logs a decision and its inputs once, although every reconcile repeats it for
// a node whose writes conflict or that cannot get addresses.
func (r *Reconciler) logPlan(ctx context.Context, fo *state.Share, p expand.Plan) {
	line := ""
	if !p.Empty() {
		line = p.String()
	}
	level := 0
	if !r.Events.Last.Changed(p.Node, planTopic(fo), line) {
		level = 1
	}
	if line == "" {
		return
	}
	about := []any{"family", p.Family.String()}
	if fo.CiliumPool != "" {
		about = append(about, "ciliumPool", fo.CiliumPool)
	}
	log.FromContext(ctx).V(level).Info("decided", append(about, "needs", p.Demand, "has", p.Capacity, "plan", line)...)
}

func planTopic(share *state.Share) string {
	return "plan " + share.Family.String() + " " + share.CiliumPool
}
