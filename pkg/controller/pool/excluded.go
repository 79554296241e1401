package pool

import "github.com/cilium-pool/cilium-pool-operator/pkg/exclude"

// ReasonExcluded says that the pool covers addresses of nodes or Services.
const ReasonExcluded = "ExcludedFromPods"

// excludedIs reports the addresses of nodes and Services that a pool covers, and which of them lie
// in blocks that nodes hold, according to holder. whole: pods get any address of a block from agents.
func excludedIs(whole bool, excluded, shared []exclude.Range, holder func(exclude.Range) string) *condition {
	if len(excluded)+len(shared) == 0 {
		return nil
	}
	message := ""
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
	return isTrue(ReasonExcluded, message+"Use separate CIDRs for pods, nodes and Services")
}
