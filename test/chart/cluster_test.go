package chart

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	ciliumcrds "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/client/crds/v2"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/crds"
	"github.com/cilium-pool/cilium-pool-operator/test/cluster/page"
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
	if err != nil {
		t.Fatal(err)
	}
	found := []*apiextensionsv1.CustomResourceDefinition{parseCRD(t, policy)}
	cmd := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", "github.com/prometheus-operator/prometheus-operator")
	cmd.Dir = root + "/hack/tools/prometheus-operator"
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var module struct{ Dir string }
	harness.Must(t, json.Unmarshal(out, &module))
	for _, kind := range []string{"servicemonitors", "podmonitors", "prometheusrules"} {
		data, err := os.ReadFile(filepath.Join(module.Dir, "example/prometheus-operator-crd/monitoring.coreos.com_"+kind+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, parseCRD(t, data))
	}
	return found
}

// The API server accepts each object that the chart can render, without unknown fields.
func TestEveryObjectIsAccepted(t *testing.T) {
	b := newBed(t, helm4)
	own, err := crds.All()
	if err != nil {
		t.Fatal(err)
	}
	harness.Must(t, b.cluster.InstallCRDs(t.Context(), append(own, foreignCRDs(t)...)...))
	kinds := map[string]bool{}
	for _, o := range render(t, "-f", writeFile(t, everything), "--set", "crds.install=false", "--api-versions", "cilium-pool.io/v1alpha1/PodIPPool") {
		kinds[o.GetKind()] = true
		err := client.NewDryRunClient(b.Client).Create(t.Context(), o, client.FieldValidation(metav1.FieldValidationStrict))
		if err != nil {
			t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), err)
		}
	}
	for _, kind := range []string{
		"ServiceMonitor", "PodMonitor", "PrometheusRule", "CiliumClusterwideNetworkPolicy", "PodDisruptionBudget",
		"PriorityLevelConfiguration", "FlowSchema", "ConfigMap", "PodIPPool",
	} {
		if !kinds[kind] {
			t.Errorf("no %s was tried", kind)
		}
	}
	// The default shape of a monitor differs from the one above.
	for _, o := range ofKind(t, render(t, "--set", "metrics.serviceMonitor.enabled=true"), "ServiceMonitor") {
		if err := client.NewDryRunClient(b.Client).Create(t.Context(), o, client.FieldValidation(metav1.FieldValidationStrict)); err != nil {
			t.Error(err)
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
	config := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "cilium-config"},
		Data: map[string]string{
			"ipam": "cluster-pool", "routing-mode": "native", "enable-ipv4-masquerade": "true", "ipv4-native-routing-cidr": "100.64.0.0/12",
		},
	}
	b.Create(config)
	b.node("n1", "beijing") // 192.0.2.7
	kubernetes := &corev1.Service{}
	b.Eventually("the Service kubernetes is there", func() error {
		return b.Client.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "kubernetes"}, kubernetes)
	})
	values := writeFile(t, fmt.Sprintf(`
pools:
  good: {ipv4: {blockSize: 28, cidrs: [{cidr: 100.66.224.0/26}]}}
  bad: {ipv4: {blockSize: 28, cidrs: [{cidr: 192.0.2.0/24}, {cidr: %s/30}]}}
`, kubernetes.Spec.ClusterIP))

	for _, major := range majors() {
		t.Run("Helm "+major, func(t *testing.T) {
			b := &bed{T: t, Bed: &harness.Bed{TB: t, Ctx: t.Context(), Client: b.Client}, major: major, cluster: b.cluster}
			b.setConfig(config, "ipam", "cluster-pool")
			install := []string{"install", release, chart, "-f", values, "--dry-run=server"}
			_, err := b.tryHelm(install...)
			wantError(t, err, "Cilium runs with ipam.mode=cluster-pool", "shadow=true")
			notes := b.helm(append(install, "--set", "cilium.skipCheck=true")...)
			wantAll(t, notes, "WARNING: Cilium runs with ipam.mode=cluster-pool")
			notes = b.helm(append(install, "--set", "shadow=true")...)
			wantAll(t, notes, "WARNING: Cilium runs with ipam.mode=cluster-pool", "WARNING: shadow=true")

			b.setConfig(config, "ipam", "crd")
			warnings := []string{
				"192.0.2.0/24 of pool bad overlaps 192.0.2.7, an address of Node n1",
				"192.0.2.0/24 of pool bad is not within 100.64.0.0/12",
				"/30 of pool bad overlaps " + kubernetes.Spec.ClusterIP + ", the address of the Service kubernetes",
			}
			if b.ServesServiceCIDRs() {
				warnings = append(warnings, ", a range of Services")
			}
			notes = b.helm(install...)
			wantAll(t, notes, append(warnings, "WARNING: pools in the values do not fit this cluster")...)
			if strings.Contains(notes, "of pool good overlaps") || strings.Contains(notes, "of pool good is not") || strings.Contains(notes, "ipam.mode=crd:") {
				t.Errorf("a warning too many:\n%s", notes)
			}
			wantAll(t, notes, "neither private nor shared address space", "\n- 192.0.2.0/24 of pool bad\n")
			if strings.Contains(notes, "- 100.66.224.0/26 of") || strings.Contains(notes, "/30 of pool bad\n") {
				t.Errorf("private ranges are listed:\n%s", notes)
			}
			notes = b.helm(append(install, "--set-string", `commonAnnotations.cilium-pool\.io/own-ranges=true`)...)
			if strings.Contains(notes, "neither private nor shared") {
				t.Errorf("ranges of our own are listed:\n%s", notes)
			}
			_, err = b.tryHelm(append(install, "--set", "preflight.pools=fail")...)
			wantError(t, err, warnings...)
			b.helm("install", release, chart, "--dry-run=server", "--set-json", `pools={"p":{"ipv4":{"blockSize":27,"cidrs":[{"cidr":"100.64.0.0/27"}]},`+
				`"ipv6":{"blockSize":122,"cidrs":[{"cidr":"2001:db8::/64"}]}}}`, "--set", "preflight.pools=fail")
			if notes := b.helm(append(install, "--set", "preflight.pools=off")...); strings.Contains(notes, "WARNING") {
				t.Errorf("preflight.pools=off, and yet:\n%s", notes)
			}
			for _, routes := range []string{"true", "false"} { // by agents, or by the network
				b.setConfig(config, "kvstore", "etcd", "auto-direct-node-routes", routes)
				if got := strings.Contains(b.helm(install...), "WARNING: Cilium's agents run with a kvstore"); got != (routes == "true") {
					t.Errorf("with a kvstore and auto-direct-node-routes=%s the notes warn: %t", routes, got)
				}
			}
			b.setConfig(config, "kvstore", "")
		})
	}
}

