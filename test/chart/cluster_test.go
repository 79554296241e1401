package chart

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	ciliumcrds "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/client/crds/v2"
	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

// parseCRD reads one definition.
func parseCRD(t *testing.T, data []byte) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	crd := &apiextensionsv1.CustomResourceDefinition{}
	harness.Must(t, yaml.Unmarshal(data, crd))
	return crd
}

// foreignCRDs returns the CRDs of other projects' kinds that the chart can create.
func foreignCRDs(t *testing.T) []*apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	policy, err := ciliumcrds.EmbedFS.ReadFile("ciliumclusterwidenetworkpolicies.yaml")
	harness.Must(t, err)
	found := []*apiextensionsv1.CustomResourceDefinition{parseCRD(t, policy)}
	cmd := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", "github.com/prometheus-operator/prometheus-operator")
	cmd.Dir = root + "/hack/tools/prometheus-operator"
	out, err := cmd.Output()
	harness.Must(t, err)
	var module struct{ Dir string }
	harness.Must(t, json.Unmarshal(out, &module))
	for _, kind := range []string{"servicemonitors", "prometheusrules"} {
		found = append(found, parseCRD(t, readFile(t, filepath.Join(module.Dir, "example/prometheus-operator-crd/monitoring.coreos.com_"+kind+".yaml"))))
	}
	return found
}

// The API server accepts each object that the chart can render, without unknown fields.
func TestEveryObjectIsAccepted(t *testing.T) {
	b := newBed(t, helm4)
	harness.Must(t, b.cluster.InstallCRDs(t.Context(), append(ownCRDs(t), foreignCRDs(t)...)...))
	all := render(t, "-f", writeFile(t, everything), "--set", "crds.enabled=false")
	for _, kind := range []string{
		"ServiceMonitor", "PrometheusRule", "CiliumClusterwideNetworkPolicy", "PodDisruptionBudget",
		"FlowSchema", "ConfigMap",
	} {
		ofKind(t, all, kind) // fails if there is none
	}
	// The default shape of a monitor differs from the one above.
	all = append(all, ofKind(t, render(t, "--set", "metrics.serviceMonitor.enabled=true"), "ServiceMonitor")...)
	for _, o := range all {
		if err := client.NewDryRunClient(b.Client).Create(t.Context(), o, client.FieldValidation(metav1.FieldValidationStrict)); err != nil {
			t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), err)
		}
	}
	b.podSecurity()
}

// podSecurity uses the API server's own admission to find the pods' violations of "restricted": the
// host network, its ports and probes of the host's loopback, and no others.
func (b *bed) podSecurity() {
	b.Helper()
	for _, level := range []string{"restricted", "privileged"} {
		b.Create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: level, Labels: map[string]string{"pod-security.kubernetes.io/enforce": level},
		}})
	}
	pod := func(namespace string, hostNetwork bool) error {
		template := deployment(b.T, "--set", "health.address="+map[bool]string{true: "127.0.0.1"}[hostNetwork]).Spec.Template
		template.Spec.HostNetwork = hostNetwork
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "p-", Labels: template.Labels}, Spec: template.Spec}
		p.Spec.PriorityClassName = "" // which a quota may restrict to kube-system
		return client.NewDryRunClient(b.Client).Create(b.Context(), p)
	}
	if err := pod("privileged", true); err != nil {
		b.Errorf("in a namespace that enforces privileged: %v", err)
	}
	if err := pod("restricted", false); err != nil {
		b.Errorf("without the host network the pod is not restricted: %v", err)
	}
	err := pod("restricted", true)
	if err == nil {
		b.Fatal("restricted lets a pod onto the host network")
	}
	_, said, _ := strings.Cut(err.Error(), `"restricted:latest": `)
	known := []string{"host namespaces (", "hostPort (", "probe or lifecycle host ("}
	for _, violation := range strings.Split(said, "), ") {
		if !slices.ContainsFunc(known, func(k string) bool { return strings.HasPrefix(violation, k) }) {
			b.Errorf("also breaks %s", violation)
		}
	}
}

