//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/test/cluster/kube"
)

// onlyAfter are metrics without a series in a cluster in which no such event has happened, as
// docs/reference/metrics.md says of them. The scenario provokes the others.
var onlyAfter = map[string]string{
	"cilium_pool_mark_unanswered_timestamp_seconds": "an agent that does not answer",
	"cilium_pool_pool_phasing_out":                  "a pool that is deleted, cordoned or drained",
	"cilium_pool_drain_wait_blocks":                 "a drain",
}

// prometheusScenario runs a Prometheus that scrapes the operator as the chart's ServiceMonitor
// says, and evaluates its alerts.
func prometheusScenario(ctx context.Context, t *trial) error {
	r, err := monitoring[rules](ctx, t.bed, "prometheusrule.yaml")
	if err != nil {
		return err
	}
	expressions, err := t.expressions(r)
	if err != nil {
		return err
	}
	if err := t.startPrometheus(ctx, r); err != nil {
		return err
	}
	if err := t.authenticated(ctx); err != nil {
		return err
	}
	if err := t.provoke(ctx); err != nil {
		return err
	}
	return t.evaluated(ctx, expressions)
}

// expressions returns the queries of the chart's alerts and dashboard, by name.
func (t *trial) expressions(r rules) (map[string]string, error) {
	found := map[string]string{}
	for _, group := range r.Spec.Groups {
		for _, rule := range group.Rules {
			found["alert "+rule.Alert] = rule.Expr
		}
	}
	alerts := len(found)
	data, err := os.ReadFile(filepath.Join(t.options.repository, "charts/cilium-pool-operator/files/dashboard.json"))
	if err != nil {
		return nil, err
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(data, &dashboard); err != nil {
		return nil, err
	}
	variables := strings.NewReplacer("$__rate_interval", "1m", "$pool", ".*", "$family", ".*", "$node", ".*", "$job", ".*")
	for _, panel := range dashboard.Panels {
		for i, target := range panel.Targets {
			found[fmt.Sprintf("panel %s, %d", panel.Title, i+1)] = variables.Replace(target.Expr)
		}
	}
	t.check("expressions of alerts and of dashboard panels", fmt.Sprintf("%d and %d", alerts, len(found)-alerts), alerts > 0 && len(found) > alerts)
	return found, nil
}

// authenticated checks who may scrape.
func (t *trial) authenticated(ctx context.Context) error {
	want := map[string]string{
		withToken:    "up",
		withoutToken: "down server returned HTTP status 401 Unauthorized",
		withoutRight: "down server returned HTTP status 403 Forbidden",
	}
	var jobs map[string][]string
	err := kube.Await(ctx, time.Minute, "all targets were scraped", func(ctx context.Context) (bool, string) {
		var err error
		jobs, err = t.targets(ctx)
		for job := range want {
			// One target for each replica of the operator.
			if len(jobs[job]) != 2 || slices.ContainsFunc(jobs[job], func(state string) bool { return strings.HasPrefix(state, "unknown") }) {
				return false, fmt.Sprint(jobs, err)
			}
		}
		return err == nil, fmt.Sprint(err)
	})
	if err != nil {
		return err
	}
	for _, job := range slices.Sorted(maps.Keys(want)) {
		states := slices.Compact(jobs[job])
		t.check("scrape of 2 replicas, job "+job, strings.Join(states, "; "), slices.Equal(states, []string{want[job]}))
	}
	return nil
}

// tinyPool has one block; a node selected by it soon lacks addresses.
const tinyPool = `
apiVersion: cilium-pool.io/v1alpha1
kind: PodIPPool
metadata: {name: tiny}
spec:
  nodeSelector: {matchLabels: {node-restriction.kubernetes.io/zone: tiny}}
  ipv4:
    blockSize: 28
    cidrs: [{cidr: 100.72.0.0/28}]
`

// provoke makes alerts fire, and follows docs/troubleshooting.md.
func (t *trial) provoke(ctx context.Context) error {
	const (
		zone = "node-restriction.kubernetes.io/zone"
		crd  = "crd/podipblocks.cilium-pool.io"
	)
	if err := t.cluster.Apply(ctx, webManifest+"\n---\n"+tinyPool); err != nil {
		return err
	}
	for _, step := range []struct {
		what   string
		fire   bool
		alerts []string
		do     string
	}{
		{"a CRD has another schema", true, []string{"CiliumPoolCRDsDiffer"},
			"kubectl annotate " + crd + " was=$(kubectl get " + crd + ` -o jsonpath='{.metadata.annotations.cilium-pool\.io/schema}')
kubectl annotate ` + crd + " --overwrite cilium-pool.io/schema=another"},
		{"it has its own again", false, []string{"CiliumPoolCRDsDiffer"},
			"kubectl annotate " + crd + " --overwrite cilium-pool.io/schema=$(kubectl get " + crd + " -o jsonpath='{.metadata.annotations.was}') was-"},
		{"a node loses its label", true, []string{"CiliumPoolNodeWithoutPool"}, "kubectl label node n3 " + zone + "-"},
		{"it gets its label again", false, []string{"CiliumPoolNodeWithoutPool"}, "kubectl label node n3 " + zone + "=beijing"},
		{"80 pods on a node whose pool has one block", true, []string{"CiliumPoolExhausted", "CiliumPoolNodeShortage", "CiliumPoolNotReady"},
			"kubectl label node n1 " + zone + "=tiny --overwrite\nkubectl scale deployment burst --replicas=80"},
		{"the pool gets a CIDR", false, []string{"CiliumPoolExhausted", "CiliumPoolNodeShortage", "CiliumPoolNotReady"},
			`kubectl patch podippool tiny --type=json -p '[{"op":"add","path":"/spec/ipv4/cidrs/-","value":{"cidr":"100.72.16.0/20"}}]'`},
	} {
		if _, err := t.shell(ctx, step.do); err != nil {
			return err
		}
		began := time.Now()
		err := t.awaitAlerts(ctx, step.fire, step.alerts...)
		what := map[bool]string{true: "fire", false: "are resolved"}[step.fire]
		t.check(step.what+": "+strings.Join(step.alerts, ", ")+" "+what+", after", seconds(began), err == nil)
		if err != nil {
			return err
		}
	}
	if err := t.awaitPods(ctx, "burst", 80); err != nil {
		return err
	}
	_, err := t.shell(ctx, "kubectl scale deployment burst --replicas=0\nkubectl label node n1 "+zone+"=beijing --overwrite\n"+
		"kubectl delete podippool tiny --wait=false")
	return err
}

// evaluated queries Prometheus for each expression, and checks that the metrics in it exist.
func (t *trial) evaluated(ctx context.Context, expressions map[string]string) error {
	names, err := prometheus[[]string](ctx, t.bed, "label/__name__/values", nil)
	if err != nil {
		return err
	}
	var failures, missing []string
	used := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(expressions)) {
		parameters := url.Values{"query": {expressions[name]}}
		if _, err := prometheus[any](ctx, t.bed, "query", parameters); err != nil {
			failures = append(failures, fmt.Sprintf("%s: %v", name, err))
		}
		tree, err := prometheus[any](ctx, t.bed, "parse_query", parameters)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		selected(tree, used)
	}
	absent := 0
	for _, metric := range slices.Sorted(maps.Keys(used)) {
		switch {
		case slices.Contains(names, metric):
		case onlyAfter[metric] != "":
			absent++
			t.note("no series of "+metric+" but after", onlyAfter[metric])
		default:
			missing = append(missing, metric)
		}
	}
	t.check("expressions that Prometheus fails to evaluate", fmt.Sprintf("%d of %d %s", len(failures), len(expressions), strings.Join(failures, "; ")), len(failures) == 0)
	t.check("metrics that they ask for and that are missing", fmt.Sprintf("%d of %d %s", len(missing), len(used), strings.Join(missing, " ")), len(missing) == 0 && len(used) > absent)
	return nil
}

// selected collects the metrics of a query's parse tree.
func selected(tree any, into map[string]bool) {
	switch node := tree.(type) {
	case map[string]any:
		kind := node["type"]
		if name, ok := node["name"].(string); ok && name != "" && (kind == "vectorSelector" || kind == "matrixSelector") {
			into[name] = true
		}
		for _, child := range node {
			selected(child, into)
		}
	case []any:
		for _, child := range node {
			selected(child, into)
		}
	}
}
