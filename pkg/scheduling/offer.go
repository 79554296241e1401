package scheduling

import (
	"math"

	corev1 "k8s.io/api/core/v1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// NoOffer means that a Node does not have the resource of a family.
const NoOffer = -1

// Offer is the number of addresses of each family, of one Cilium pool, that a Node offers to pods
// that request one, or NoOffer.
type Offer [2]int

// Offers are the offers of a Node, by Cilium pool, "" being the default one.
type Offers map[string]Offer

// Of returns the offer of a Cilium pool.
func (o Offers) Of(ciliumPool string) Offer {
	if offer, ok := o[ciliumPool]; ok {
		return offer
	}
	return Offer{NoOffer, NoOffer}
}

// OffersIn reads the offers of a Node from its capacity, or its allocatable resources.
func OffersIn(list corev1.ResourceList) Offers {
	offers := Offers{}
	for name, quantity := range list {
		if f, pool, ok := state.OfferedPool(name); ok {
			offer := offers.Of(pool)
			offer[f] = int(min(quantity.Value(), math.MaxInt32))
			offers[pool] = offer
		}
	}
	return offers
}

// OfferIn reads the offer of the default pool.
func OfferIn(list corev1.ResourceList) Offer { return OffersIn(list).Of("") }
