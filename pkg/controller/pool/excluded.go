package pool

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/exclude"
)

// ReasonExcluded says that the pool covers addresses of nodes or Services.
const ReasonExcluded = "ExcludedFromPods"

// setExcluded reports the addresses of nodes and Services that a pool covers, and which of them lie
// in blocks that nodes hold, according to holder. A pool that covers none has no such condition.
// whole: pods get any address of a block from agents.
func setExcluded(obj *v1alpha1.PodIPPool, whole bool, excluded, shared []exclude.Range, holder func(exclude.Range) string, now time.Time) {
	if len(excluded)+len(shared) == 0 {
		meta.RemoveStatusCondition(&obj.Status.Conditions, v1alpha1.PoolCoversCluster)
		return
	}
	status, reason, message := excludedIs(whole, excluded, shared, holder)
	meta.SetStatusCondition(&obj.Status.Conditions, metav1.Condition{
		Type: v1alpha1.PoolCoversCluster, Status: status, Reason: reason, Message: message,
		ObservedGeneration: obj.Generation, LastTransitionTime: metav1.NewTime(now),
	})
}

func excludedIs(whole bool, excluded, shared []exclude.Range, holder func(exclude.Range) string) (status metav1.ConditionStatus, reason, message string) {
	if len(excluded) > 0 {
		message = "the pool covers " + exclude.Words(excluded, holder)
		if whole {
			message += ". No node gets a block that contains one; of a block that a node holds already, its agent gives pods any address. "
		} else {
			message += ". No pod gets these addresses, and no node gets a block that contains one. "
		}
	}
	if len(shared) > 0 {
		message += "Pods and Services both get addresses of " + exclude.Words(shared, nil) + ", and can get the same one. "
	}
	return metav1.ConditionTrue, ReasonExcluded, message + "Use separate CIDRs for pods, nodes and Services"
}
