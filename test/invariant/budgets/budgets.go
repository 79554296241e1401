// Package budgets judges, from every version of pods, whether PodDisruptionBudgets held.
//
// Only it finds a budget that was broken for a moment, and a pod that was deleted instead of
// evicted.
package budgets

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Judge judges each version of the pods of PodDisruptionBudgets, in their order.
type Judge struct {
	// Least is the number of Ready pods that a budget asks for, by the value of the label app.
	Least map[string]int
	// Lowest is their least number, once there were enough.
	Lowest map[string]int
	// ready are the pods that a budget counts: Ready, and not being deleted.
	ready map[string]map[types.UID]bool
	// Evicted are all pods that the Eviction API has deleted.
	Evicted map[types.UID]bool
	// Broken lists the violations of a budget.
	Broken []string
}

// New returns a Judge of budgets.
func New(least map[string]int) *Judge {
	return &Judge{Least: least, Lowest: map[string]int{}, ready: map[string]map[types.UID]bool{}, Evicted: map[types.UID]bool{}}
}

// See takes in a version of a pod, or its deletion.
func (b *Judge) See(pod *corev1.Pod, deleted bool) {
	leaves := deleted || pod.DeletionTimestamp != nil
	if leaves && HasCondition(pod, corev1.DisruptionTarget) {
		b.Evicted[pod.UID] = true
	}
	app := pod.Labels["app"]
	least, judged := b.Least[app]
	if !judged {
		return
	}
	if b.ready[app] == nil {
		b.ready[app] = map[types.UID]bool{}
	}
	was := b.ready[app][pod.UID]
	if b.ready[app][pod.UID] = !leaves && HasCondition(pod, corev1.PodReady); !b.ready[app][pod.UID] {
		delete(b.ready[app], pod.UID)
	}
	if was && leaves && !b.Evicted[pod.UID] {
		b.Broken = append(b.Broken, pod.Name+" was deleted without an eviction")
	}
	b.count(app, least)
}

// count judges the number of Ready pods of an app, from when there were enough.
func (b *Judge) count(app string, least int) {
	ready := len(b.ready[app])
	lowest, begun := b.Lowest[app]
	switch {
	case !begun && ready < least:
		return
	case !begun || ready < lowest:
		b.Lowest[app] = ready
	}
	if ready < least {
		b.Broken = append(b.Broken, fmt.Sprintf("%d pods of %s are Ready, %d must be", ready, app, least))
	}
}

// Begun reports whether each budget had as many Ready pods as it asks for.
func (b *Judge) Begun() bool { return len(b.Lowest) == len(b.Least) }

// HasCondition reports whether a condition of a pod is True.
func HasCondition(pod *corev1.Pod, kind corev1.PodConditionType) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == kind && c.Status == corev1.ConditionTrue
	})
}
