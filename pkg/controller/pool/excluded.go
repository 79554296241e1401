package pool

import (
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/exclude"
)

// Reasons of the condition CoversClusterAddresses, beside ReasonInvalid.
const (
	ReasonExcluded   = "ExcludedFromPods"
	ReasonCoversNone = "CoversNone"
)

// excludedIs reports the addresses of nodes and Services that a pool covers, and which of them lie
// in blocks that nodes hold, according to holder.
func excludedIs(pool *crd.Pool, excluded, shared []exclude.Range, holder func(exclude.Range) string) *condition {
	switch {
	case unreadable(pool):
		return noSpec()
	case len(excluded)+len(shared) == 0:
		return isFalse(ReasonCoversNone, "the pool covers no address of a node or Service")
	}
	message := ""
	if len(excluded) > 0 {
		message = "the pool covers " + exclude.Words(excluded, holder)
		if pool.WholeBlocks {
			message += ". No node gets a block that contains one; of a block that a node holds already, its agent gives pods any address. "
		} else {
			message += ". No pod gets these addresses, and no node gets a block that contains one. "
		}
	}
	if len(shared) > 0 {
		message += "Pods and Services both get addresses of " + exclude.Words(shared, nil) + ", and can get the same one. "
	}
	return isTrue(ReasonExcluded, message+"Use separate CIDRs for pods, nodes and Services")
}
