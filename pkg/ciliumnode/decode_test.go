package ciliumnode

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/json"
)

// decodeBoth decodes without and with reflection, and fails if the results differ.
func decodeBoth(t *testing.T, data string) *ciliumv2.CiliumNode {
	t.Helper()
	want, got := &ciliumv2.CiliumNode{}, &ciliumv2.CiliumNode{}
	wantErr, err := json.Unmarshal([]byte(data), want), decodeWhole([]byte(data), got)
	if (err == nil) != (wantErr == nil) {
		t.Fatalf("%s: %v, want %v", data, err, wantErr)
	}
	if err != nil {
		return nil
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
		t.Errorf("%s: -reflection +decodeWhole:\n%s", data, diff)
	}
	return got
}

func TestDecode(t *testing.T) {
	tests := map[string]struct {
		pool string
		fast bool
	}{
		"none":                  {`{}`, true},
		"one":                   {`{"10.0.0.1":{}}`, true},
		"several":               {`{"10.0.0.1":{},"10.0.0.2":{"owner":"default/web-0"},"fd00::1":{}}`, true},
		"no addresses":          {`{"":{},"x y":{"owner":""}}`, true},
		"the same key twice":    {`{"a":{"owner":"b"},"a":{}}`, true},
		"other letters":         {`{"é":{"owner":"ü"}}`, true},
		"null":                  {`null`, false},
		"null in it":            {`{"a":null}`, false},
		"spaces":                {`{ "a" : { "owner" : "b" } }`, false},
		"escapes in a key":      {`{"\u0061":{}}`, false},
		"a quote in a key":      {`{"a\":{":{}}`, false},
		"escapes in an owner":   {`{"a":{"owner":"\"b\\"}}`, false},
		"a resource":            {`{"a":{"owner":"b","resource":"r"}}`, false},
		"a resource first":      {`{"a":{"resource":"r"},"b":{}}`, false},
		"a field too many":      {`{"a":{"owner":"b","more":{"owner":"c"}}}`, false},
		"another type of owner": {`{"a":{"owner":7}}`, false},
		"another type of entry": {`{"a":7}`, false},
		"a list":                {`[]`, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			decodeBoth(t, `{"metadata":{"name":"n","labels":{"a":"b"}},"spec":{"bootid":"x","ipam":{"podCIDRs":["10.0.0.0/27"],"pool":`+tc.pool+`,"min-allocate":3}},`+
				`"status":{"ipam":{"used":`+tc.pool+`,"release-ips":{"10.0.0.9":"released"}},"eni":{"enis":{}}}}`)
			if fast := readAddresses(tc.pool, ipamtypes.AllocationMap{}); fast != tc.fast {
				t.Errorf("read without reflection: %v", fast)
			}
		})
	}
}

// A value that Cilium's type cannot hold is left out, alone, and reported.
func TestDecodeBadFields(t *testing.T) {
	const around = `{"metadata":{"name":"n","annotations":{"cilium-pool.io/bad-fields":"[]","a":"b"}},"spec":{"bootid":"x",%s},"status":{"ipam":{"used":{"10.0.0.1":{}}}}}`
	for name, tc := range map[string]struct {
		spec string
		want []string
		// patched is what the field of a patch that adds 10.0.0.0/30 lists.
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
			patch, err := mode.protocol().patch(mode.View(cn), Change{Blocks: cidrs("10.0.0.0/30"), Publish: addrs("10.0.0.1")})
			if err != nil || !strings.Contains(string(patch), tc.patched) {
				t.Errorf("the patch is %s (%v), want in it %s", patch, err, tc.patched)
			}
			restored, err := ToStored(cn).rebuild(&corev1.Node{})
			if _, there := restored.Annotations[badFields]; there || err != nil {
				t.Errorf("restored with annotations %v (%v)", restored.Annotations, err)
			}
		})
	}
	if err := Decode([]byte(`{"metadata":7}`), &ciliumv2.CiliumNode{}); err == nil {
		t.Error("an object without a name is decoded")
	}
}

// A repeated field adds to the map, as it does with reflection.
func TestDecodeRepeatedField(t *testing.T) {
	for _, again := range []string{`{}`, `{"b":{"owner":"y"}}`, `{"a":{}}`, `{ "b":{}}`, `null`} {
		cn := decodeBoth(t, `{"spec":{"ipam":{"pool":{"a":{"owner":"x"}},"pool":`+again+`}}}`)
		if want := again != "null"; (len(cn.Spec.IPAM.Pool) > 0) != want {
			t.Errorf("%s: pool is %v", again, cn.Spec.IPAM.Pool)
		}
	}
}

// Whatever a CiliumNode contains, Decode and reflection read the same.
func FuzzDecode(f *testing.F) {
	f.Add(`{"10.0.0.1":{},"10.0.0.2":{"owner":"a"}}`)
	f.Add(`{"a":{"owner":"\""},"b":{}}`)
	f.Add("{\"a\xff\":{\"owner\":\"\xff\"}}")
	f.Add(`{"a":{},"a":{"owner":"x","resource":"y"}}`)
	f.Add(`{"a":{}},"pool":{"b":{}}`)
	f.Fuzz(func(t *testing.T, pool string) {
		decodeBoth(t, `{"spec":{"ipam":{"pool":`+pool+`}},"status":{"ipam":{"used":`+pool+`}}}`)
	})
}
