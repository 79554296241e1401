package frrconfig_test

import (
	"reflect"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"

	"github.com/cilium-pool/cilium-pool-operator/pkg/frrconfig"
)

// FuzzTemplate announces blocks by any template. It must stay as it is. The object must select the
// node alone, announce no prefix but blocks, and be read back as wanted.
func FuzzTemplate(f *testing.F) {
	for _, bgp := range []string{
		`{"routers":[{"asn":1,"neighbors":[{"address":"192.0.2.1","dualStackAddressFamily":true,"toAdvertise":{"allowed":{"mode":"all"}}}]}]}`,
		`{"routers":[{"prefixes":["10.0.0.0/8",7],"neighbors":[{"toAdvertise":{"allowed":{"prefixes":["0.0.0.0/0"]},"withCommunity":[{"prefixes":["::/0"]},{}],"withLocalPref":[1]}}]}]}`,
		`{"routers":{"prefixes":[]},"neighbors":[]}`, `[]`, `{"routers":[{"neighbors":[{"toAdvertise":[]},"x"],"prefixes":{}}]}`,
	} {
		f.Add([]byte(`{"nodeSelector":{"matchLabels":{"cilium-pool.io/template":""}},"bgp":` + bgp + `}`))
	}
	f.Add([]byte(`{"nodeSelector":{"matchLabels":{"cilium-pool.io/template":""},"matchExpressions":[{"key":"rack","operator":"In"}]}}`))
	blocks := prefixes("10.1.0.0/27", "10.2.0.0/28", "fd00::/122")
	f.Fuzz(func(t *testing.T, data []byte) {
		var spec map[string]any
		if json.Unmarshal(data, &spec) != nil {
			return
		}
		obj := frrconfig.Empty("frr", "t")
		obj.Object["spec"] = spec
		before := runtime.DeepCopyJSON(obj.Object)
		wanted, _ := frrconfig.For(node("a"), []*frrconfig.View{frrconfig.Read(obj)}, blocks, "")
		if !reflect.DeepEqual(before, obj.Object) {
			t.Errorf("the template was changed: %v", obj.Object)
		}
		for _, want := range wanted {
			made := want.New("frr")
			view := frrconfig.Read(made)
			if !want.Is(view) || view.Hostname != "n.example.org" || view.Node != "n" {
				t.Errorf("it is read back as %+v", view)
			}
			for _, p := range view.Prefixes {
				if !slices.Contains(blocks, p) {
					t.Errorf("a router of %s has %s", data, p)
				}
			}
			if selector, _, _ := unstructured.NestedMap(made.Object, "spec", "nodeSelector"); len(selector) != 1 {
				t.Errorf("it selects %v", selector)
			}
		}
	})
}
