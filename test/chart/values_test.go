package chart

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	"sigs.k8s.io/yaml"

	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

func TestBadValuesAreRefused(t *testing.T) {
	tests := map[string]struct{ values, want string }{
		"typo at the top":            {"replica: 3", "additional properties 'replica' not allowed"},
		"typo inside":                {"expand: {treshold: 3}", "additional properties 'treshold' not allowed"},
		"percent above 100":          {"expand: {thresholdPercent: 101}", "maximum: got 101, want 100"},
		"percent as a string":        {"expand: {thresholdPercent: '80'}", "got string, want integer"},
		"schedule":                   {"maintenance: {windows: [{schedule: '99 99 * * *', duration: 6h}]}", "does not match pattern"},
		"no blocks":                  {"expand: {maxBlocksPerNode: 0}", "minimum: got 0, want 1"},
		"duration without unit":      {"cooldown: '60'", "does not match pattern"},
		"duration as a number":       {"reclaim: {idleFor: 600}", "got number, want string"},
		"replicas":                   {"replicas: -1", "minimum: got -1, want"},
		"port":                       {"metrics: {port: 70000}", "maximum: got 70,000, want 65,535"},
		"log level":                  {"log: {level: verbose}", "value must be one of"},
		"tag as a number":            {"image: {tag: 1.10}", "got number, want string"},
		"digest":                     {"image: {digest: latest}", "does not match pattern"},
		"reclaim not below expand":   {"reclaim: {thresholdPercent: 80}", "reclaim.thresholdPercent (80) must be below expand.thresholdPercent (80)"},
		"more free than may be":      {"expand: {minFreeAddresses: 4096}", "maximum: got 4,096, want 4,095"},
		"a flag given twice":         {"extraArgs: [--cooldown=2m]", "extraArgs has --cooldown=2m, which the chart sets"},
		"the name of the Lease":      {"extraArgs: [--leader-elect-name=l]", "for the Lease cilium-pool-operator"},
		"replicas without election":  {"leaderElection: {enabled: false}", "several replicas need leaderElection.enabled"},
		"typo in what may be empty":  {"metrics: {serviceMonitor: {intervall: 30s}}", "additional properties 'intervall' not allowed"},
		"typo in a probe":            {"livenessProbe: {failureTreshold: 3}", "additional properties 'failureTreshold' not allowed"},
		"unknown alert":              {"metrics: {prometheusRule: {disabled: [Filling]}}", "value must be one of"},
		"label that is a number":     {"podLabels: {a: 1}", "got number, want string"},
		"enabled by no condition":    {"enabled: false", "value must be true"},
		"looked up API server":       {"k8sServiceHost: auto", "k8sServiceHost=auto is not supported"},
		"mode":                       {"mode: cluster-pool", "value must be one of"},
		"CRDs that would go":         {"crds: {keep: false}", "additional properties 'keep' not allowed"},
		"pools":                      {"pools: {p: {}}", "kubectl apply -f your PodIPPools"},
		"range of a firewall":        {"hostFirewall: {allowedCIDRs: [10.0.0.1]}", "does not match pattern"},
		"name that is too long":      {"fullnameOverride: " + strings.Repeat("a", 48), "maxLength: got 48, want 47"},
		"a monitor of loopback":      {"metrics: {secure: false, serviceMonitor: {enabled: true}}", "metrics.secure=false serves metrics on 127.0.0.1 alone"},
		"certificate without TLS":    {"metrics: {secure: false, certSecret: s}", "metrics.certSecret needs metrics.secure"},
		"monitor without metrics":    {"metrics: {port: 0, serviceMonitor: {enabled: true}}", "metrics.serviceMonitor.enabled needs metrics.port"},
		"offers of fixed blocks":     {"mode: kubernetes\nscheduling: {enabled: true}", "scheduling.enabled needs mode=crd, multi-pool or delegated-plugin"},
		"a webhook on health's port": {"scheduling: {enabled: true, admission: Webhook, webhookPort: 9871}", "scheduling.webhookPort is 9871"},
		"offers of a shadow":         {"shadow: true\nscheduling: {enabled: true}", "set scheduling.enabled=false until shadow is off"},
		"a family that is none":      {"scheduling: {families: [IPv4]}", "value must be one of"},
		"one port for two endpoints": {"metrics: {port: 9871}", "metrics.port and health.port are both 9871"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := tryHelm(t, helm4, "template", chart, "-f", writeFile(t, test.values))
			wantError(t, err, test.want)
		})
	}
}

