package ciliumpool

import (
	"net/netip"
	"testing"
	"time"

	ciliumv2alpha1 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2alpha1"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// pool is a PodIPPool made on a day, of IPv4 ranges, and of IPv6 ones where they
// are such.
func pool(t *testing.T, name string, day, size int32, cidrs ...string) *crd.Pool {
	t.Helper()
	obj := &v1alpha1.PodIPPool{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.Date(2026, 1, int(day), 0, 0, 0, 0, time.UTC)}}
	for _, c := range cidrs {
		if netip.MustParsePrefix(c).Addr().Is6() {
			if obj.Spec.IPv6 == nil {
				obj.Spec.IPv6 = &v1alpha1.IPv6Ranges{BlockSize: size + 96}
			}
			obj.Spec.IPv6.CIDRs = append(obj.Spec.IPv6.CIDRs, v1alpha1.PoolCIDR{CIDR: c})
			continue
		}
		if obj.Spec.IPv4 == nil {
			obj.Spec.IPv4 = &v1alpha1.IPv4Ranges{BlockSize: size}
		}
		obj.Spec.IPv4.CIDRs = append(obj.Spec.IPv4.CIDRs, v1alpha1.PoolCIDR{CIDR: c})
	}
	p, err := crd.PoolFrom(obj, crd.Defaults{Policy: expand.DefaultPolicy(), CiliumPools: true})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func v4(size int, cidrs ...string) [2]*Ranges { return [2]*Ranges{ipalloc.IPv4: {cidrs, size}} }

func prefixes(list ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

func TestWanted(t *testing.T) {
	unreadable := crd.FrozenPool(&v1alpha1.PodIPPool{Spec: v1alpha1.PodIPPoolSpec{IPv4: &v1alpha1.IPv4Ranges{}}})
	tests := map[string]struct {
		pools  []*crd.Pool
		listed []netip.Prefix
		is     *View
		want   [2]*Ranges
	}{
		"nobody":       {},
		"one":          {pools: []*crd.Pool{pool(t, "a", 1, 27, "10.0.0.0/24")}, want: v4(27, "10.0.0.0/24")},
		"both":         {pools: []*crd.Pool{pool(t, "a", 1, 27, "10.0.0.0/24", "fd00::/112")}, want: [2]*Ranges{{[]string{"10.0.0.0/24"}, 27}, {[]string{"fd00::/112"}, 123}}},
		"of two sizes": {pools: []*crd.Pool{pool(t, "b", 2, 27, "10.0.0.0/24"), pool(t, "a", 1, 28, "10.1.0.0/24")}, want: v4(28, "10.0.0.0/24", "10.1.0.0/24")},
		"as old as the other": {
			pools: []*crd.Pool{pool(t, "b", 1, 27, "10.0.0.0/24"), pool(t, "a", 1, 28, "10.1.0.0/24")}, want: v4(28, "10.0.0.0/24", "10.1.0.0/24"),
		},
		"a family of another": {
			pools: []*crd.Pool{pool(t, "a", 1, 27, "10.0.0.0/24"), pool(t, "b", 2, 27, "fd00::/112")},
			want:  [2]*Ranges{{[]string{"10.0.0.0/24"}, 27}, {[]string{"fd00::/112"}, 123}},
		},
		"overlap":                         {pools: []*crd.Pool{pool(t, "b", 2, 27, "10.0.0.128/25", "10.0.1.0/24"), pool(t, "a", 1, 27, "10.0.0.0/24")}, want: v4(27, "10.0.0.0/24", "10.0.1.0/24")},
		"served no more, and listed":      {listed: prefixes("10.0.0.0/27"), is: &View{Ranges: v4(28, "10.0.0.0/24")}, want: v4(28, "10.0.0.0/24")},
		"served no more, nothing listed":  {is: &View{Ranges: v4(28, "10.0.0.0/24")}},
		"listed, and it has no such CIDR": {pools: []*crd.Pool{pool(t, "a", 1, 27, "fd00::/112")}, listed: prefixes("10.0.0.32/27", "10.0.0.0/27"), want: [2]*Ranges{{[]string{"10.0.0.0/27", "10.0.0.32/27"}, 27}, {[]string{"fd00::/112"}, 123}}},
		"unreadable":                      {pools: []*crd.Pool{unreadable}},
		"unreadable by now":               {pools: []*crd.Pool{unreadable}, is: &View{Ranges: v4(28, "10.0.0.0/24")}, want: v4(28, "10.0.0.0/24")},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, Wanted(test.pools, test.listed, test.is)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestPatch(t *testing.T) {
	is := &View{ResourceVersion: "7", Ranges: v4(28, "10.0.0.0/24")}
	both := v4(28, "10.0.0.0/24")
	both[ipalloc.IPv6] = &Ranges{[]string{"fd00::/112"}, 123}
	head := `{"metadata":{"resourceVersion":"7"},"spec":`
	tests := map[string]struct {
		is   *View
		want [2]*Ranges
		text string
	}{
		"as it is":          {is, v4(28, "10.0.0.0/24"), ""},
		"another size":      {is, v4(27, "10.0.0.0/24"), ""}, // it cannot be changed
		"another range":     {is, v4(27, "10.0.0.0/23"), head + `{"ipv4":{"cidrs":["10.0.0.0/23"]}}}`},
		"one family more":   {is, both, head + `{"ipv6":{"cidrs":["fd00::/112"],"maskSize":123}}}`},
		"one family fewer":  {&View{ResourceVersion: "7", Ranges: both}, v4(28, "10.0.0.0/24"), head + `{"ipv6":null}}`},
		"another and fewer": {&View{ResourceVersion: "7", Ranges: both}, v4(28, "10.1.0.0/24"), head + `{"ipv4":{"cidrs":["10.1.0.0/24"]},"ipv6":null}}`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := test.is.Patch(test.want)
			if err != nil || string(got) != test.text {
				t.Errorf("%s, %v; want %s", got, err, test.text)
			}
		})
	}
}

// What is made reads as what was wanted, and as the operator's.
func TestNewReads(t *testing.T) {
	want := v4(28, "10.0.0.0/24")
	want[ipalloc.IPv6] = &Ranges{[]string{"fd00::/112"}, 123}
	obj := New("blue", want)
	is := Read(obj)
	if diff := cmp.Diff(want, is.Ranges); diff != "" || !is.Ours || is.Name != "blue" || is.Selector != nil {
		t.Errorf("%+v (-want +got):\n%s", is, diff)
	}
	if patch, err := is.Patch(want); patch != nil || err != nil {
		t.Errorf("at rest: %s, %v", patch, err)
	}
	if Read(&ciliumv2alpha1.CiliumPodIPPool{}).Ours {
		t.Error("one without the label is taken for ours")
	}
}
