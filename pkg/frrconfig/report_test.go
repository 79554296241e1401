package frrconfig_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cilium-pool/cilium-pool-operator/pkg/frrconfig"
)

func TestReadReport(t *testing.T) {
	tests := map[string]struct {
		kind   string
		status map[string]any
		fault  string
	}{
		"converted and loaded":  {frrconfig.NodeStateKind, map[string]any{"lastConversionResult": "success", "lastReloadResult": "success"}, ""},
		"nothing reported yet":  {frrconfig.NodeStateKind, nil, ""},
		"refused":               {frrconfig.NodeStateKind, map[string]any{"lastConversionResult": "failed: duplicate neighbor", "lastReloadResult": "success"}, "frr-k8s cannot convert the FRRConfigurations: failed: duplicate neighbor"},
		"not loaded":            {frrconfig.NodeStateKind, map[string]any{"lastConversionResult": "success", "lastReloadResult": "line 7"}, "FRR does not load its configuration: line 7"},
		"a session":             {frrconfig.SessionStateKind, map[string]any{"bgpStatus": "Established", "node": "n", "peer": "192.0.2.1"}, ""},
		"a session that is new": {frrconfig.SessionStateKind, map[string]any{"node": "n", "peer": "192.0.2.1"}, ""},
		"a session that is down": {
			frrconfig.SessionStateKind, map[string]any{"bgpStatus": "Active", "node": "n", "peer": "192.0.2.1"}, "the session with 192.0.2.1 is Active",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			obj := &unstructured.Unstructured{Object: map[string]any{"kind": test.kind, "metadata": map[string]any{"name": "n"}, "status": test.status}}
			if is := frrconfig.ReadReport(obj); is.Fault != test.fault || is.Node != "n" {
				t.Errorf("read is %+v", is)
			}
		})
	}
	long := &unstructured.Unstructured{Object: map[string]any{"kind": frrconfig.NodeStateKind, "status": map[string]any{"lastReloadResult": strings.Repeat("x", 10_000)}}}
	if is := frrconfig.ReadReport(long); len(is.Fault) > 400 {
		t.Errorf("a fault of %d bytes", len(is.Fault))
	}
}
