package scheduling

import (
	"math"

	corev1 "k8s.io/api/core/v1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// NoOffer means that a Node does not have the resource of a family.
const NoOffer = -1

// Offer is the number of addresses of each family that a Node offers to pods that request one, or
// NoOffer.
type Offer [2]int

// OfferIn reads the offer of a Node from its capacity, or its allocatable resources.
func OfferIn(list corev1.ResourceList) Offer {
	var offer Offer
	for _, f := range ipalloc.Families() {
		offer[f] = NoOffer
		if quantity, ok := list[state.OfferResource(f)]; ok {
			offer[f] = int(min(quantity.Value(), math.MaxInt32))
		}
	}
	return offer
}
