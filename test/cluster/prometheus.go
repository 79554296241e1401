//go:build linux

package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/cilium-pool/cilium-pool-operator/test/cluster/kube"
)

//go:embed manifests/prometheus.yaml
var prometheusManifest string

const (
	prometheusNode = 2
	// tick is how often Prometheus scrapes and evaluates, and how long an alert's expression
	// must hold. test/alerts checks with promtool that alerts wait as long as they should.
	tick = "5s"
	// The jobs: with the ServiceAccount's token as the ServiceMonitor says, without a
	// token, and with the token of a ServiceAccount that lacks the right.
	withToken    = "cilium-pool-operator-metrics"
	withoutToken = "no-token"
	withoutRight = "no-right"
)

// monitor is what Prometheus' operator reads from a ServiceMonitor.
type monitor struct {
	Spec struct {
		Selector          struct{ MatchLabels map[string]string }
		NamespaceSelector struct{ MatchNames []string }
		Endpoints         []struct {
			Port, Path, Scheme, BearerTokenFile string
			TLSConfig                           struct{ InsecureSkipVerify bool }
			Relabelings                         []struct {
				SourceLabels []string
				TargetLabel  string
			}
		}
	}
}

type alertRule struct {
	Alert string `json:"alert"`
	Expr  string `json:"expr"`
	For   string `json:"for,omitempty"`
}

// rules is the spec of a PrometheusRule.
type rules struct {
	Spec struct {
		Groups []struct {
			Name  string      `json:"name"`
			Rules []alertRule `json:"rules"`
		} `json:"groups"`
	}
}

// monitoring renders an object of the chart for Prometheus' operator.
func monitoring[T any](ctx context.Context, b *bed, file string) (T, error) {
	var out T
	text, err := b.chart(ctx, "-f examples/values-monitoring.yaml --show-only templates/"+file)
	if err != nil {
		return out, err
	}
	return out, yaml.Unmarshal([]byte(text), &out)
}

type object map[string]any

// scrapeJob returns the job that Prometheus' operator generates for a ServiceMonitor with one
// endpoint: every pod of a Service with these labels, at the port of this name.
func scrapeJob(name string, m monitor, authorization object) object {
	e := m.Spec.Endpoints[0]
	keep := func(label, value string) object {
		return object{"action": "keep", "source_labels": []string{label}, "regex": value}
	}
	relabel := []object{keep("__meta_kubernetes_endpointslice_port_name", e.Port)}
	for label, value := range m.Spec.Selector.MatchLabels {
		relabel = append(relabel, keep("__meta_kubernetes_service_label_"+strings.NewReplacer(".", "_", "/", "_", "-", "_").Replace(label), value))
	}
	relabel = append(relabel, object{"source_labels": []string{"__meta_kubernetes_pod_name"}, "target_label": "pod"})
	for _, r := range e.Relabelings {
		relabel = append(relabel, object{"source_labels": r.SourceLabels, "target_label": r.TargetLabel})
	}
	job := object{
		"job_name": name, "scheme": e.Scheme, "metrics_path": e.Path,
		"tls_config":            object{"insecure_skip_verify": e.TLSConfig.InsecureSkipVerify},
		"kubernetes_sd_configs": []object{{"role": "endpointslice", "namespaces": object{"names": m.Spec.NamespaceSelector.MatchNames}}},
		"relabel_configs":       relabel,
	}
	if authorization != nil {
		job["authorization"] = authorization
	}
	return job
}

