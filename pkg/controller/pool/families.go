package pool

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// Reasons of a pool's condition FamiliesServed.
const (
	ReasonAgentsWithout = "AgentsWithoutFamily"
	ReasonAgentsRunAll  = "AgentsRunFamilies"
)

// familiesAre reports on a pool that agents do not run one of its families. If they run
// all of them, the pool gets no such condition unless it was False.
func (r *Reconciler) familiesAre(obj *v1alpha1.PodIPPool, pool *crd.Pool) *condition {
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
		return isFalse(ReasonAgentsWithout, strings.Join(parts, "; ")+
			". Nothing is claimed for them in that family. Switch it on in Cilium, or give these nodes a pool without it")
	}
	if meta.FindStatusCondition(obj.Status.Conditions, v1alpha1.PoolFamiliesServed) == nil {
		return nil
	}
	return isTrue(ReasonAgentsRunAll, "the agents run the families of the pool")
}
