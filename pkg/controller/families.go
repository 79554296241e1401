package controller

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// Reasons of a pool's condition FamilyNotRun.
const (
	ReasonAgentsWithout = "AgentsWithoutFamily"
	ReasonAgentsRunAll  = "AgentsRunFamilies"
)

// mayWaitForFamily says that the agent of a node may have been started anew with a
// family that it did not run before: until it has addresses of that it does not come
// up, and what it said last stands. When to ask again is at, where that is only a
// matter of time.
func (a *Agents) mayWaitForFamily(node string, now time.Time) (stuck bool, at time.Time) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	for _, run := range a.byNode[node] {
		if run.ready || run.container == "" {
			continue
		}
		if since := run.since.Add(a.settle); now.Before(since) {
			at = since
		} else {
			stuck = true
		}
	}
	return stuck, at
}

// observeNotRun corrects what is known of a family that the agent does not run.
func (r *NodeReconciler) observeNotRun(o *observation, fo *familyObservation, now time.Time) {
	if !fo.state.NotRun {
		return
	}
	stuck, at := r.Agents.mayWaitForFamily(o.name, now)
	fo.state.NotRun = !stuck
	if !at.IsZero() && (o.settles.IsZero() || at.Before(o.settles)) {
		o.settles = at
	}
}

// notRun are the families that pools would give the node and its agent does not run,
// in words.
func (o *observation) notRun() string {
	var parts []string
	for i := range o.families {
		if f := &o.families[i]; f.state.NotRun && len(f.pools) > 0 {
			parts = append(parts, fmt.Sprintf("the agent does not run %s, which pool %s has: no %s block is claimed for this node, and those it holds stay until its Node goes",
				f.family, f.ruling(), f.family))
		}
	}
	return strings.Join(parts, "; ")
}

// sameFamilies reports whether two versions of a CiliumNode, which may be nil, say
// the same of the families that the agent does not run.
func sameFamilies(a, b *ciliumnode.View) bool {
	return a.NotRun(ipalloc.IPv4) == b.NotRun(ipalloc.IPv4) && a.NotRun(ipalloc.IPv6) == b.NotRun(ipalloc.IPv6)
}

// notRunning are those of nodes whose agents do not run a family.
func (l *Ledger) notRunning(f ipalloc.Family, nodes map[string]bool) map[string]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[string]bool{}
	for name := range nodes {
		if seen := l.nodes.seen[name]; seen != nil && !l.nodes.gone[name] && seen.NotRun(f) {
			out[name] = true
		}
	}
	return out
}

// setFamilies says on a pool that agents do not run a family of it. A pool of which
// they run all has no such condition unless it was True.
func (r *PoolReconciler) setFamilies(obj *v1alpha1.PodIPPool, pool *crd.Pool, u poolUsage, now time.Time) {
	status, reason, message := r.familiesAre(pool, u)
	if status == metav1.ConditionFalse && meta.FindStatusCondition(obj.Status.Conditions, v1alpha1.PoolFamilyNotRun) == nil {
		return
	}
	meta.SetStatusCondition(&obj.Status.Conditions, metav1.Condition{
		Type: v1alpha1.PoolFamilyNotRun, Status: status, Reason: reason, Message: message,
		ObservedGeneration: obj.Generation, LastTransitionTime: metav1.NewTime(now),
	})
}

func (r *PoolReconciler) familiesAre(pool *crd.Pool, u poolUsage) (status metav1.ConditionStatus, reason, message string) {
	var parts []string
	for _, f := range ipalloc.Families() {
		if pool == nil {
			break
		}
		if _, has := pool.Ranges(f); !has {
			continue
		}
		if nodes := r.Ledger.notRunning(f, u.nodes); len(nodes) > 0 {
			parts = append(parts, fmt.Sprintf("the agents of %s do not run %s", nodesLine(nodes), f))
		}
	}
	if len(parts) > 0 {
		return metav1.ConditionTrue, ReasonAgentsWithout, strings.Join(parts, "; ") +
			". Nothing is claimed for them in that family. Switch it on in Cilium, or give these nodes a pool without it"
	}
	return metav1.ConditionFalse, ReasonAgentsRunAll, "the agents run the families of the pool"
}
