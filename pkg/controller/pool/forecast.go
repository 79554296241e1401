package pool

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/forecast"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

const (
	// forecastEvery is how often a pool is reconciled without an event while its
	// history shows a change.
	forecastEvery = 10 * time.Minute
	// patience is how many times farther away an already expected exhaustion may move
	// before the forecast is withdrawn.
	patience = 1.5
	// agentOwn is how many addresses an agent uses itself: router and health endpoint.
	agentOwn = 2
)

// Foresight is the forecast for one family of a pool.
type Foresight struct {
	Family ipalloc.Family
	forecast.Estimate
	// Room is how many more nodes fit.
	Room int64
}

// Foresee computes the forecast from a family's history and free blocks. expected says
// that the pool's condition ExhaustedSoon is True.
func Foresee(now time.Time, pool *crd.Pool, f ipalloc.Family, history []v1alpha1.HeldBlocks, free int64, expected bool) Foresight {
	much := 1.0
	if expected {
		much = patience
	}
	estimate := forecast.Expect(now, samples(history), free, much)
	if pool.PhasesOut(f) {
		estimate.Expected = false // having no free block is intended
	}
	return Foresight{Family: f, Estimate: estimate, Room: free / blocksPerNode(pool, f)}
}

// blocksPerNode is how many blocks the operator claims for a new node, for the
// addresses of its agent and what its policy keeps free.
func blocksPerNode(pool *crd.Pool, f ipalloc.Family) int64 {
	ranges, ok := pool.Ranges(f)
	if !ok {
		return 1
	}
	empty := expand.State{Family: f}
	for i := range agentOwn {
		empty.Pods = append(empty.Pods, expand.Pod{Name: fmt.Sprint(i)})
	}
	plan, _ := expand.Decide(time.Time{}, pool.Policy, empty, expand.Memory{})
	blocks := math.Ceil(float64(plan.Claim.Addresses) / usableSize(pool, f, ranges.Bits))
	return max(1, min(int64(blocks), int64(plan.Claim.Blocks)))
}

func samples(history []v1alpha1.HeldBlocks) []forecast.Sample {
	out := make([]forecast.Sample, 0, len(history))
	for _, h := range history {
		out = append(out, forecast.Sample{At: h.Since.Time, Held: h.Count})
	}
	return out
}

// noteHeld adds the number of blocks held now to a history. It drops a family that the
// pool no longer has, unless the spec cannot be read.
func noteHeld(h *v1alpha1.PodIPPoolHistory, families []familyUsage, now time.Time) {
	for _, f := range ipalloc.Families() {
		of := familyHistory(h, f)
		i := slices.IndexFunc(families, func(u familyUsage) bool { return u.family == f })
		if i < 0 {
			if len(families) > 0 {
				of.HeldBlocks = nil
			}
			continue
		}
		blocks := families[i].status.Blocks
		kept := forecast.Add(samples(of.HeldBlocks), now.Truncate(time.Second), blocks.InService+blocks.Draining+blocks.CoolingDown)
		of.HeldBlocks = make([]v1alpha1.HeldBlocks, 0, len(kept))
		for _, k := range kept {
			of.HeldBlocks = append(of.HeldBlocks, v1alpha1.HeldBlocks{Since: metav1.NewTime(k.At), Count: k.Held})
		}
	}
}

// foresee adds to a status, whose counts are current, how many nodes fit, and returns
// the forecast of the pool's history, nil if that cannot be read.
func foresee(s *v1alpha1.PodIPPoolStatus, h *v1alpha1.PodIPPoolHistory, pool *crd.Pool, u poolUsage, now time.Time) []Foresight {
	expected := meta.IsStatusConditionTrue(s.Conditions, v1alpha1.PoolExhaustedSoon)
	var seen []Foresight
	s.RoomNodes = nil
	for _, fu := range u.families {
		f := Foresee(now, pool, fu.family, HeldBlocks(h, fu.family), fu.status.Blocks.Free, expected)
		seen = append(seen, f)
		if s.RoomNodes == nil || f.Room < *s.RoomNodes {
			s.RoomNodes = &f.Room
		}
	}
	return seen
}

