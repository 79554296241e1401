package chart

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/jsonpath"

	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

// everything enables all optional features, and sets something in each open value.
const everything = `
nameOverride: pools
fullnameOverride: pool-op
commonLabels: {team: network}
commonAnnotations: {example.org/owner: network}
imagePullSecrets: [{name: registry}]
k8sServiceHost: 192.0.2.1
k8sServicePort: 6443
nodes: {shortageTaint: example.org/short}
metrics:
  certSecret: metrics-tls
  readers: [{kind: ServiceAccount, name: prometheus, namespace: monitoring}]
  service: {labels: {a: b}, annotations: {a: b}}
  serviceMonitor:
    enabled: true
    namespace: kube-public
    labels: {release: prometheus}
    endpoint: {interval: 30s, relabelings: [{sourceLabels: [__meta_kubernetes_pod_node_name], targetLabel: host}]}
  prometheusRule:
    enabled: true
    alertLabels: {team: network}
  dashboard: {enabled: true, annotations: {grafana_folder: Cilium}}
check: {cronJob: {enabled: true}}
hostFirewall: {enabled: true, allowedCIDRs: [192.0.2.0/24, "2001:db8::/32"]}
serviceAccount: {annotations: {a: b}}
dnsConfig: {nameservers: [192.0.2.53]}
hostAliases: [{ip: 192.0.2.1, hostnames: [api]}]
affinity:
  nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists}]}]}}
  podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: rack, labelSelector: {}}]}
runtimeClassName: native
lifecycle: {preStop: {sleep: {seconds: 1}}}
livenessProbe: {periodSeconds: 20}
readinessProbe: {periodSeconds: 5}
podAnnotations: {a: b}
podLabels: {c: d}
extraEnv: [{name: A, value: b}]
extraArgs: [--node-workers=8]
extraVolumes: [{name: v, emptyDir: {}}]
extraVolumeMounts: [{name: v, mountPath: /v}]
extraContainers: [{name: beside, image: "example.org/beside:1"}]
initContainers: [{name: before, image: "example.org/before:1"}]
extraObjects:
- apiVersion: v1
  kind: ConfigMap
  metadata: {name: "{{ .Release.Name }}-object", namespace: "{{ .Release.Namespace }}"}
- |
  apiVersion: v1
  kind: ConfigMap
  metadata: {name: {{ .Release.Name }}-text, namespace: {{ .Release.Namespace }}}
`

// Both Helms render the same objects from the same values.
func TestBothHelmsRenderAlike(t *testing.T) {
	for name, values := range map[string]string{"defaults": "", "everything": everything} {
		file := writeFile(t, values)
		if diff := cmp.Diff(byName(renderBy(t, helm3, "-f", file)), byName(renderBy(t, helm4, "-f", file))); diff != "" {
			t.Errorf("%s (-Helm 3 +Helm 4):\n%s", name, diff)
		}
	}
}

