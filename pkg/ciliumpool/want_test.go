package ciliumpool

import (
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/cilium/operator/pkg/ipam/allocator/clusterpool/cidralloc"
	ciliumv2alpha1 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2alpha1"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// pool returns a PodIPPool created on a day, with these IPv4 and IPv6 ranges.
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
	p, err := crd.PoolFrom(obj, crd.Defaults{Policy: expand.DefaultPolicy(), WholeBlocks: true, CiliumPools: true})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func prefixes(list ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

func TestWanted(t *testing.T) {
	unreadable, _ := crd.PoolFrom(&v1alpha1.PodIPPool{Spec: v1alpha1.PodIPPoolSpec{IPv4: &v1alpha1.IPv4Ranges{}}}, crd.Defaults{CiliumPools: true})
	tests := map[string]struct {
		pools  []*crd.Pool
		listed []netip.Prefix
		is     *View
		want   [2]int
	}{
		"no pool":                        {},
		"one":                            {pools: []*crd.Pool{pool(t, "a", 1, 27, "10.0.0.0/24")}, want: [2]int{27, 0}},
		"both":                           {pools: []*crd.Pool{pool(t, "a", 1, 27, "10.0.0.0/24", "fd00::/112")}, want: [2]int{27, 123}},
		"of two sizes":                   {pools: []*crd.Pool{pool(t, "b", 2, 27, "10.0.0.0/24"), pool(t, "a", 1, 28, "10.1.0.0/24")}, want: [2]int{28, 0}},
		"as old as the other":            {pools: []*crd.Pool{pool(t, "b", 1, 27, "10.0.0.0/24"), pool(t, "a", 1, 28, "10.1.0.0/24")}, want: [2]int{28, 0}},
		"a family of another":            {pools: []*crd.Pool{pool(t, "a", 1, 27, "10.0.0.0/24"), pool(t, "b", 2, 27, "fd00::/112")}, want: [2]int{27, 123}},
		"served no more, and listed":     {listed: prefixes("10.0.0.0/27"), is: &View{MaskSize: [2]int{28, 0}}, want: [2]int{28, 0}},
		"served no more, nothing listed": {is: &View{MaskSize: [2]int{28, 0}}},
		"listed, and it has none":        {pools: []*crd.Pool{pool(t, "a", 1, 27, "fd00::/112")}, listed: prefixes("10.0.0.32/28", "10.0.0.0/27"), want: [2]int{27, 123}},
		"of single addresses":            {pools: []*crd.Pool{pool(t, "a", 1, 32, "10.0.0.0/24", "fd00::/112")}, want: [2]int{32, 128}},
		"single ones are listed":         {listed: prefixes("10.0.0.1/32"), want: [2]int{32, 0}},
		"unreadable":                     {pools: []*crd.Pool{unreadable}},
		"unreadable by now":              {pools: []*crd.Pool{unreadable}, is: &View{MaskSize: [2]int{28, 0}}, want: [2]int{28, 0}},
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
	one, both := &View{ResourceVersion: "7", MaskSize: [2]int{28, 0}}, &View{ResourceVersion: "7", MaskSize: [2]int{28, 123}}
	head := `{"metadata":{"resourceVersion":"7"},"spec":`
	tests := map[string]struct {
		is   *View
		want [2]int
		text string
	}{
		"as it is":          {one, [2]int{28, 0}, ""},
		"another size":      {one, [2]int{27, 0}, ""}, // it cannot be changed
		"one family more":   {one, [2]int{28, 123}, head + `{"ipv6":{"cidrs":["2001:db8::/128"],"maskSize":123}}}`},
		"one family fewer":  {both, [2]int{28, 0}, head + `{"ipv6":null}}`},
		"one for the other": {one, [2]int{0, 123}, head + `{"ipv4":null,"ipv6":{"cidrs":["2001:db8::/128"],"maskSize":123}}}`},
		"single addresses":  {one, [2]int{28, 128}, head + `{"ipv6":{"cidrs":["192.0.2.0/32"],"maskSize":128}}}`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := test.is.Patch(test.want, nil)
			if err != nil || string(got) != test.text {
				t.Errorf("%s, %v; want %s", got, err, test.text)
			}
		})
	}
}

// A new object reads as wanted, and as the operator's.
func TestNewReads(t *testing.T) {
	want := [2]int{28, 123}
	is := Read(New("blue", want, Marks{}))
	if is.MaskSize != want || !is.Ours || is.Name != "blue" || is.Selector != nil {
		t.Errorf("it is %+v", is)
	}
	if patch, err := is.Patch(want, nil); patch != nil || err != nil {
		t.Errorf("settled: %s, %v", patch, err)
	}
	if Read(&ciliumv2alpha1.CiliumPodIPPool{}).Ours {
		t.Error("one without the label is taken for ours")
	}
}

// With blocks of any size, Cilium's own allocator finds none in a new object.
func TestNowhereHasNoBlock(t *testing.T) {
	for _, size := range []int32{16, 27, 31, 32} {
		for f, mask := range Wanted([]*crd.Pool{pool(t, "a", 1, size, "10.0.0.0/16", "fd00::/104")}, nil, nil) {
			sets, err := cidralloc.NewCIDRSets(f == int(ipalloc.IPv6), []string{string(nowhere(ipalloc.Family(f), mask))}, mask)
			if err != nil {
				continue // it refuses the pool
			}
			if got, err := sets[0].AllocateNext(); err == nil {
				t.Errorf("with maskSize %d it gives out %s", mask, got)
			}
		}
	}
}

// The object of a single pod takes the marks of its pool that BGP and agents read, and no label of a tool that
// owns that one. Others stay as people write them.
func TestMarks(t *testing.T) {
	of := marksOf(&metav1.ObjectMeta{
		Labels:      map[string]string{"announce": "pods", "app.kubernetes.io/instance": "an-argo-cd-application", ManagedByLabel: "Helm"},
		Annotations: map[string]string{"ipam.cilium.io/skip-masquerade": "true", "meta.helm.sh/release-name": "cilium"},
	})
	const podPool = "web-0.shop.pod.cilium-pool.io"
	made := Read(New(podPool, [2]int{32, 0}, of))
	if made.Marks.Labels["announce"] != "pods" || made.Marks.Annotations["ipam.cilium.io/skip-masquerade"] != "true" || !made.Ours || !made.Marks.Equal(of) {
		t.Errorf("made with %+v", made.Marks)
	}
	made.ResourceVersion = "7"
	for name, want := range map[string]string{podPool: `{"metadata":{"annotations":{"ipam.cilium.io/skip-masquerade":null},"labels":{"announce":"all"},"resourceVersion":"7"}}`, "blue": ""} {
		made.Name = name
		got, err := made.Patch([2]int{32, 0}, &Marks{Labels: map[string]string{"announce": "all"}})
		if err != nil || string(got) != want {
			t.Errorf("%s: %s, %v; want %s", name, got, err, want)
		}
	}
}
