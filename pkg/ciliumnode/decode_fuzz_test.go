package ciliumnode

import (
	stdjson "encoding/json"
	"strings"
	"testing"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/util/json"
)

// FuzzDecode decodes any bytes. An object that Cilium's type holds must be decoded as Cilium does. Of
// another the rest must be an object that an agent can decode, and each value left out must be
// reported.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"metadata":{"name":"n","annotations":{"cilium-pool.io/bad-fields":"x"}},"spec":{"ipam":{"podCIDRs":["10.0.0.0/24"]}}}`))
	f.Add([]byte(`{"metadata":{"name":"n"},"spec":{"ipam":{"podCIDRs":["10.020.0.0/24","10.0.0.0/24",1],"pool":{"10.0.0.1":{"owner":7}}}}}`))
	f.Add([]byte(`{"metadata":{"name":"n"},"spec":{"ipam":{"pools":{"allocated":[{"pool":"p","cidrs":["x",{}]}]}},"addresses":[{"ip":1}]}}`))
	f.Add([]byte(`{"metadata":{"name":"n"},"spec":{"ipam":{"podCIDRs":[{}]}}}`))
	f.Add([]byte(`{"metadata":{"name":"n","labels":[]},"spec":[],"status":{"ipam":{"used":{"10.0.0.1":[]},"release-ips":{"10.0.0.1":{}}}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, want := &ciliumv2.CiliumNode{}, &ciliumv2.CiliumNode{}
		err := Decode(data, got)
		whole := json.Unmarshal(data, want) == nil
		if whole && err != nil {
			t.Fatalf("Cilium decodes %s, and Decode does not: %v", data, err)
		}
		if err != nil {
			return
		}
		bad := NewView(got).BadFields
		if whole != (len(bad) == 0) {
			t.Fatalf("%d bad fields of %s, which Cilium's type holds: %t", len(bad), data, whole)
		}
		delete(got.Annotations, badFields)
		if whole {
			delete(want.Annotations, badFields)
			if diff := cmp.Diff(want, got, cmpopts.EquateEmpty(), compareNetip()); diff != "" {
				t.Errorf("%s (-Cilium +Decode):\n%s", data, diff)
			}
			return
		}
		for _, b := range bad {
			if !stdjson.Valid([]byte(b.Text)) || strings.HasPrefix(b.Path, ".") {
				t.Errorf("bad field %v of %s", b, data)
			}
		}
		again := &ciliumv2.CiliumNode{}
		if err := json.Unmarshal(encode(t, got), again); err != nil {
			t.Errorf("no agent can decode what is left of %s: %v", data, err)
		}
	})
}