// The chart sets each flag that is not for extraArgs, and its values' defaults are the flags' own.
func TestFlagsAndValues(t *testing.T) {
	want := flagDefaults(t)
	want["leader-elect-namespace"] = namespace
	want["health-probe-bind-address"] = "127.0.0.1" + want["health-probe-bind-address"] // on the host network
	want["startup-taints"] = strings.Trim(want["startup-taints"], "[]")
	got := argsOf(t, deployment(t))
	for name := range got {
		got[name] = canonical(got[name])
	}
	for _, forExtraArgs := range []string{
		"kubeconfig", "version", "leader-elect-name", "kube-api-qps", "kube-api-burst", "leader-elect-lease-duration", "node-workers",
		"max-addresses-per-node", "ack-hold", "ack-timeout", "agent-selector", "agent-settle-time", "keep-managed-fields", "park-draining-blocks", "compact-blocks",
	} {
		delete(want, forExtraArgs)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("flags of the operator and arguments in the Deployment (-operator +chart):\n%s", diff)
	}
}

// Each value reaches its flag.
func TestValuesReachFlags(t *testing.T) {
	values := writeFile(t, `
leaderElection: {enabled: false}
replicas: 1
log: {level: debug, format: console}
paused: true
shadow: true
expand: {thresholdPercent: 81, minFreeAddresses: 5, maxBlocksPerNode: 17}
reclaim: {policy: Never, thresholdPercent: 51, idleFor: 1h, pressurePercent: 91, perMinute: 601, perMinutePerPool: 301}
maintenance: {windows: [{schedule: "0 22 * * 1,3", duration: 6h, timeZone: Asia/Shanghai}], blocksPerHour: 1000000}
cooldown: 90s
nodeGoneCooldown: 1h30m
mode: multi-pool
cilium: {namespace: cilium, skipCheck: true, keepPodIPPools: false}
bgp: {frrK8s: {enabled: true, namespace: frr}}
nodes: {ignoreTaints: [a/b, c], startupTaints: [d/e, f], condition: false, shortageTaint: x/y}
metrics: {port: 0, certSecret: certs}
scheduling: {webhookPort: 9873}
namespaceOverride: network
health: {port: 9999}
`)
	want := map[string]string{
		"leader-elect": "false", "leader-elect-namespace": "network",
		"log-level": "debug", "log-format": "console", "paused": "true", "shadow": "true",
		"expand-threshold-percent": "81", "expand-min-free-addresses": "5", "expand-max-blocks-per-node": "17",
		"reclaim-policy": "Never", "reclaim-threshold-percent": "51", "reclaim-idle-for": "1h",
		"reclaim-pressure-percent": "91", "maintenance-blocks-per-hour": "1000000",
		"maintenance-windows": `[{"duration":"6h","schedule":"0 22 * * 1,3","timeZone":"Asia/Shanghai"}]`,
		"reclaims-per-minute": "601", "reclaims-per-minute-per-pool": "301",
		"cooldown": "90s", "node-gone-cooldown": "1h30m",
		"mode": "multi-pool", "cilium-namespace": "cilium", "skip-cilium-check": "true", "keep-cilium-pod-ip-pools": "false", "frr-k8s-namespace": "frr",
		"ignore-node-taints": "a/b,c", "startup-taints": "d/e,f", "node-condition": "false", "shortage-taint": "x/y",
		"metrics-bind-address": "0", "metrics-secure": "true", "metrics-cert-dir": "/var/run/metrics-cert", "health-probe-bind-address": "127.0.0.1:9999",
		"scheduling-families": "", "scheduling-webhook": "", "scheduling-webhook-bind-address": ":9873",
	}
	if diff := cmp.Diff(want, argsOf(t, deployment(t, "-f", values))); diff != "" {
		t.Errorf("arguments (-want +got):\n%s", diff)
	}
	// Below Kubernetes 1.36, too.
	if got := argsOf(t, deployment(t, "-f", writeFile(t, bothFamilies)))["scheduling-families"]; got != "ipv4,ipv6" {
		t.Errorf("--scheduling-families=%s", got)
	}
}

func deployment(t *testing.T, args ...string) *appsv1.Deployment {
	t.Helper()
	return typed[appsv1.Deployment](t, ofKind(t, render(t, args...), "Deployment")[0])
}

// argsOf returns the operator's arguments in a rendered Deployment.
func argsOf(t *testing.T, d *appsv1.Deployment) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, arg := range d.Spec.Template.Spec.Containers[0].Args {
		name, value, ok := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		if _, twice := found[name]; twice || !ok {
			t.Errorf("argument %q", arg)
		}
		found[name] = value
	}
	return found
}