// Before the installation, the chart checks the parts of the cluster that Helm can see.
func TestPreflight(t *testing.T) {
	b := newBed(t, helm4)
	config := b.ciliumConfig("ipam", "cluster-pool", "routing-mode", "native", "enable-ipv4-masquerade", "true", "ipv4-native-routing-cidr", "100.64.0.0/12")

	for _, major := range majors() {
		t.Run("Helm "+major, func(t *testing.T) {
			b := b.withHelm(t, major)
			b.set(config, "ipam", "cluster-pool")
			install := []string{"install", release, chart, "--dry-run=server"}
			_, err := b.tryHelm(install...)
			wantError(t, err, "Cilium runs with ipam.mode=cluster-pool", "shadow=true")
			notes := b.helm(append(install, "--set", "cilium.skipCheck=true")...)
			wantAll(t, notes, "WARNING: Cilium runs with ipam.mode=cluster-pool")
			notes = b.helm(append(install, "--set", "shadow=true")...)
			wantAll(t, notes, "WARNING: Cilium runs with ipam.mode=cluster-pool", "WARNING: shadow=true")

			b.set(config, "ipam", "crd")
			if notes := b.helm(install...); strings.Contains(notes, "WARNING") {
				t.Errorf("a warning too many:\n%s", notes)
			}
			for _, routes := range []string{"true", "false"} { // by agents, or by the network
				b.set(config, "kvstore", "etcd", "auto-direct-node-routes", routes)
				if got := strings.Contains(b.helm(install...), "WARNING: Cilium's agents run with a kvstore"); got != (routes == "true") {
					t.Errorf("with a kvstore and auto-direct-node-routes=%s the notes warn: %t", routes, got)
				}
			}
			b.set(config, "kvstore", "")

			b.set(config, "ipam", "delegated-plugin")
			install = append(install, "--set", "mode=delegated-plugin")
			_, err = b.tryHelm(install...)
			wantError(t, err, "set cni.configMap=cilium-pool-cni in Cilium's values")
			b.set(config, "read-cni-conf", "/tmp/cni-configuration/cni-config", "enable-bgp-control-plane", "true")
			wantAll(t, b.helm(install...), "WARNING: Cilium's BGP control plane runs")
			b.set(config, "read-cni-conf", "", "enable-bgp-control-plane", "")
		})
	}
}

// ciliumConfig creates the ConfigMap of Cilium's settings.
func (b *bed) ciliumConfig(settings ...string) *corev1.ConfigMap {
	b.Helper()
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "cilium-config"}, Data: withPairs(map[string]string{}, settings...)}
	b.Create(config)
	return config
}

func (b *bed) set(config *corev1.ConfigMap, settings ...string) {
	b.Helper()
	config.Data = withPairs(config.Data, settings...)
	b.Update(config)
}

func wantError(t *testing.T, err error, want ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("accepted; want %q", want)
		return
	}
	wantAll(t, err.Error(), want...)
}

func wantAll(t *testing.T, text string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(text, w) {
			t.Errorf("no %q in:\n%s", w, text)
		}
	}
}

// renderHere renders the chart as an installation in this cluster would, and
// returns the objects and the notes.
func (b *bed) renderHere(args ...string) ([]*unstructured.Unstructured, string) {
	b.Helper()
	out := b.helm(append([]string{"install", release, chart, "--dry-run=server"}, args...)...)
	_, out, _ = strings.Cut(out, "\nMANIFEST:\n")
	manifest, notes, _ := strings.Cut(out, "\nNOTES:\n")
	return objects(b.T, manifest), notes
}

func daemonSet(name, container string, env ...corev1.EnvVar) *appsv1.DaemonSet {
	labels := map[string]string{"k8s-app": name}
	return &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: container, Image: "none", Env: env}}},
			},
		},
	}
}

