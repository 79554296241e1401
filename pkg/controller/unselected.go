package controller

import (
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
)

// unselected reports a Node that no pool selects, in addition to what its blocks lack.
// With addresses from before, or from another IPAM, its pods keep running: nothing is
// unmet until these run out.
func (o *observation) unselected(lack *shortage) *shortage {
	none := o.CiliumNode == nil || len(o.CiliumNode.Named())+len(o.CiliumNode.NonCanonical) == 0
	return &shortage{
		unmet: none || lack != nil && lack.unmet, reason: reasonNoPool,
		message: "no PodIPPool selects this node, so it gets no block",
	}
}

// adviceFor returns what to do about a shortage.
func adviceFor(reason string) string {
	switch reason {
	case reasonPaused:
		return "End the pause, or move pods away"
	case reasonNoPool:
		return "Widen the nodeSelector of a pool, add a pool, or label the node; where Cilium does not run, set the label " +
			v1alpha1.OptOutLabel + "=true"
	}
	return "Add a CIDR to a pool, raise the limit, or move pods away"
}