// setForecast derives the condition ExhaustedSoon. The figures in its message drift:
// they date from its last transition, or from the last write for another reason, which
// refresh announces. Without a history there is no forecast.
func setForecast(obj *v1alpha1.PodIPPool, seen []Foresight, known bool, horizon time.Duration, now time.Time, refresh bool) {
	conditions := &obj.Status.Conditions
	if horizon == 0 {
		meta.RemoveStatusCondition(conditions, v1alpha1.PoolExhaustedSoon)
		return
	}
	was := meta.FindStatusCondition(*conditions, v1alpha1.PoolExhaustedSoon)
	status, reason, message := foretold(obj, seen, known, horizon, soonMessage(seen, within(horizon, was), now))
	if !refresh && was != nil && was.Status == status && was.Reason == reason {
		return
	}
	meta.SetStatusCondition(conditions, metav1.Condition{
		Type: v1alpha1.PoolExhaustedSoon, Status: status, Reason: reason, Message: message,
		ObservedGeneration: obj.Generation, LastTransitionTime: metav1.NewTime(now),
	})
}

// noHistory is the message of the condition ExhaustedSoon without a history.
const noHistory = "the operator cannot read the PodIPPoolHistory of this pool: install the chart's CRDs, and let the operator's " +
	"ClusterRole get, create and update podippoolhistories.cilium-pool.io. Its log has the error"

// foretold returns the condition ExhaustedSoon; soon describes the expected exhaustion,
// "" if none is expected.
func foretold(obj *v1alpha1.PodIPPool, seen []Foresight, known bool, horizon time.Duration, soon string) (status metav1.ConditionStatus, reason, message string) {
	switch {
	case len(seen) == 0:
		return metav1.ConditionUnknown, ReasonInvalid, "the spec cannot be read"
	case obj.DeletionTimestamp != nil:
		return metav1.ConditionFalse, ReasonDeleting, "deleted; nothing is claimed any more"
	case soon != "":
		return metav1.ConditionTrue, ReasonGrowing, soon
	case reasonOf(obj.Status.Conditions, v1alpha1.PoolExhausted) == ReasonPhasingOut:
		return metav1.ConditionFalse, ReasonPhasingOut, "the pool assigns no new blocks"
	case meta.IsStatusConditionTrue(obj.Status.Conditions, v1alpha1.PoolExhausted):
		return metav1.ConditionFalse, ReasonExhausted, "no free block is left now"
	case !known:
		return metav1.ConditionUnknown, ReasonNoHistory, noHistory
	}
	return metav1.ConditionFalse, ReasonLasting, "nothing foretells that free blocks run out within " + duration.HumanDuration(horizon)
}

// within is how far ahead an exhaustion is reported.
func within(horizon time.Duration, was *metav1.Condition) time.Duration {
	if was != nil && was.Status == metav1.ConditionTrue {
		return time.Duration(patience * float64(horizon))
	}
	return horizon
}

func soonMessage(seen []Foresight, within time.Duration, now time.Time) string {
	var parts []string
	for _, f := range seen {
		if f.Expected && f.Left <= within {
			parts = append(parts, fmt.Sprintf("%s: the blocks held grow by %.3g an hour (in the last %s), so that none is free in %s, by %s",
				f.Family, f.PerHour, duration.HumanDuration(f.Over), duration.HumanDuration(f.Left),
				now.Add(f.Left).UTC().Truncate(time.Minute).Format("2006-01-02T15:04Z")))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return strings.Join(parts, "; ") + ". Add a CIDR to spec, or a pool of lower priority for the same nodes"
}

// lookAgain is when to reconcile a pool again without an event, while time alone can
// change its forecast.
func lookAgain(h *v1alpha1.PodIPPoolHistory, now time.Time) time.Duration {
	for _, f := range ipalloc.Families() {
		if !forecast.AtRest(now, samples(HeldBlocks(h, f))) {
			return forecastEvery
		}
	}
	return 0
}