// Where Cilium replaces kube-proxy, its agents serve the Service "kubernetes" only after this
// operator has run. The chart finds the address to set, and refuses the Service where it cannot
// work; it does not set it by itself.
func TestFindsTheAPIServer(t *testing.T) {
	b := newBed(t, helm4)
	expect := func(when, want string, args ...string) {
		t.Helper()
		for _, major := range majors() {
			_, err := b.withHelm(t, major).tryHelm(append([]string{"install", release, chart, "--dry-run=server"}, args...)...)
			if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want+"\n")) {
				t.Errorf("Helm %s, %s: %v, want %q", major, when, err, want)
			}
		}
	}
	expect("nothing known", "")
	b.Eventually("the API server has made the namespace kube-public", func() error {
		return b.Client.Get(t.Context(), client.ObjectKey{Name: "kube-public"}, &corev1.Namespace{})
	})
	b.Create(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-public", Name: "cluster-info"},
		Data:       map[string]string{"kubeconfig": "clusters: [{name: '', cluster: {server: 'https://[fd00::7]:6443'}}]"},
	})
	expect("kubeadm", "k8sServiceHost=fd00::7,k8sServicePort=6443")
	expect("the value of an older chart", "k8sServiceHost=fd00::7,k8sServicePort=6443", "--set", "k8sServiceHost=auto")
	expect("an address in the values", "", "--set", "k8sServiceHost=192.0.2.9")
	b.Create(daemonSet("cilium", "cilium-agent",
		corev1.EnvVar{Name: "KUBERNETES_SERVICE_HOST", Value: "192.0.2.10"}, corev1.EnvVar{Name: "KUBERNETES_SERVICE_PORT", Value: "6443"}))
	expect("Cilium's k8sServiceHost", "k8sServiceHost=192.0.2.10,k8sServicePort=6443")
	config := b.ciliumConfig("ipam", "crd", "k8s-api-server-urls", "https://api.example.org https://192.0.2.12:6443")
	expect("Cilium's k8s.apiServerURLs", "k8sServiceHost=api.example.org,k8sServicePort=443")
	b.Create(daemonSet("kube-proxy", "kube-proxy"))
	expect("kube-proxy", "")

	b.set(config, "agent-not-ready-taint-key", "example.org/starting")
	expect("another taint of starting agents", "add {key: example.org/starting, operator: Exists} to tolerations")
	expect("one that is tolerated", "", "--set", "tolerations[0].key=example.org/starting,tolerations[0].operator=Exists")
}

// Objects do not depend on Helm's view of the cluster, such as the number of nodes; the notes do.
func TestObjectsDoNotDependOnTheCluster(t *testing.T) {
	objectsDoNotDependOnTheCluster(newBed(t, helm4))
}

func objectsDoNotDependOnTheCluster(b *bed) {
	values := []string{"-f", examples + "/values.yaml", "--set", "nodes.shortageTaint=cilium-pool.io/no-addresses"}
	want := byName(renderBy(b.T, b.major, values...))
	expect := func(nodes int, warns bool) {
		b.Helper()
		all, notes := b.renderHere(values...)
		if diff := cmp.Diff(want, byName(all)); diff != "" {
			b.Errorf("%d nodes (-helm template +in the cluster):\n%s", nodes, diff)
		}
		if strings.Contains(notes, "WARNING: 1 of 2 replicas") != warns {
			b.Errorf("%d nodes: warns: %v, want %v:\n%s", nodes, !warns, warns, notes)
		}
	}
	expect(0, false) // not registered yet
	node := func(name, os string) {
		b.Create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelOSStable: os}}})
	}
	node("n1", "linux")
	node("w1", "windows")
	expect(1, true)
	node("n2", "linux")
	expect(2, false)
	b.Create(daemonSet("cilium", "cilium-agent", corev1.EnvVar{Name: "KUBERNETES_SERVICE_HOST", Value: "192.0.2.11"}))
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "cilium-operator"}}
	d.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"name": d.Name}}
	d.Spec.Template.Labels, d.Spec.Template.Spec.Containers = d.Spec.Selector.MatchLabels, []corev1.Container{{Name: "c", Image: "none"}}
	b.Create(d)
	expect(2, false)
	tolerated := func(want bool) {
		b.Helper()
		if _, notes := b.renderHere(values...); strings.Contains(notes, "cilium-operator does not tolerate cilium-pool.io/no-addresses") == want {
			b.Errorf("cilium-operator tolerates the taint: %v; the notes say:\n%s", want, notes)
		}
	}
	tolerated(false)
	d.Spec.Template.Spec.Tolerations = []corev1.Toleration{{Key: "cilium-pool.io/no-addresses", Operator: corev1.TolerationOpExists}}
	b.Update(d)
	tolerated(true)
}
