package chart

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
image: {digest: "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"}
imagePullSecrets: [{name: registry}]
pools: {p: {ipv4: {blockSize: 27, cidrs: [{cidr: 100.64.0.0/16}]}}}
k8sServiceHost: 192.0.2.1
k8sServicePort: 6443
nodes: {shortageTaint: example.org/short}
metrics:
  certSecret: metrics-tls
  readers: [{kind: ServiceAccount, name: prometheus, namespace: monitoring}]
  service: {labels: {a: b}, annotations: {a: b}, ipFamilyPolicy: SingleStack, ipFamilies: [IPv4]}
  serviceMonitor:
    enabled: true
    namespace: kube-public
    labels: {release: prometheus}
    interval: 30s
    scrapeTimeout: 10s
    relabelings: [{sourceLabels: [__meta_kubernetes_pod_node_name], targetLabel: host}]
    metricRelabelings: [{sourceLabels: [__name__], regex: go_.*, action: drop}]
    endpoint: {honorLabels: true}
  podMonitor:
    enabled: true
    authorization: {credentials: {name: token, key: token}}
    tlsConfig: {insecureSkipVerify: true}
  prometheusRule:
    enabled: true
    alertLabels: {team: network}
    extraRules: [{record: "a:b", expr: "vector(1)"}]
  dashboard: {enabled: true, annotations: {grafana_folder: Cilium}}
hostFirewall: {enabled: true, allowedCIDRs: [192.0.2.0/24, "2001:db8::/32"]}
flowSchema: {priorityLevel: {create: true}}
rbac: {extraRules: [{apiGroups: [""], resources: [secrets], verbs: [get]}], userRoles: {aggregateEditorsTo: [admin]}}
serviceAccount: {labels: {a: b}, annotations: {a: b}}
podDisruptionBudget: {minAvailable: 50%}
dnsConfig: {nameservers: [192.0.2.53]}
hostAliases: [{ip: 192.0.2.1, hostnames: [api]}]
affinity:
  nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists}]}]}}
  podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: rack, labelSelector: {}}]}
schedulerName: default-scheduler
livenessProbe: {periodSeconds: 20}
readinessProbe: {periodSeconds: 5}
deploymentAnnotations: {a: b}
podAnnotations: {a: b}
podLabels: {c: d}
extraEnv: [{name: A, value: b}]
extraEnvFrom: [{configMapRef: {name: env}}]
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
		t.Run(name, func(t *testing.T) {
			file := writeFile(t, values)
			byName := func(all []*unstructured.Unstructured) map[string]any {
				m := map[string]any{}
				for _, o := range all {
					m[o.GetKind()+" "+o.GetName()] = o.Object
				}
				return m
			}
			three, four := byName(renderBy(t, helm3, "-f", file)), byName(renderBy(t, helm4, "-f", file))
			if diff := cmp.Diff(three, four); diff != "" {
				t.Errorf("(-Helm 3 +Helm 4):\n%s", diff)
			}
		})
	}
}

// Values that contain parts of a pod end up in the right place.
func TestPodValues(t *testing.T) {
	d := deployment(t, "-f", writeFile(t, everything))
	pod := d.Spec.Template.Spec
	c := pod.Containers[0]
	for what, is := range map[string]bool{
		"digest":           strings.HasSuffix(c.Image, "@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"),
		"pull secret":      slices.Equal(pod.ImagePullSecrets, []corev1.LocalObjectReference{{Name: "registry"}}),
		"name":             d.Name == "pool-op",
		"API server":       slices.Contains(c.Env, corev1.EnvVar{Name: "KUBERNETES_SERVICE_PORT", Value: "6443"}),
		"environment":      slices.Contains(c.Env, corev1.EnvVar{Name: "A", Value: "b"}) && c.EnvFrom[0].ConfigMapRef.Name == "env",
		"flag":             slices.Contains(c.Args, "--node-workers=8"),
		"container beside": len(pod.Containers) == 2 && pod.Containers[1].Name == "beside",
		"container before": len(pod.InitContainers) == 1 && pod.InitContainers[0].Name == "before",
		"volumes":          len(pod.Volumes) == 2 && pod.Volumes[0].Secret.SecretName == "metrics-tls" && len(c.VolumeMounts) == 2,
		"DNS":              pod.DNSConfig.Nameservers[0] == "192.0.2.53" && pod.HostAliases[0].IP == "192.0.2.1",
		"scheduler":        pod.SchedulerName == "default-scheduler" && pod.PriorityClassName == "system-cluster-critical",
		"probes":           c.LivenessProbe.PeriodSeconds == 20 && c.LivenessProbe.FailureThreshold == 6 && c.ReadinessProbe.PeriodSeconds == 5,
		"labels":           d.Labels["team"] == "network" && d.Spec.Template.Labels["team"] == "network" && d.Spec.Template.Labels["c"] == "d",
		"annotations":      d.Annotations["example.org/owner"] == "network" && d.Annotations["a"] == "b" && d.Spec.Template.Annotations["a"] == "b",
		"own network":      pod.HostNetwork,
	} {
		if !is {
			t.Errorf("%s did not reach the pod", what)
		}
	}
	own := pod.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if len(own) != 2 || own[0].TopologyKey != corev1.LabelHostname || own[1].TopologyKey != "rack" || pod.Affinity.NodeAffinity == nil {
		t.Errorf("affinity is %+v", pod.Affinity)
	}
	for what, selector := range map[string]*metav1.LabelSelector{
		"anti-affinity": own[0].LabelSelector, "topology spread": pod.TopologySpreadConstraints[0].LabelSelector, "Deployment": d.Spec.Selector,
	} {
		if diff := cmp.Diff(map[string]string{"app.kubernetes.io/name": "pools", "app.kubernetes.io/instance": release}, selector.MatchLabels); diff != "" {
			t.Errorf("selector of %s (-want +got):\n%s", what, diff)
		}
	}
}

