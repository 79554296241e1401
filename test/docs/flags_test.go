package docs

import (
	"flag"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
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
	harness.Must(t, err)
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
	matches(t, files(t, isMarkdown), whole, "`--([a-z-]+)(?:[= ][^`]*)?`", 20, func(path string, m []string) {
		if !strings.Contains(known, "`--"+m[1]+"`") && !plugins[m[1]] && !slices.Contains(strings.Fields(othersFlags), m[1]) {
			t.Errorf("%s: neither operator nor plugin has a flag --%s", path, m[1])
		}
	})
}

// othersFlags are named in our pages and belong to cilium-agent, cilium-operator, Helm, etcd,
// kube-apiserver, kube-controller-manager or the Cluster Autoscaler.
const othersFlags = `
skip-crd-creation controllers allocate-node-cidrs cloud-provider startup-taint cluster-cidr enable-priority-and-fairness
feature-gates watch-cache watch-cache-sizes node-cidr-mask-size ipam set set-json api-versions ipam-cilium-node-update-rate
wait take-ownership help reuse-values reset-then-reuse-values force-conflicts unsafe-no-fsync identity-allocation-mode
enable-gops enable-metrics leader-election-lease-duration leader-election-renew-deadline auto-create-cilium-pod-ip-pools
service-cluster-ip-range leader-elect-renew-deadline authentication-skip-lookup
`
