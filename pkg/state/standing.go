package state

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	schedulingv1 "k8s.io/component-helpers/scheduling/corev1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
)

// StandingKind says who serves a node.
type StandingKind int

// Kinds of standing. Where several apply, the first one in this order does, but for Served.
const (
	// Served: the operator does.
	Served StandingKind = iota
	// Gone: there is no Node, or Cilium no longer runs on it, so its blocks only cool down.
	Gone
	// OtherIPAM: another IPAM gives addresses to its pods.
	OtherIPAM
	// OptedOut: it runs without Cilium.
	OptedOut
	// Adopting: another IPAM served it, its blocks are ours now, and its agent has not reported yet that
	// it runs in the new mode.
	Adopting
	// AwaitsLabels: it does not get its first block before its labels are final.
	AwaitsLabels
	// Unselected: no PodIPPool selects it.
	Unselected
	// OtherMode: its agent starts next in another IPAM mode, and would not find the node's blocks there.
	OtherMode
)

// Standing is whether the operator serves a node, or a share of it, and what stops it.
type Standing struct {
	Kind StandingKind
	// Cause explains the kinds OtherIPAM and AwaitsLabels.
	Cause string
	// Pause is why nothing may change for now, whatever the kind; "": it may.
	Pause string
	// Until is when AwaitsLabels ends by itself; zero: by a change only.
	Until time.Time
	// Overdue is why the node gets its first block although its labels are not final; "": they
	// are, or it has one.
	Overdue string
}

// Because is why nothing may change; "": it may.
func (s Standing) Because() string {
	if s.Kind == OtherIPAM || s.Kind == AwaitsLabels {
		return cmp.Or(s.Pause, s.Cause)
	}
	return s.Pause
}

// MayChange reports whether the operator may write about the node, or the share.
func (s Standing) MayChange() bool { return s.Because() == "" }

// MayClaim reports whether it may get a block.
func (s Standing) MayClaim() bool { return s.MayChange() && s.Kind != Adopting }

// IsMoving reports whether another IPAM serves the node, or did until its agent reports.
func (s Standing) IsMoving() bool { return s.Kind == OtherIPAM || s.Kind == Adopting }

// causeOtherIPAM is why the operator leaves a node unchanged that another IPAM serves.
const causeOtherIPAM = "another IPAM gives addresses to its pods: kubectl cilium-pool migrate plan"

// standing returns the standing of a node that these pools serve. labelsFinal: it does not wait for its labels.
func (c *Cluster) standing(s *Snapshot, served map[string][]*crd.Pool, labelsFinal bool, now time.Time) Standing {
	standing := Standing{}
	if s.Node != nil && !labelsFinal {
		standing = c.waitForLabels(s, now)
	}
	standing.Pause = c.PausedBecause(s.Node, nil)
	switch {
	case s.Node == nil:
		standing.Kind = Gone
	case s.isOfOtherIPAM():
		standing.Kind = OtherIPAM
		standing.Cause = causeOtherIPAM
	case c.OptedOut(s.Node):
		standing.Kind = OptedOut
	case s.adopting:
		standing.Kind = Adopting
	case standing.Kind == AwaitsLabels:
		return standing
	case len(served) == 0:
		standing.Kind = Unselected
	case s.otherMode != "":
		standing.Kind = OtherMode
	}
	return standing
}

// waitForLabels returns the wait of a node for its labels: the standing AwaitsLabels with its end, or why the wait is
// over; zero: it does not wait.
func (c *Cluster) waitForLabels(s *Snapshot, now time.Time) Standing {
	taint := c.taintOfLabels(s)
	if taint == "" {
		return Standing{}
	}
	wait := Standing{
		Kind:  AwaitsLabels,
		Cause: "its first block waits until the taint " + taint + " is gone, as labels that choose its pool may still come",
	}
	if created := s.Node.CreationTimestamp.Time; !created.IsZero() {
		wait.Until = c.Ledger.NotInFuture(s.Node.UID, created).Add(labelsWait)
	}
	if wait.Until.IsZero() || now.Before(wait.Until) {
		return wait
	}
	return Standing{Overdue: fmt.Sprintf("the taint %s is still there %s after the Node was created: the labels that the Node has now choose the pool of its first block", taint, labelsWait)}
}

// labelsWait bounds the time that a node waits for its labels: the component that sets them may be
// one of the pods that wait for an address.
const labelsWait = 5 * time.Minute

// taintOfLabels returns the taint that keeps a node from its first block; "": none does. Labels choose the pool, and
// the agent's own addresses keep the first block for as long as the node lives, so the
// operator waits while a taint indicates that labels are not final and can change the ruling
// pool. It does not wait if the node holds a block of its own, or if its CiliumNode, or the last
// state of a deleted one, already names addresses: its pods must keep running.
func (c *Cluster) taintOfLabels(s *Snapshot) string {
	taint := crd.StartupTaint(s.Node, c.StartupTaints)
	if taint == "" {
		return ""
	}
	isOwn := func(b crd.Block) bool { return !s.isOfEarlierNode(b) }
	if slices.ContainsFunc(s.Blocks, isOwn) || c.OptedOut(s.Node) || c.EndsWait(s.Node, c.Waiting[s.Name]) {
		return ""
	}
	view := s.CiliumNode
	if last := s.deleted; last != nil && last.OwnedBy(s.Node) {
		view = last
	}
	if view != nil && !view.AssignsNone() || c.Pools.RulingIsFinal(s.Node.Labels) {
		return ""
	}
	return taint
}

// EndsWait reports whether a pod that tolerates the startup taints of its node waits for an
// address: it may set the labels, so the node does not wait for them. A pod of a DaemonSet is on
// every node, and would end every wait.
func (c *Cluster) EndsWait(node *corev1.Node, pods []corev1.Pod) bool {
	isStartup := func(t *corev1.Taint) bool { return c.StartupTaints[t.Key] }
	return slices.ContainsFunc(pods, func(pod corev1.Pod) bool {
		bound := ReadPod(&pod)
		owner := metav1.GetControllerOf(&pod)
		_, tainted := schedulingv1.FindMatchingUntoleratedTaint(logr.Discard(), node.Spec.Taints, pod.Spec.Tolerations, isStartup, true)
		return !tainted && bound.waits() && (owner == nil || owner.Kind != "DaemonSet")
	})
}