// Each row renders the chart with values, and reads a path from all objects of a kind.
func TestRenderedValues(t *testing.T) {
	const (
		budget  = "{.spec.minAvailable}/{.spec.maxUnavailable}"
		level   = "{.spec.priorityLevelConfiguration.name}"
		image   = "{.spec.template.spec.containers[0].image}"
		offer   = `{.rules[?(@.resources[0]=="nodes/status")].verbs}`
		name    = "{.metadata.name}"
		repo    = "cilium-pool/cilium-pool-operator"
		both    = "scheduling: {enabled: true, families: [ipv4, ipv6]}"
		request = release + "-ipv4-request"
		mutator = "MutatingAdmissionPolicy"
	)
	for _, test := range []struct{ values, kind, path, want string }{
		{"", "PodDisruptionBudget", budget, "/1"},
		{"podDisruptionBudget: {minAvailable: 1}", "PodDisruptionBudget", budget, "1/"},
		{"podDisruptionBudget: {minAvailable: 0}", "PodDisruptionBudget", budget, "0/"},
		{"podDisruptionBudget: {maxUnavailable: 50%}", "PodDisruptionBudget", budget, "/50%"},
		{"", "FlowSchema", level, "workload-high leader-election"},
		{"flowSchema: {priorityLevelName: mine}", "FlowSchema", level, "mine leader-election"},
		{"flowSchema: {priorityLevel: {create: true}}", "FlowSchema", level, release + " leader-election"},
		{"", "Deployment", image, "ghcr.io/" + repo},
		{"image: {registry: r.example.org:5000}", "Deployment", image, "r.example.org:5000/" + repo},
		{"image: {registry: r.example.org}\nglobal: {imageRegistry: g.example.org/mirror/}", "Deployment", image, "g.example.org/mirror/" + repo},
		{"image: {registry: r, repository: 'h:5000/a/b'}", "Deployment", image, "r/a/b"},
		{"image: {registry: r, repository: localhost/a}", "Deployment", image, "r/a"},
		{"image: {registry: r, repository: a/b}", "Deployment", image, "r/a/b"},
		// Offers are written without the Node condition, too.
		{"nodes: {condition: false}", "ClusterRole", offer, ""},
		{"nodes: {condition: false}\nscheduling: {enabled: true}", "ClusterRole", offer, `["patch"]`},
		{"", mutator, name, ""},
		{"scheduling: {enabled: true}", mutator, name, request},
		{both, mutator, name, request + " " + release + "-ipv6-request"},
		{both, mutator + "Binding", name, request + " " + release + "-ipv6-request"},
		// Cilium hides labels of kubernetes.io on a host from policies, so a policy that selects hosts
		// by the pods' nodeSelector selects none.
		{"hostFirewall: {enabled: true}", "CiliumClusterwideNetworkPolicy", "{.spec.nodeSelector}", "{}"},
	} {
		var got []string
		for _, o := range render(t, "-f", writeFile(t, test.values), "--set", "image.digest=sha256:"+strings.Repeat("0", 64), "--api-versions", mutates) {
			if o.GetKind() != test.kind {
				continue
			}
			var text strings.Builder
			path := jsonpath.New("").AllowMissingKeys(true)
			harness.Must(t, path.Parse(test.path))
			harness.Must(t, path.Execute(&text, o.Object))
			if value, _, _ := strings.Cut(text.String(), "@sha256:"); value != "" {
				got = append(got, value)
			}
		}
		if all := strings.Join(got, " "); all != test.want {
			t.Errorf("%s: %s of %s is %q, want %q", test.values, test.path, test.kind, all, test.want)
		}
	}
	if got := argsOf(t, "-f", writeFile(t, both))["scheduling-families"]; got != "ipv4,ipv6" { // below Kubernetes 1.36
		t.Errorf("--scheduling-families=%s", got)
	}
}

