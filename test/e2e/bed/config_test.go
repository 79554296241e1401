//go:build linux

package bed

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cilium-pool/cilium-pool-operator/test/harness"
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
			got, err := configData(test.rendered)
			if (err != nil) != (test.err != "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Fatalf("error %v, want %q", err, test.err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// helmScript reports its arguments in its ConfigMap.
const helmScript = `#!/bin/sh
printf 'apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: cilium-config\ndata:\n  args: "%s"\n' "$*"
`

func TestMakeConfig(t *testing.T) {
	helm := filepath.Join(t.TempDir(), "helm")
	harness.Must(t, os.WriteFile(helm, []byte(helmScript), 0o755))
	for name, test := range map[string]struct {
		options     Options
		begins, set string
		moved, then string
	}{
		"crd": {
			options: Options{IPAM: "crd", Values: []string{"more.yaml"}},
			begins:  "cilium-values.yaml more.yaml values.yaml vxlan.yaml", set: "ipam.mode=crd",
		},
		"native": {
			options: Options{IPAM: "multi-pool", Native: true, Set: []string{"a=b"}},
			begins:  "cilium-values.yaml values.yaml", set: "ipam.mode=multi-pool,a=b",
		},
		"out of another IPAM": {
			options: Options{IPAM: "cluster-pool", Before: true, Then: "crd"},
			begins:  "before.yaml values.yaml vxlan.yaml", set: "ipam.mode=cluster-pool," + quickReports,
			moved: "cilium-values.yaml values.yaml vxlan.yaml", then: "ipam.mode=crd," + quickReports,
		},
		"to another mode": {
			options: Options{IPAM: "crd", Then: "multi-pool", Values: []string{"other.yaml"}},
			begins:  "cilium-values.yaml values.yaml vxlan.yaml", set: "ipam.mode=crd," + quickReports,
			moved: "cilium-values.yaml other.yaml values.yaml vxlan.yaml", then: "ipam.mode=multi-pool," + quickReports,
		},
	} {
		t.Run(name, func(t *testing.T) {
			test.options.Helm, test.options.Logs, test.options.Examples = helm, t.TempDir(), "examples"
			b := &Bed{opts: test.options}
			harness.Must(t, b.makeConfig(t.Context()))
			for _, as := range []struct {
				config      map[string]string
				values, set string
			}{{b.config, test.begins, test.set}, {b.moved, test.moved, test.then}} {
				values, set := called(as.config["args"])
				if diff := cmp.Diff([]string{as.values, as.set}, []string{values, set}); diff != "" {
					t.Error(diff)
				}
			}
		})
	}
}

// called returns the names of the values files, and the single values, from Helm's arguments.
func called(args string) (values, set string) {
	var files []string
	fields := strings.Fields(args)
	for i, f := range fields {
		switch f {
		case "--values":
			files = append(files, filepath.Base(fields[i+1]))
		case "--set":
			set = fields[i+1]
		}
	}
	return strings.Join(files, " "), set
}
