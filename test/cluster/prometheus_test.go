//go:build linux

package main

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

func TestScrapeJob(t *testing.T) {
	var m monitor
	const text = `
spec:
  selector: {matchLabels: {app.kubernetes.io/name: op}}
  namespaceSelector: {matchNames: [kube-system]}
  endpoints: [{port: metrics, path: /metrics, scheme: https, tlsConfig: {insecureSkipVerify: true}, bearerTokenFile: /token, relabelings: [{sourceLabels: [a], targetLabel: b}]}]
`
	harness.Must(t, yaml.Unmarshal([]byte(text), &m))
	got, err := json.Marshal(scrapeJob("job", m, object{"credentials_file": m.Spec.Endpoints[0].BearerTokenFile}))
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"authorization":{"credentials_file":"/token"},"job_name":"job",` +
		`"kubernetes_sd_configs":[{"namespaces":{"names":["kube-system"]},"role":"endpointslice"}],"metrics_path":"/metrics",` +
		`"relabel_configs":[{"action":"keep","regex":"metrics","source_labels":["__meta_kubernetes_endpointslice_port_name"]},` +
		`{"action":"keep","regex":"op","source_labels":["__meta_kubernetes_service_label_app_kubernetes_io_name"]},` +
		`{"source_labels":["__meta_kubernetes_pod_name"],"target_label":"pod"},{"source_labels":["a"],"target_label":"b"}],"scheme":"https","tls_config":{"insecure_skip_verify":true}}`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Error(diff)
	}
}

func TestSelected(t *testing.T) {
	var tree any
	const text = `{"type": "binaryExpr", "lhs": {"type": "call", "func": {"name": "rate"}, "args": [{"type": "matrixSelector", "name": "a"}]},
		"rhs": {"type": "vectorSelector", "name": "b", "matchers": [{"name": "state", "type": "="}]}}`
	harness.Must(t, json.Unmarshal([]byte(text), &tree))
	got := map[string]bool{}
	selected(tree, got)
	if diff := cmp.Diff(map[string]bool{"a": true, "b": true}, got); diff != "" {
		t.Error(diff)
	}
}
