// Package alerts tests the chart's alert rules with promtool, and that alerts, dashboard and
// pages query metrics that the operator exports. It is a separate module, so that the
// operator's go.mod stays free of Prometheus.
//
// Only this suite finds an alert that fires when it should not, or cannot fire at all.
package alerts

import (
	"cmp"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

const (
	root  = "../.."
	chart = root + "/charts/cilium-pool-operator"
)

// rule is an alert in Prometheus' format.
type rule struct {
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:"for,omitempty"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

type group struct {
	Name  string `yaml:"name"`
	Rules []rule `yaml:"rules"`
}

type groups struct {
	Groups []group `yaml:"groups"`
}

// tool returns the path of a tool of hack/tools that make has installed; the go.mod there specifies
// its version.
func tool(t *testing.T, name, module string) string {
	t.Helper()
	mod := read(t, "hack/tools/"+name+"/go.mod")
	version := regexp.MustCompile(`(?m)^\s*(?:require )?` + regexp.QuoteMeta(module) + ` (v\S+)`).FindStringSubmatch(mod)
	if version == nil {
		t.Fatalf("hack/tools/%s/go.mod does not name a version of %s", name, module)
	}
	path, err := filepath.Abs(filepath.Join(root, ".cache/tools", name+"-"+version[1]))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v: make alerts-test builds it", err)
	}
	return path
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", filepath.Base(name), strings.Join(args, " "), err, out)
	}
	return string(out)
}

// alerts renders the chart's PrometheusRule, with all rules.
func alerts(t *testing.T, set ...string) groups {
	t.Helper()
	args := []string{"template", "cilium-pool-operator", chart, "--namespace", "kube-system", "--show-only", "templates/prometheusrule.yaml",
		"--set", "metrics.prometheusRule.enabled=true,check.cronJob.enabled=true,mode=delegated-plugin"}
	for _, s := range set {
		args = append(args, "--set", s)
	}
	var object struct {
		Spec groups `yaml:"spec"`
	}
	if err := yaml.Unmarshal([]byte(command(t, tool(t, "helm", "helm.sh/helm/v4"), args...)), &object); err != nil {
		t.Fatal(err)
	}
	if len(object.Spec.Groups) != 1 || len(object.Spec.Groups[0].Rules) == 0 {
		t.Fatalf("the PrometheusRule has %d groups", len(object.Spec.Groups))
	}
	return object.Spec
}

func names(g groups) []string {
	var all []string
	for _, r := range g.Groups[0].Rules {
		all = append(all, r.Alert)
	}
	slices.Sort(all)
	return all
}

// writeRules writes the rules to where promtool finds them, next to a test's file. Of the
// annotations it keeps only the summary, which the tests state.
func writeRules(t *testing.T, dir string, g groups) string {
	t.Helper()
	for i := range g.Groups[0].Rules {
		r := &g.Groups[0].Rules[i]
		r.Annotations = map[string]string{"summary": r.Annotations["summary"]}
	}
	data, err := yaml.Marshal(g)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "rules.yaml")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Each rule fires when it should, and not when it should not.
func TestAlerts(t *testing.T) {
	promtool := tool(t, "promtool", "github.com/prometheus/prometheus")
	rules := alerts(t)
	command(t, promtool, "check", "rules", "--lint=all", "--lint-fatal", writeRules(t, t.TempDir(), alerts(t)))

	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no tests of rules: %v", err)
	}
	fires, quiet := map[string]bool{}, map[string]bool{}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			dir := t.TempDir()
			writeRules(t, dir, alerts(t))
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			note(t, data, fires, quiet)
			for _, tests := range [][]byte{data, inTwoClusters(t, data)} {
				copied := filepath.Join(dir, "test.yaml")
				if err := os.WriteFile(copied, tests, 0o600); err != nil {
					t.Fatal(err)
				}
				command(t, promtool, "test", "rules", copied)
			}
		})
	}
	for _, name := range names(rules) {
		if !fires[name] || !quiet[name] {
			t.Errorf("%s: tested to fire: %v, tested to be quiet: %v", name, fires[name], quiet[name])
		}
	}
}

