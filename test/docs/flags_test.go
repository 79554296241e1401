package docs

import (
	"flag"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

var update = flag.Bool("update", false, "write the tables of flags and findings into their pages")

// usage reads one flag from --help: name, type, meaning, default.
var usage = regexp.MustCompile(`(?m)^ +(?:-\w, )?--(\S+)(?: (\w+))?  +(.*?)(?: \(default (.*)\))?$`)

// valueOf reads an argument of the chart's Deployment: flag, value of the chart.
var valueOf = regexp.MustCompile(`(?m)^- .*?--([a-z-]+)=[^.]*\.Values\.([\w.]+)`)

// flagTable returns the --help of the operator as a table, or the --help of a subcommand. A flag
// with a value of the chart has its meaning there.
func flagTable(t *testing.T, subcommand ...string) string {
	t.Helper()
	operator := harness.Program(t, "cilium-pool-operator")
	help, err := exec.CommandContext(t.Context(), operator, append(subcommand, "--help")...).Output()
	if err != nil {
		t.Fatal(err)
	}
	chart := map[string]string{"metrics-bind-address": "metrics.address", "health-probe-bind-address": "health.address"} // made in helpers
	for _, m := range valueOf.FindAllStringSubmatch(read(t, "charts/cilium-pool-operator/templates/_helpers.tpl"), -1) {
		chart[m[1]] = m[2]
	}
	zero := map[string]string{"": "false", "int": "0", "float32": "0", "duration": "0s", "string": `""`, "strings": `""`}
	rows := "| flag | value of the chart, or meaning and default |\n| --- | --- |\n"
	for _, m := range usage.FindAllStringSubmatch(string(help), -1) {
		name, kind, meaning, value := m[1], m[2], strings.ReplaceAll(m[3], "|", `\|`), m[4]
		if value == "" {
			value = zero[kind]
		}
		meaning += " (`" + value + "`)"
		if len(subcommand) == 0 && chart[name] != "" {
			meaning = "`" + chart[name] + "`"
		}
		rows += fmt.Sprintf("| `--%s` | %s |\n", name, meaning)
	}
	return rows
}

// The table of flags matches --help. go test ./test/docs -update writes it.
func TestFlagsPage(t *testing.T) {
	want := flagTable(t)
	generatedPart(t, "docs/configuration.md", "flags", want)
	known := want + flagTable(t, "check")
	// Flags named on any page exist, or belong to another program.
	plugins := pluginFlags()
	for _, path := range files(t, isMarkdown) {
		for _, m := range regexp.MustCompile("`--([a-z-]+)(?:[= ][^`]*)?`").FindAllStringSubmatch(read(t, path), -1) {
			if !strings.Contains(known, "`--"+m[1]+"`") && !plugins[m[1]] && !othersFlags[m[1]] {
				t.Errorf("%s: neither operator nor plugin has a flag --%s", path, m[1])
			}
		}
	}
}

// othersFlags are named in our pages and belong to cilium-agent, cilium-operator,
// Helm, etcd, kube-apiserver or kube-controller-manager.
var othersFlags = map[string]bool{
	"skip-crd-creation": true, "controllers": true,
	"allocate-node-cidrs":             true,
	"cloud-provider":                  true,
	"startup-taint":                   true, // of the Cluster Autoscaler
	"cluster-cidr":                    true,
	"enable-priority-and-fairness":    true,
	"feature-gates":                   true,
	"watch-cache":                     true,
	"watch-cache-sizes":               true,
	"node-cidr-mask-size":             true,
	"ipam":                            true,
	"set":                             true,
	"set-json":                        true,
	"api-versions":                    true,
	"ipam-cilium-node-update-rate":    true,
	"wait":                            true,
	"take-ownership":                  true,
	"help":                            true,
	"reuse-values":                    true,
	"reset-then-reuse-values":         true,
	"force-conflicts":                 true,
	"unsafe-no-fsync":                 true,
	"identity-allocation-mode":        true,
	"enable-gops":                     true,
	"enable-metrics":                  true,
	"leader-election-lease-duration":  true,
	"leader-election-renew-deadline":  true,
	"auto-create-cilium-pod-ip-pools": true,
	"service-cluster-ip-range":        true,
	"leader-elect-renew-deadline":     true,
	"authentication-skip-lookup":      true,
}
