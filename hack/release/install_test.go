package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// make install and its kin run Helm alone, once a registry has the image that the chart's own
// manifest names; without an image they say how to make one.
func TestInstall(t *testing.T) {
	const chart = " cilium-pool-operator charts/cilium-pool-operator --namespace pools "
	tests := map[string]struct {
		args    []string
		env     string
		kubectl string
		crane   string
		says    string
		calls   []string // of helm and crane
		fails   bool
	}{
		"install": {
			args: []string{"install", "-f", "a.yaml"}, says: "of https://192.0.2.1:6443",
			calls: []string{"helm install" + chart + "-f a.yaml --dry-run=server", "crane digest r.example/o:v1", "helm install" + chart + "--wait --timeout 5m -f a.yaml"},
		},
		"upgrade keeps values": {
			args: []string{"upgrade"},
			calls: []string{
				"helm upgrade" + chart + "--reset-then-reuse-values --dry-run=server", "crane digest r.example/o:v1",
				"helm upgrade" + chart + "--wait --timeout 5m --reset-then-reuse-values",
			},
		},
		"uninstall": {
			args: []string{"uninstall"}, says: "pools and blocks stay",
			calls: []string{"helm uninstall cilium-pool-operator --namespace pools --wait --timeout 5m"},
		},
		"no image": {
			args: []string{"install"}, crane: "exit 1", says: "make push IMAGE=", fails: true,
			calls: []string{"helm install" + chart + "--dry-run=server", "crane digest r.example/o:v1"},
		},
		"an image on the nodes": {
			args: []string{"install"}, crane: "exit 1", env: "LOADED=1",
			calls: []string{"helm install" + chart + "--dry-run=server", "helm install" + chart + "--wait --timeout 5m"},
		},
		"no cluster": {args: []string{"install"}, kubectl: "exit 1", says: "no cluster: set KUBECONFIG", fails: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p := newPublishing(t)
			script, err := os.ReadFile(filepath.Join("..", "install.sh"))
			if err != nil {
				t.Fatal(err)
			}
			p.write("hack/install.sh", string(script))
			p.write("bin/kubectl", "#!/bin/sh\n"+test.kubectl+"\necho https://192.0.2.1:6443\n")
			p.stub("helm", `echo '        image: "r.example/o:v1"'`)
			p.stub("crane", test.crane)
			p.env = append(p.env, test.env)
			bin := filepath.Join(p.dir, "bin")
			args := append([]string{test.args[0], "pools", filepath.Join(bin, "helm"), filepath.Join(bin, "crane")}, test.args[1:]...)
			calls, said, err := p.script("install.sh", args...)
			if (err != nil) != test.fails || !strings.Contains(said, test.says) {
				t.Errorf("error %v, want %q; it said:\n%s", err, test.says, said)
			}
			if !slices.Equal(calls, test.calls) {
				t.Errorf("calls are\n%s\nwant\n%s", strings.Join(calls, "\n"), strings.Join(test.calls, "\n"))
			}
		})
	}
}
