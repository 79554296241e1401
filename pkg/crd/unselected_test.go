package crd_test

import (
	"testing"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
)

func TestUnselectedNodes(t *testing.T) {
	for name, test := range map[string]struct {
		spec  v1alpha1.UnselectedNodes
		drain bool
		max   int
	}{
		"nothing":            {v1alpha1.UnselectedNodes{}, false, 1},
		"retain":             {v1alpha1.UnselectedNodes{Policy: v1alpha1.UnselectedNodesRetain}, false, 1},
		"drain, one by one":  {v1alpha1.UnselectedNodes{Policy: v1alpha1.UnselectedNodesDrain}, true, 1},
		"drain several":      {v1alpha1.UnselectedNodes{Policy: v1alpha1.UnselectedNodesDrain, MaxConcurrent: ptr[int32](7)}, true, 7},
		"too many":           {v1alpha1.UnselectedNodes{MaxConcurrent: ptr[int32](100_001)}, false, 100_000},
		"less than one node": {v1alpha1.UnselectedNodes{Policy: v1alpha1.UnselectedNodesDrain, MaxConcurrent: ptr[int32](0)}, true, 1}, // older than the rule
	} {
		p := pool(t, v1alpha1.PodIPPoolSpec{IPv4: ipv4(27, "10.0.0.0/16"), UnselectedNodes: test.spec})
		if p.DrainUnselected != test.drain || p.MaxUnselected != test.max {
			t.Errorf("%s: drain %t, %d at a time; want %t, %d", name, p.DrainUnselected, p.MaxUnselected, test.drain, test.max)
		}
	}
}