// inTwoClusters returns tests for a Prometheus with the series of two clusters: it has each series of each, and expects
// each alert of each.
func inTwoClusters(t *testing.T, data []byte) []byte {
	t.Helper()
	var file map[string]any
	if err := yaml.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	for _, test := range file["tests"].([]any) {
		test := test.(map[string]any)
		var series, alertTests []any
		for _, s := range test["input_series"].([]any) {
			name, labels, _ := strings.Cut(s.(map[string]any)["series"].(string), "{")
			for _, cluster := range []string{"east", "west"} {
				of := maps.Clone(s.(map[string]any))
				of["series"] = name + `{cluster="` + cluster + `",` + cmp.Or(labels, "}")
				series = append(series, of)
			}
		}
		for _, a := range test["alert_rule_test"].([]any) {
			a := a.(map[string]any)
			var expected []any
			for _, alert := range a["exp_alerts"].([]any) {
				for _, cluster := range []string{"east", "west"} {
					of := maps.Clone(alert.(map[string]any))
					labels := maps.Clone(of["exp_labels"].(map[string]any))
					labels["cluster"] = cluster
					of["exp_labels"] = labels
					expected = append(expected, of)
				}
			}
			a["exp_alerts"] = expected
			alertTests = append(alertTests, a)
		}
		test["input_series"] = series
		test["alert_rule_test"] = alertTests
	}
	out, err := yaml.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// note records which alerts a test file expects, and which it expects not to fire.
func note(t *testing.T, data []byte, fires, quiet map[string]bool) {
	t.Helper()
	var file struct {
		Tests []struct {
			AlertRuleTest []struct {
				Alertname string `yaml:"alertname"`
				ExpAlerts []any  `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		} `yaml:"tests"`
	}
	if err := yaml.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	for _, test := range file.Tests {
		for _, a := range test.AlertRuleTest {
			if len(a.ExpAlerts) > 0 {
				fires[a.Alertname] = true
			} else {
				quiet[a.Alertname] = true
			}
		}
	}
}

// Each alert has an anchor on the page of symptoms, in an entry with the damage and the fix, and a
// row of its table with its severity. Each anchor belongs to an alert.
func TestRunbooks(t *testing.T) {
	const path = "docs/troubleshooting.md"
	page := read(t, path)
	anchors := map[string]string{} // the entry by the alert's anchor
	for _, entry := range strings.Split(page, "\n## ") {
		for _, m := range regexp.MustCompile(`<a id="(ciliumpool\w+)">`).FindAllStringSubmatch(entry, -1) {
			anchors[m[1]] = entry
		}
	}
	rules := alerts(t).Groups[0].Rules
	for _, r := range rules {
		anchor := strings.ToLower(r.Alert)
		entry := anchors[anchor]
		if !strings.Contains(entry, "**Effect:**") || !strings.Contains(entry, "```sh\n") && !strings.Contains(entry, "\n1. ") {
			t.Errorf("%s does not say what %s breaks, and what to do", path, r.Alert)
		}
		if !regexp.MustCompile("(?m)^\\|.*`" + r.Alert + "`.*\\| " + r.Labels["severity"] + " \\|$").MatchString(page) {
			t.Errorf("%s: no row of the table has %s with severity %s", path, r.Alert, r.Labels["severity"])
		}
		if url := r.Annotations["runbook_url"]; !strings.HasSuffix(url, "/"+path+"#"+anchor) {
			t.Errorf("%s leads to %s", r.Alert, url)
		}
	}
	maps.DeleteFunc(anchors, func(anchor, _ string) bool {
		return slices.ContainsFunc(rules, func(r rule) bool { return strings.ToLower(r.Alert) == anchor })
	})
	if len(rules) == 0 || len(anchors) > 0 {
		t.Errorf("%d alerts; anchors of no alert: %v", len(rules), slices.Sorted(maps.Keys(anchors)))
	}
}

// The chart's values can leave out each alert, and no other.
func TestEachAlertCanBeDisabled(t *testing.T) {
	var schema struct {
		Properties struct {
			Metrics struct {
				Properties struct {
					PrometheusRule struct {
						Properties struct {
							Disabled struct {
								Items struct{ Enum []string }
							}
						}
					}
				}
			}
		}
	}
	if err := json.Unmarshal([]byte(read(t, "charts/cilium-pool-operator/values.schema.json")), &schema); err != nil {
		t.Fatal(err)
	}
	got := schema.Properties.Metrics.Properties.PrometheusRule.Properties.Disabled.Items.Enum
	slices.Sort(got)
	if want := slices.Compact(names(alerts(t))); !slices.Equal(got, want) {
		t.Errorf("values.schema.json lets users leave out %v, the alerts are %v", got, want)
	}
}

// Values reach the rules, and disabled alerts are not rendered.
func TestValuesReachAlerts(t *testing.T) {
	g := alerts(t, "metrics.prometheusRule.disabled={CiliumPoolSelectsNoNode,CiliumPoolNotReady}",
		"metrics.prometheusRule.alertLabels.team=net", "metrics.prometheusRule.fillingPercent=70", "metrics.prometheusRule.shortNodesPercent=20",
		"metrics.prometheusRule.runbookURL=https://example.org/r")
	for _, r := range g.Groups[0].Rules {
		if r.Labels["team"] != "net" || r.Labels["severity"] == "" {
			t.Errorf("%s has labels %v", r.Alert, r.Labels)
		}
		if want := "https://example.org/r#" + strings.ToLower(r.Alert); r.Annotations["runbook_url"] != want {
			t.Errorf("%s leads to %s", r.Alert, r.Annotations["runbook_url"])
		}
		for name, want := range map[string]string{
			"CiliumPoolOperatorDown": `{name="cilium-pool-operator"}`, "CiliumPoolFilling": "> 70", "CiliumPoolNodesShort": ">= 20",
		} {
			if r.Alert == name && !strings.Contains(r.Expr, want) {
				t.Errorf("%s: %s is not in %s", name, want, r.Expr)
			}
		}
		if strings.Contains(r.Expr+r.Annotations["summary"]+r.Annotations["description"], "%LEASE%") {
			t.Errorf("%s has a word that no value took the place of", r.Alert)
		}
	}
	for _, gone := range []string{"CiliumPoolSelectsNoNode", "CiliumPoolNotReady"} {
		if slices.Contains(names(g), gone) {
			t.Errorf("%s is there", gone)
		}
	}
	single := alerts(t, "replicas=1", "leaderElection.enabled=false")
	if slices.Contains(names(single), "CiliumPoolOperatorNotLeading") {
		t.Error("the alert exists without leader election")
	}
	if slices.Contains(names(alerts(t, "check.cronJob.enabled=false")), "CiliumPoolCheckFailed") {
		t.Error("an alert is about a CronJob that does not exist")
	}
	for _, values := range []string{"mode=multi-pool", "shadow=true"} {
		if slices.Contains(names(alerts(t, values)), "CiliumPoolNodeAgentDown") {
			t.Errorf("%s: an alert is about node agents that do not exist", values)
		}
	}
	for _, r := range single.Groups[0].Rules {
		if r.Alert == "CiliumPoolOperatorDown" && !strings.Contains(r.Expr, `up{job="cilium-pool-operator-metrics"}`) {
			t.Errorf("without an election: %s", r.Expr)
		}
	}
}