// renderedValues are values, a kind or an object, a path, and its text in all objects of the kind.
func renderedValues() [][4]string {
	const (
		budget   = "{.spec.maxUnavailable}"
		level    = "{.spec.priorityLevelConfiguration.name}"
		image    = "{POD.containers[0].image}"
		offer    = `{.rules[?(@.resources[0]=="nodes/status")].verbs}`
		pools    = `{.rules[?(@.resources[0]=="ciliumpodippools")].verbs}`
		routes   = `{.rules[?(@.resources[0]=="frrconfigurations")].verbs}`
		reports  = `{.rules[?(@.resources[0]=="frrnodestates")].verbs}`
		spaces   = `{.rules[?(@.resources[0]=="namespaces")].verbs}`
		admin    = `{.metadata.labels.rbac\.authorization\.k8s\.io/aggregate-to-admin}`
		views    = admin + `{LABELS-cluster-reader}{LABELS-edit}{LABELS-view}`
		kept     = `{NOTES.helm\.sh/resource-policy} {NOTES.argocd\.argoproj\.io/sync-options} {NOTES.kustomize\.toolkit\.fluxcd\.io/prune}`
		name     = "{.metadata.name}"
		repo     = "cilium-pool/cilium-pool-operator"
		request  = release + "-ipv4-request"
		mutator  = "MutatingAdmissionPolicy"
		role     = "ClusterRole"
		selector = `{"app.kubernetes.io/instance":"` + release + `","app.kubernetes.io/name":"pools"}`
		apart    = "POD.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution"
	)
	return [][4]string{
		{"", "PodDisruptionBudget", budget, "1"},
		{"podDisruptionBudget: {maxUnavailable: 50%}", "PodDisruptionBudget", budget, "50%"},
		{"", "FlowSchema", level, "workload-high leader-election"},
		{"", "Deployment", image, "ghcr.io/" + repo + atDigest},
		{"image: {registry: r.example.org:5000}", "Deployment", image, "r.example.org:5000/" + repo + atDigest},
		{"image: {registry: r.example.org}\nglobal: {imageRegistry: g.example.org/mirror/}", "Deployment", image, "g.example.org/mirror/" + repo + atDigest},
		{"image: {registry: r, repository: 'h:5000/a/b'}", "Deployment", image, "r/a/b" + atDigest},
		{"image: {registry: r, repository: localhost/a}", "Deployment", image, "r/a" + atDigest},
		{"image: {registry: r, repository: a/b}", "Deployment", image, "r/a/b" + atDigest},
		// Offers are written without the Node condition, too.
		{"nodes: {condition: false}", "ClusterRole", offer, ""},
		{"nodes: {condition: false}\nscheduling: {enabled: true}", "ClusterRole", offer, `["patch"]`},
		{"", mutator, name, ""},
		{"scheduling: {enabled: true}", mutator, name, request},
		{bothFamilies, mutator, name, request + " " + release + "-ipv6-request"},
		{bothFamilies, mutator + "Binding", name, request + " " + release + "-ipv6-request"},
		// Cilium hides labels of kubernetes.io on a host from policies, so a policy that selects hosts
		// by the pods' nodeSelector selects none.
		{"hostFirewall: {enabled: true}", "CiliumClusterwideNetworkPolicy", "{.spec.nodeSelector}", "{}"},
		// Views are aggregated, edits are not.
		{"", role, views, "truetruetruetrue truetruetruetrue truetruetruetrue"},
		{"", "Role " + release + "-leader-election", "{.rules[*].resourceNames[*]}", release},
		{"", role + " " + release + "-podippool-viewer", views, "truetruetruetrue"},
		{"", role + " " + release + "-podippin-viewer", views, "truetruetruetrue"},
		{"", role + " " + release + "-podipblock-viewer", views, "truetruetruetrue"},
		{"rbac: {userRoles: {aggregateViewers: false}}", role, views, ""},
		// Only multi-pool mode concerns the pools of pods.
		{"", role, pools + spaces, ""},
		{"mode: kubernetes", role, pools + spaces, ""},
		{"mode: multi-pool", role, pools + spaces, `["list","watch","create","patch","delete"]["list","watch"]`},
		{"mode: multi-pool\ncilium: {keepPodIPPools: false}", role, pools + spaces, `["list","watch"]["list","watch"]`},
		// Only what runs needs rights.
		{"", role, routes, ""},
		{"bgp: {frrK8s: {enabled: true}}", role, routes, `["get","list","watch","create","patch","delete"]`},
		{"", role, reports, ""},
		{"bgp: {frrK8s: {enabled: true}}", role, reports, `["list"]`},
		// Argo CD prunes objects that a chart no longer renders, and obeys Helm's resource-policy only when an Application is
		// deleted; a Flux Kustomization never does. A pruned CRD would delete all its objects.
		{"", "CustomResourceDefinition", kept, "keep Prune=false disabled keep Prune=false disabled keep Prune=false disabled"},
		// Parts of a pod.
		{everything, "Deployment", "{.metadata.name} {POD.imagePullSecrets[*].name} {POD.runtimeClassName} {POD.priorityClassName} {POD.hostNetwork}",
			"pool-op registry native system-cluster-critical true"},
		{everything, "Deployment", "{POD.containers[0].env[*]['name', 'value']}", "KUBERNETES_SERVICE_HOST KUBERNETES_SERVICE_PORT A 192.0.2.1 6443 b"},
		{everything, "Deployment", "{POD.containers[0].lifecycle.preStop.sleep.seconds} {POD.containers[0].args[-1:]}", "1 --node-workers=8"},
		{everything, "Deployment", "{POD.initContainers[*].name} {POD.containers[*].name}", "before operator beside"},
		{everything, "Deployment", "{POD.volumes[*].name} {POD.volumes[0].secret.secretName} {POD.containers[0].volumeMounts[*].name}",
			"metrics-cert v metrics-tls metrics-cert v"},
		{everything, "Deployment", "{POD.dnsConfig.nameservers[0]} {POD.hostAliases[0].ip}", "192.0.2.53 192.0.2.1"},
		{everything, "Deployment", "{POD.containers[0].livenessProbe['periodSeconds', 'failureThreshold']} {POD.containers[0].readinessProbe.periodSeconds}", "20 6 5"},
		{everything, "Deployment", "{.metadata.labels.team} {.spec.template.metadata.labels['team', 'c']}", "network network d"},
		{everything, "Deployment", `{NOTES.example\.org/owner} {.spec.template.metadata.annotations.a}`, "network b"},
		{everything, "Deployment", "{" + apart + "[*].topologyKey}", "kubernetes.io/hostname rack"},
		{everything, "Deployment", "{POD.affinity.nodeAffinity..key}", "a"},
		{everything, "Deployment", "{" + apart + "[0].labelSelector.matchLabels}", selector},
		{everything, "Deployment", "{POD.topologySpreadConstraints[0].labelSelector.matchLabels}", selector},
		{everything, "Deployment", "{.spec.selector.matchLabels}", selector},
	}
}

