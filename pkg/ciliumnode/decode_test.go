package ciliumnode

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
)

// A value that Cilium's type cannot hold is left out, alone, and reported.
func TestDecodeBadFields(t *testing.T) {
	const around = `{"metadata":{"name":"n","annotations":{"cilium-pool.io/bad-fields":"[]","a":"b"}},"spec":{"bootid":"x",%s},"status":{"ipam":{"used":{"10.0.0.1":{}}}}}`
	for name, tc := range map[string]struct {
		spec string
		want []string
		// patched is the list in the field of a patch that adds 10.0.0.0/30.
		patched string
	}{
		"none": {spec: `"ipam":{"podCIDRs":["10.0.0.8/30"]}`, patched: `"podCIDRs":["10.0.0.8/30","10.0.0.0/30"]`},
		"podCIDRs": {
			spec:    `"ipam":{"podCIDRs":["10.020.0.0/24","10.0.0.8/30","10.0.0.0/024","10.0.0.0/24 "]}`,
			want:    []string{`spec.ipam.podCIDRs[0]: "10.020.0.0/24"`, `spec.ipam.podCIDRs[2]: "10.0.0.0/024"`, `spec.ipam.podCIDRs[3]: "10.0.0.0/24 "`},
			patched: `"podCIDRs":["10.0.0.8/30","10.0.0.0/30","10.020.0.0/24","10.0.0.0/024","10.0.0.0/24 "]`,
		},
		"allocated": {
			spec:    `"ipam":{"podCIDRs":["10.0.0.8/30"],"pools":{"allocated":[{"pool":"blue"},{"pool":"default","allowFirstIP":true,"cidrs":["x","10.0.0.8/30"]}]}}`,
			want:    []string{`spec.ipam.pools.allocated[1].cidrs[0]: "x"`},
			patched: `"allocated":[{"pool":"blue"},{"pool":"default","allowFirstIP":true,"cidrs":["10.0.0.0/30","10.0.0.8/30","x"]}]`,
		},
		"numbers": {
			spec: `"ipam":{"podCIDRs":["10.0.0.8/30"],"min-allocate":9223372036854775808}`,
			want: []string{`spec.ipam.min-allocate: 9223372036854775808`},
		},
		"pool": {
			spec: `"ipam":{"podCIDRs":["10.0.0.8/30"],"pool":{"10.0.0.9":{},"10.0.0.10":7}}`,
			want: []string{`spec.ipam.pool["10.0.0.10"]: 7`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			list := &ciliumv2.CiliumNodeList{}
			if err := DecodeList(fmt.Appendf(nil, `{"items":[`+around+`]}`, tc.spec), list); err != nil {
				t.Fatal(err)
			}
			cn := &list.Items[0]
			var got []string
			v := NewView(cn)
			for _, b := range v.BadFields {
				got = append(got, b.String())
			}
			slices.Sort(got)
			if !slices.Equal(got, tc.want) {
				t.Errorf("bad fields are %q, want %q", got, tc.want)
			}
			if len(v.PodCIDRs) != 1 || len(v.Used) != 1 || cn.Spec.BootID != "x" || cn.Annotations["a"] != "b" {
				t.Errorf("the rest is %+v", v)
			}
			mode := CRD
			if len(v.Allocated) > 0 {
				mode = MultiPool
			}
			patch := encodedPatch(t, mode.patch(mode.View(cn), Change{Blocks: cidrs("10.0.0.0/30"), Assign: cidrs("10.0.0.0/30"), Publish: addrs("10.0.0.1")}))
			if !strings.Contains(string(patch), tc.patched) {
				t.Errorf("the patch is %s, want in it %s", patch, tc.patched)
			}
			restored := NewView(cn).rebuild(&corev1.Node{})
			if _, there := restored.Annotations[badFields]; there {
				t.Errorf("restored with annotations %v", restored.Annotations)
			}
		})
	}
	if err := Decode([]byte(`{"metadata":7}`), &ciliumv2.CiliumNode{}); err == nil {
		t.Error("an object without a name is decoded")
	}
}