// The viewer role is aggregated to the cluster's view role by default; the editor
// role is aggregated only on request.
func TestUserRoles(t *testing.T) {
	aggregated := func(args ...string) map[string][]string {
		to := map[string][]string{}
		for _, o := range ofKind(t, render(t, args...), "ClusterRole") {
			role := typed[rbacv1.ClusterRole](t, o)
			for label := range role.Labels {
				if name, ok := strings.CutPrefix(label, "rbac.authorization.k8s.io/aggregate-to-"); ok {
					to[role.Name] = append(to[role.Name], name)
				}
			}
			slices.Sort(to[role.Name])
		}
		return to
	}
	viewers := []string{"admin", "cluster-reader", "edit", "view"}
	want := map[string][]string{release + "-podippool-viewer": viewers, release + "-podipblock-viewer": viewers}
	got := aggregated()
	for name, to := range got {
		if len(to) == 0 {
			delete(got, name)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if to := aggregated("--set", "rbac.userRoles.aggregateEditorsTo={admin}")[release+"-podippool-editor"]; !slices.Equal(to, []string{"admin"}) {
		t.Errorf("the editor's rights go to %v", to)
	}
	if to := aggregated("--set", "rbac.userRoles.aggregateViewers=false")[release+"-podippool-viewer"]; len(to) > 0 {
		t.Errorf("the viewer's rights go to %v", to)
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

// A disabled feature has no rights. TestRightsAreEnoughAndNoMore checks that the remaining
// rights are used, and suffice.
func TestRightsFollowValues(t *testing.T) {
	rights := func(values string) []string {
		var found []string
		for _, o := range append(ofKind(t, render(t, "-f", writeFile(t, values)), "ClusterRole"), namespaced(t, values)...) {
			role := typed[rbacv1.ClusterRole](t, o)
			if strings.HasSuffix(role.Name, "-viewer") || strings.HasSuffix(role.Name, "-editor") || strings.HasSuffix(role.Name, "-metrics-reader") {
				continue // for people
			}
			for _, rule := range role.Rules {
				for _, resource := range rule.Resources {
					for _, verb := range rule.Verbs {
						name, sub, _ := strings.Cut(resource, "/")
						of := strings.Join(rule.ResourceNames, " ")
						found = append(found, strings.TrimSpace(right(verb, rule.APIGroups[0], name, sub)+" "+of))
					}
				}
			}
		}
		slices.Sort(found)
		return slices.Compact(found)
	}
	all := rights("nodes: {shortageTaint: a/b}")
	tests := map[string]struct {
		values string
		gone   []string
	}{
		"taint": {"", []string{"patch nodes"}},
		"CiliumNodes": {"mode: kubernetes", []string{
			"create ciliumnodes.cilium.io", "delete ciliumnodes.cilium.io", "list ciliumnodes.cilium.io", "patch ciliumnodes.cilium.io",
			"patch ciliumnodes/status.cilium.io", "watch ciliumnodes.cilium.io"}},
		"condition": {"nodes: {shortageTaint: a/b, condition: false}", []string{"patch nodes/status"}},
		"plain metrics": {"nodes: {shortageTaint: a/b}\nmetrics: {secure: false}", []string{
			"create subjectaccessreviews.authorization.k8s.io", "create tokenreviews.authentication.k8s.io"}},
		"no metrics": {"nodes: {shortageTaint: a/b}\nmetrics: {port: 0}", []string{
			"create subjectaccessreviews.authorization.k8s.io", "create tokenreviews.authentication.k8s.io"}},
		"no election": {"nodes: {shortageTaint: a/b}\nreplicas: 1\nleaderElection: {enabled: false}", []string{
			"create events", "create leases.coordination.k8s.io", "get leases.coordination.k8s.io " + release, "patch events",
			"update leases.coordination.k8s.io " + release}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			left := rights(test.values)
			gone := slices.DeleteFunc(slices.Clone(all), func(r string) bool { return slices.Contains(left, r) })
			if diff := cmp.Diff(test.gone, gone); diff != "" {
				t.Errorf("rights that went (-want +got):\n%s", diff)
			}
		})
	}
}

// The additional rights of multi-pool mode concern only the pools of pods.
func TestRightsOfMultiPoolMode(t *testing.T) {
	rules := func(values string) map[string][]string {
		found := map[string][]string{}
		for _, rule := range typed[rbacv1.ClusterRole](t, ofKind(t, render(t, "-f", writeFile(t, values)), "ClusterRole")[0]).Rules {
			for _, resource := range rule.Resources {
				if resource == "namespaces" || resource == "ciliumpodippools" {
					found[resource] = rule.Verbs
				}
			}
		}
		return found
	}
	read := []string{"list", "watch"}
	for name, test := range map[string]struct {
		values string
		want   map[string][]string
	}{
		"crd":        {"", map[string][]string{}},
		"kubernetes": {"mode: kubernetes", map[string][]string{}},
		"multi-pool": {"mode: multi-pool", map[string][]string{"namespaces": read, "ciliumpodippools": {"list", "watch", "create", "patch", "delete"}}},
		"by hand":    {"mode: multi-pool\ncilium: {keepPodIPPools: false}", map[string][]string{"namespaces": read, "ciliumpodippools": read}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, rules(test.values)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// namespaced returns the Roles, which have the shape of a ClusterRole; there may be none.
func namespaced(t *testing.T, values string) []*unstructured.Unstructured {
	t.Helper()
	return slices.DeleteFunc(render(t, "-f", writeFile(t, values)), func(o *unstructured.Unstructured) bool { return o.GetKind() != "Role" })
}