const (
	bothFamilies = "scheduling: {enabled: true, families: [ipv4, ipv6]}"
)

var atDigest = "@sha256:" + strings.Repeat("0", 64)

// Values end up in the right place.
func TestRenderedValues(t *testing.T) {
	rendered := map[string][]*unstructured.Unstructured{}
	short := strings.NewReplacer("POD", ".spec.template.spec", "NOTES", ".metadata.annotations", "LABELS", `.metadata.labels.rbac\.authorization\.k8s\.io/aggregate-to`)
	for _, row := range renderedValues() {
		values, kind, want := row[0], row[1], row[3]
		path := jsonpath.New("").AllowMissingKeys(true)
		harness.Must(t, path.Parse(short.Replace(row[2])))
		if rendered[values] == nil {
			rendered[values] = render(t, "-f", writeFile(t, values), "--set", "image.digest="+atDigest[1:], "--api-versions", mutates)
		}
		var got []string
		for _, o := range rendered[values] {
			var text strings.Builder
			if o.GetKind() == kind || o.GetKind()+" "+o.GetName() == kind {
				harness.Must(t, path.Execute(&text, o.Object))
			}
			if text.Len() > 0 {
				got = append(got, text.String())
			}
		}
		if all := strings.Join(got, " "); all != want {
			t.Errorf("%s: %s of %s is %q, want %q", values, row[2], kind, all, want)
		}
	}
}

// The chart has no hooks, as Argo CD would change their order.
func TestNoHooks(t *testing.T) {
	for _, o := range render(t, "-f", writeFile(t, everything)) {
		if hook := o.GetAnnotations()["helm.sh/hook"]; hook != "" {
			t.Errorf("%s %s is a hook: %s", o.GetKind(), o.GetName(), hook)
		}
	}
}

// Where others make the roles, the chart makes none, and says so.
func TestNoRolesWithoutRBAC(t *testing.T) {
	for _, o := range render(t, "-f", writeFile(t, everything), "--set", "rbac.create=false") {
		if o.GroupVersionKind().Group == rbacv1.GroupName {
			t.Errorf("rbac.create=false renders %s %s", o.GetKind(), o.GetName())
		}
	}
}
