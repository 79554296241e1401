package pool

import (
	"fmt"
	"strings"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// Reasons of a pool's condition FamiliesServed.
const (
	ReasonAgentsWithout = "AgentsWithoutFamily"
	ReasonAgentsRunAll  = "AgentsRunFamilies"
)

// familiesAre reports whether agents do not run one of the families of a pool.
func (r *Reconciler) familiesAre(pool *crd.Pool) *condition {
	if pool == nil {
		return noSpec()
	}
	var parts []string
	for _, f := range ipalloc.Families() {
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
	return isTrue(ReasonAgentsRunAll, "no agent of a node with a block lacks a family of the pool")
}
