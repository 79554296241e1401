package export

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/cilium-pool/cilium-pool-operator/pkg/apiclient"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// The mode can change under a watch: a block in the field of either mode has a route, unless it cools down.
func TestPrefixesOfAnyMode(t *testing.T) {
	scheme, err := apiclient.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	cn := fixtures.Pooled(8, "10.0.0.0/28", "10.0.0.16/28")
	cn.Spec.IPAM.PodCIDRs = append(cn.Spec.IPAM.PodCIDRs, fixtures.PodCIDR("10.0.0.32/28"), fixtures.PodCIDR("10.0.0.48/28"))
	rows, err := readPrefixes(t.Context(), fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		fixtures.Node(), cn, fixtures.BlockObject("10.0.0.0/28", ipalloc.InService), fixtures.BlockObject("10.0.0.16/28", ipalloc.CoolingDown),
		fixtures.BlockObject("10.0.0.32/28", ipalloc.Draining), fixtures.BlockObject("10.0.0.48/28", ipalloc.CoolingDown)).Build())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range rows {
		got = append(got, r.Prefix)
	}
	if diff := cmp.Diff([]string{"10.0.0.0/28", "10.0.0.32/28"}, got); diff != "" {
		t.Error(diff)
	}
}