// flagDefaults reads the flags and their defaults from the operator's --help.
func flagDefaults(t *testing.T) map[string]string {
	t.Helper()
	help, err := exec.CommandContext(t.Context(), operator(t), "--help").Output()
	harness.Must(t, err)
	_, list, _ := strings.Cut(string(help), "\nFlags:\n")
	zero := map[string]string{"": "false", "int": "0", "float32": "0", "duration": "0s", "string": "", "strings": ""}
	flags := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^ +--(\S+)(?: (\w+))?  +.*?(?: \(default (.*)\))?$`).FindAllStringSubmatch(list, -1) {
		value, known := zero[m[2]]
		if !known {
			t.Errorf("flag --%s is of type %s, which this test does not know", m[1], m[2])
		}
		if m[3] != "" {
			value = strings.Trim(m[3], `"`)
		}
		flags[m[1]] = canonical(value)
	}
	return flags
}

// canonical returns the canonical form of a duration: 1m is 1m0s.
func canonical(value string) string {
	if d, err := time.ParseDuration(value); err == nil && value != "0" {
		return d.String()
	}
	return value
}

func operator(t *testing.T) string {
	t.Helper()
	return harness.Program(t, "cilium-pool-operator")
}

// The chart has the same CRDs as the code, apart from Helm's additions.
func TestCRDsAreThoseOfTheCode(t *testing.T) {
	var got []*apiextensionsv1.CustomResourceDefinition
	kept := []string{"helm.sh/resource-policy", "argocd.argoproj.io/sync-options", "kustomize.toolkit.fluxcd.io/prune"}
	for _, o := range ofKind(t, render(t), "CustomResourceDefinition") {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		harness.Must(t, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, crd))
		maps.DeleteFunc(crd.Annotations, func(key, _ string) bool { return slices.Contains(kept, key) })
		crd.Labels = nil
		got = append(got, crd)
	}
	if diff := cmp.Diff(ownCRDs(t), got); diff != "" {
		t.Errorf("make generate copies them (-code +chart):\n%s", diff)
	}
	for _, o := range render(t, "--set", "crds.enabled=false") {
		if o.GetKind() == "CustomResourceDefinition" {
			t.Errorf("crds.enabled=false renders %s", o.GetName())
		}
	}
}

// values.schema.json has each value and no others, and allows no unknown properties wherever it
// names one.
func TestSchemaIsComplete(t *testing.T) {
	var values map[string]any
	harness.Must(t, yaml.Unmarshal(readFile(t, chart+"/values.yaml"), &values))
	var all map[string]any
	harness.Must(t, json.Unmarshal(readFile(t, chart+"/values.schema.json"), &all))
	delete(all["properties"].(map[string]any), "pools") // refused by validate.yaml, which says more
	closed(t, "", all)
	sameKeys(t, "", values, all)
}

func closed(t *testing.T, path string, schema any) {
	t.Helper()
	node, ok := schema.(map[string]any)
	if !ok {
		return
	}
	_, names := node["properties"].(map[string]any)
	_, said := node["type"]
	if names && said && node["additionalProperties"] != false {
		t.Errorf("values.schema.json lets anything into %s", path)
	}
	for key, child := range node {
		closed(t, path+"/"+key, child)
	}
}

func sameKeys(t *testing.T, path string, values, schema map[string]any) {
	t.Helper()
	properties, ok := schema["properties"].(map[string]any)
	if !ok || path != "" && len(values) == 0 {
		return // of open shape, or empty by default
	}
	want, got := slices.Sorted(maps.Keys(values)), slices.Sorted(maps.Keys(properties))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("values%s (-values.yaml +values.schema.json):\n%s", path, diff)
	}
	for key, value := range values {
		inner, isMap := value.(map[string]any)
		of, known := properties[key].(map[string]any)
		if isMap && known {
			sameKeys(t, path+"."+key, inner, of)
		}
	}
}

// The operator is on the host network: endpoints without credentials listen only on the
// loopback address, where the kubelet probes them.
func TestAddressesOnTheHost(t *testing.T) {
	for values, want := range map[string][]string{ // metrics, health and the host of both probes
		"":                                  {":9870", "127.0.0.1:9871", "127.0.0.1", "127.0.0.1"},
		"metrics: {secure: false}":          {"127.0.0.1:9870", "127.0.0.1:9871", "127.0.0.1", "127.0.0.1"},
		`health: {address: ""}`:             {":9870", ":9871", "", ""},
		"metrics: {port: 0, secure: false}": {"0", "127.0.0.1:9871", "127.0.0.1", "127.0.0.1"},
		`{metrics: {secure: false, address: "2001:db8::1"}, health: {address: "::1"}}`: {"[2001:db8::1]:9870", "[::1]:9871", "::1", "::1"},
	} {
		d := deployment(t, "-f", writeFile(t, values))
		container, args := d.Spec.Template.Spec.Containers[0], argsOf(t, d)
		got := []string{args["metrics-bind-address"], args["health-probe-bind-address"], container.LivenessProbe.HTTPGet.Host, container.ReadinessProbe.HTTPGet.Host}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: metrics, health and the host of probes (-want +got):\n%s", values, diff)
		}
	}
}