// startPrometheus runs Prometheus in the cluster, with the chart's rules.
func (t *trial) startPrometheus(ctx context.Context, r rules) error {
	m, err := monitoring[monitor](ctx, t.bed, "servicemonitor.yaml")
	if err != nil {
		return err
	}
	if len(m.Spec.Endpoints) != 1 {
		return fmt.Errorf("the ServiceMonitor has %d endpoints, not one", len(m.Spec.Endpoints))
	}
	if err := t.cluster.Import(ctx, prometheusNode, t.options.prometheus); err != nil {
		return err
	}
	// The second command is the one in docs/reference/metrics.md.
	token, err := t.shell(ctx, `kubectl create namespace monitoring >/dev/null
kubectl create clusterrolebinding prometheus-reads-pools --clusterrole=cilium-pool-operator-metrics-reader --serviceaccount=monitoring:prometheus >/dev/null
kubectl create serviceaccount stranger -n monitoring >/dev/null
kubectl create token stranger -n monitoring`)
	if err != nil {
		return err
	}
	for i := range r.Spec.Groups {
		for j := range r.Spec.Groups[i].Rules {
			r.Spec.Groups[i].Rules[j].For = tick
		}
	}
	config := object{
		"global":     object{"scrape_interval": tick, "scrape_timeout": tick, "evaluation_interval": tick},
		"rule_files": []string{"/config/rules.json"},
		"scrape_configs": []object{
			scrapeJob(withToken, m, object{"credentials_file": m.Spec.Endpoints[0].BearerTokenFile}),
			scrapeJob(withoutToken, m, nil),
			scrapeJob(withoutRight, m, object{"credentials": strings.TrimSpace(token)}),
		},
	}
	files := map[string]string{}
	for name, content := range map[string]any{"prometheus.json": config, "rules.json": r.Spec} {
		data, err := json.Marshal(content)
		if err != nil {
			return err
		}
		files[name] = string(data)
	}
	configMap, err := json.Marshal(object{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": object{"name": "prometheus", "namespace": "monitoring"}, "data": files,
	})
	if err != nil {
		return err
	}
	if err := t.cluster.Apply(ctx, string(configMap)+"\n---\n"+prometheusManifest); err != nil {
		return err
	}
	return t.rollout(ctx, "monitoring", "deployment/prometheus", 2*time.Minute)
}

// prometheus queries the API of Prometheus, from a pod.
func prometheus[T any](ctx context.Context, b *bed, path string, parameters url.Values) (T, error) {
	var answer struct {
		Status, Error string
		Data          T
	}
	pods, err := query[corev1.PodList](ctx, b, "pods", "--namespace=monitoring", "--selector=app=prometheus")
	if err != nil {
		return answer.Data, err
	}
	probes, err := b.probes(ctx, "probe")
	if err != nil {
		return answer.Data, err
	}
	if len(pods.Items) != 1 || len(probes) == 0 {
		return answer.Data, fmt.Errorf("%d pods of Prometheus, %d probes", len(pods.Items), len(probes))
	}
	out, err := b.ask(ctx, probes[0].Name, "http://"+pods.Items[0].Status.PodIP+":9090/api/v1/"+path+"?"+parameters.Encode())
	if err != nil {
		return answer.Data, err
	}
	if err := json.Unmarshal([]byte(out), &answer); err != nil {
		return answer.Data, fmt.Errorf("%s: %w: %.200s", path, err, out)
	}
	if answer.Status != "success" {
		return answer.Data, fmt.Errorf("%s: %s", path, answer.Error)
	}
	return answer.Data, nil
}

// targets returns health and last error of each target, by job.
func (b *bed) targets(ctx context.Context) (map[string][]string, error) {
	found, err := prometheus[struct {
		ActiveTargets []struct {
			ScrapePool, Health, LastError string
		}
	}](ctx, b, "targets", nil)
	jobs := map[string][]string{}
	for _, target := range found.ActiveTargets {
		jobs[target.ScrapePool] = append(jobs[target.ScrapePool], strings.TrimSpace(target.Health+" "+target.LastError))
	}
	return jobs, err
}

// firing returns the alerts that fire, without duplicates.
func (b *bed) firing(ctx context.Context) (map[string]bool, error) {
	found, err := prometheus[struct {
		Alerts []struct {
			State  string
			Labels map[string]string
		}
	}](ctx, b, "alerts", nil)
	names := map[string]bool{}
	for _, alert := range found.Alerts {
		if alert.State == "firing" {
			names[alert.Labels["alertname"]] = true
		}
	}
	return names, err
}

// awaitAlerts waits until all of these alerts fire, or none of them does.
func (b *bed) awaitAlerts(ctx context.Context, fire bool, names ...string) error {
	return kube.Await(ctx, 4*time.Minute, fmt.Sprintf("%v fire: %v", names, fire), func(ctx context.Context) (bool, string) {
		firing, err := b.firing(ctx)
		for _, name := range names {
			if firing[name] != fire {
				return false, fmt.Sprintf("%v fire, %v", firing, err)
			}
		}
		return err == nil, fmt.Sprint(err)
	})
}