func (b *bed) setConfig(config *corev1.ConfigMap, settings ...string) {
	b.Helper()
	for pair := range slices.Chunk(settings, 2) {
		config.Data[pair[0]] = pair[1]
	}
	b.Must(b.Client.Update(b.Context(), config))
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

// The commands of docs/operations.md that remove everything leave no object behind, and hang on no
// finalizer, although the operator's nodes still hold blocks.
func TestRemoveEverything(t *testing.T) { removeEverything(newBed(t, helm4)) }

func removeEverything(b *bed) {
	ctx, cancel := context.WithCancel(b.Context())
	b.Cleanup(cancel)
	go b.playDeploymentController(ctx)
	metrics, health := freePorts(b.T)
	values := writeFile(b.T, fmt.Sprintf(installValues, metrics, health))
	b.helm("install", release, chart, "-f", values, "--wait", "--timeout", "2m")
	before := b.objectsOfOurs()
	op := b.startOperator()
	container := b.deployment().Spec.Template.Spec.Containers[0]
	b.Eventually("metrics are served with a self-signed certificate", func() error {
		_, err := get(ctx, container, "metrics", "/metrics", "", &tls.Config{InsecureSkipVerify: true})
		if err == nil || !strings.Contains(err.Error(), "401 Unauthorized") {
			return fmt.Errorf("without a token: %v", err)
		}
		return nil
	})
	b.node("n1", "beijing")
	b.Eventually("a node holds a block", func() error { return b.serves("n1", 1) })
	op.stop()

	b.shell(section(b.T, "docs/operations.md", "Remove everything"))
	if left := b.objectsOfOurs(); len(left) > 0 {
		b.Errorf("left are %v", left)
	}
	if len(before) < 10 {
		b.Errorf("of the chart's objects only %v were seen", before)
	}
}

// section returns the shell block of a page below a heading.
func section(t *testing.T, path, heading string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, path))
	harness.Must(t, err)
	_, after, found := strings.Cut(string(data), "# "+heading+"\n")
	blocks := page.OfLanguage(after, "sh")
	if !found || len(blocks) == 0 {
		t.Fatalf("%s has no commands below %q", path, heading)
	}
	return blocks[0]
}

// shell runs commands as a person would, with kubectl and Helm on the path.
func (b *bed) shell(script string) {
	b.Helper()
	bin := b.TempDir()
	kubectl, err := filepath.Abs(filepath.Join(b.cluster.BinDir(), "kubectl"))
	if err != nil {
		b.Fatal(err)
	}
	for name, path := range map[string]string{"helm": helmPath(b.T, b.major), "kubectl": kubectl} {
		b.Must(os.Symlink(path, filepath.Join(bin, name)))
	}
	cmd := exec.CommandContext(b.Context(), "bash", "-euo", "pipefail", "-c", script)
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "HOME="+bin, "KUBECONFIG="+b.kubeconfig())
	out, err := cmd.CombinedOutput()
	if err != nil {
		b.Fatalf("%v\n%s\n%s", err, script, out)
	}
	b.Logf("%s", out)
}

// objectsOfOurs returns all objects with our names or labels, of every kind that the API
// server can list.
func (b *bed) objectsOfOurs() []string {
	b.Helper()
	kubectl := func(args ...string) []byte {
		cmd := exec.CommandContext(b.Context(), filepath.Join(b.cluster.BinDir(), "kubectl"), append(args, "--kubeconfig", b.kubeconfig())...)
		out, err := cmd.Output()
		if err != nil {
			b.Fatalf("kubectl %v: %v", args, err)
		}
		return out
	}
	resources := strings.Fields(string(kubectl("api-resources", "--verbs=list", "-o", "name")))
	var list struct {
		Items []struct {
			Kind              string
			metav1.ObjectMeta `json:"metadata"`
		}
	}
	out := kubectl("get", strings.Join(resources, ","), "-A", "-o", "json", "--ignore-not-found")
	if len(bytes.TrimSpace(out)) > 0 {
		b.Must(json.Unmarshal(out, &list))
	}
	var found []string
	for _, o := range list.Items {
		ours := o.Labels["app.kubernetes.io/instance"] == release || strings.Contains(o.Name, "cilium-pool") ||
			strings.HasPrefix(o.Kind, "PodIP")
		// No controller runs here that deletes the objects owned by a Deployment.
		if ours && o.Kind != "Event" && o.Kind != "ReplicaSet" {
			found = append(found, o.Kind+" "+o.Name)
		}
	}
	return found
}