// Taints that Nodes keep until the operator has run do not keep it off: the values' taints, and the
// taint of Nodes without a network, with any tolerations in the values.
func TestOperatorToleratesTaints(t *testing.T) {
	before := []string{corev1.TaintNodeNotReady, corev1.TaintNodeNetworkUnavailable, "node.cilium.io/agent-not-ready",
		"cilium-pool.io/no-addresses"} // of the examples, where the value was cleared while Nodes had it
	for name, test := range map[string]struct {
		values string
		taints []string
	}{
		"default":            {"", []string{"node.cloudprovider.kubernetes.io/uninitialized", "node-role.kubernetes.io/control-plane"}},
		"all of the values":  {"nodes: {shortageTaint: a/b, startupTaints: [c, d/e]}", []string{"a/b", "c", "d/e"}},
		"no startup taints":  {"nodes: {shortageTaint: a, startupTaints: []}", []string{"a", "node.cloudprovider.kubernetes.io/uninitialized"}},
		"no tolerations":     {"nodes: {shortageTaint: a}\ntolerations: []", []string{"a"}},
		"null":               {"nodes: {shortageTaint: a, startupTaints: null}\ntolerations: null", []string{"a"}},
		"of one effect":      {"nodes: {shortageTaint: a}\ntolerations: [{key: a, effect: PreferNoSchedule, operator: Exists}]", []string{"a"}},
		"of one value":       {"nodes: {shortageTaint: a}\ntolerations: [{key: a, value: x}, {key: own, operator: Exists}]", []string{"a", "own"}},
		"of everything":      {"nodes: {shortageTaint: a}\ntolerations: [{operator: Exists}]", []string{"a", "b"}},
		"the same key twice": {"nodes: {shortageTaint: a, startupTaints: [a]}\ntolerations: [{key: a, operator: Exists}]", []string{"a"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := deployment(t, "-f", writeFile(t, test.values)).Spec.Template.Spec.Tolerations
			for _, key := range append(before, test.taints...) {
				for _, effect := range []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute, corev1.TaintEffectPreferNoSchedule} {
					for _, value := range []string{"", "y"} {
						if taint := (corev1.Taint{Key: key, Value: value, Effect: effect}); !tolerates(got, taint) {
							t.Errorf("%v is not tolerated by %v", taint, got)
						}
					}
				}
			}
			for i := range got {
				if slices.Contains(got[:i], got[i]) {
					t.Errorf("%v is there twice", got[i])
				}
			}
		})
	}
}

func tolerates(tolerations []corev1.Toleration, taint corev1.Taint) bool {
	return slices.ContainsFunc(tolerations, func(t corev1.Toleration) bool { return t.ToleratesTaint(klog.Background(), &taint, false) })
}

// As a dependency the chart takes a parent's global values, and a condition turns it off.
func TestParentChart(t *testing.T) {
	parent := t.TempDir()
	harness.Must(t, os.CopyFS(filepath.Join(parent, "charts", release), os.DirFS(chart)))
	harness.Must(t, os.WriteFile(filepath.Join(parent, "Chart.yaml"), []byte("{apiVersion: v2, name: platform, version: 1.0.0, "+
		"dependencies: [{name: "+release+", version: '*', condition: "+release+".enabled}]}"), 0o600))
	values := func(enabled string) string {
		return writeFile(t, "global: {imageRegistry: g.example.org, imagePullSecrets: [one, {name: two}], other: 1}\n"+
			release+": {enabled: "+enabled+", imagePullSecrets: [{name: two}, {name: three}]}")
	}
	for _, major := range majors() {
		args := []string{"template", "platform", parent, "--kube-version", "1.36", "-f"}
		if out := helm(t, major, append(args, values("false"))...); strings.TrimSpace(out) != "" {
			t.Errorf("Helm %s renders a chart that is not enabled:\n%s", major, out)
		}
		pod := typed[appsv1.Deployment](t, ofKind(t, objects(t, helm(t, major, append(args, values("true"))...)), "Deployment")[0]).Spec.Template.Spec
		if image := pod.Containers[0].Image; !strings.HasPrefix(image, "g.example.org/cilium-pool/") {
			t.Errorf("Helm %s: image is %s", major, image)
		}
		if diff := cmp.Diff([]corev1.LocalObjectReference{{Name: "one"}, {Name: "two"}, {Name: "three"}}, pod.ImagePullSecrets); diff != "" {
			t.Errorf("Helm %s: imagePullSecrets (-want +got):\n%s", major, diff)
		}
	}
}
