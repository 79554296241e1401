//go:build linux

package bed

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestConfigData(t *testing.T) {
	const other = "---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: other\ndata:\n  ipam: no\n"
	const own = "---\n# Source: a file\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: cilium-config\ndata:\n  ipam: crd\n  devices: \"\"\n"
	for name, test := range map[string]struct {
		rendered, err string
		want          map[string]string
	}{
		"after another":  {rendered: other + own, want: map[string]string{"ipam": "crd", "devices": ""}},
		"not there":      {rendered: other, err: "no ConfigMap cilium-config"},
		"nothing at all": {err: "no ConfigMap cilium-config"},
		"no YAML":        {rendered: "a: b: c", err: "mapping values"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := configData([]byte(test.rendered))
			if (err != nil) != (test.err != "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Fatalf("error %v, want %q", err, test.err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
