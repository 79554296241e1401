package scheduling

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
)

func TestOfferIn(t *testing.T) {
	tests := map[string]struct {
		list corev1.ResourceList
		want Offer
	}{
		"nothing":      {nil, Offer{NoOffer, NoOffer}},
		"nothing left": {corev1.ResourceList{v1alpha1.IPv4Resource: resource.MustParse("0")}, Offer{0, NoOffer}},
		"both":         {corev1.ResourceList{v1alpha1.IPv4Resource: resource.MustParse("30"), v1alpha1.IPv6Resource: resource.MustParse("1k")}, Offer{30, 1000}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := OfferIn(test.list); got != test.want {
				t.Errorf("offers %v, want %v", got, test.want)
			}
		})
	}
}
