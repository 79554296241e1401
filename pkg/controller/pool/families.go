package pool

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// Reasons of a pool's condition FamilyNotRun.
const (
	ReasonAgentsWithout = "AgentsWithoutFamily"
	ReasonAgentsRunAll  = "AgentsRunFamilies"
)

// setFamilies reports on a pool that agents do not run one of its families. If they run
// all of them, the pool gets no such condition unless it was True.
func (r *Reconciler) setFamilies(obj *v1alpha1.PodIPPool, pool *crd.Pool, now time.Time) {
	status, reason, message := r.familiesAre(pool)
	if status == metav1.ConditionFalse && meta.FindStatusCondition(obj.Status.Conditions, v1alpha1.PoolFamilyNotRun) == nil {
		return
	}
	meta.SetStatusCondition(&obj.Status.Conditions, metav1.Condition{
		Type: v1alpha1.PoolFamilyNotRun, Status: status, Reason: reason, Message: message,
		ObservedGeneration: obj.Generation, LastTransitionTime: metav1.NewTime(now),
	})
}

func (r *Reconciler) familiesAre(pool *crd.Pool) (status metav1.ConditionStatus, reason, message string) {
	var parts []string
	for _, f := range ipalloc.Families() {
		if pool == nil {
			break
		}
		if _, has := pool.Ranges(f); !has {
			continue
		}
		if nodes := r.Ledger.NotRunning(f, pool.Name); len(nodes) > 0 {
			parts = append(parts, fmt.Sprintf("the agents of %s do not run %s", nodesLine(nodes, len(nodes)), f))
		}
	}
	if len(parts) > 0 {
		return metav1.ConditionTrue, ReasonAgentsWithout, strings.Join(parts, "; ") +
			". Nothing is claimed for them in that family. Switch it on in Cilium, or give these nodes a pool without it"
	}
	return metav1.ConditionFalse, ReasonAgentsRunAll, "the agents run the families of the pool"
}
