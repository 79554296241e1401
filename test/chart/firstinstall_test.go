package chart

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

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
			here := &bed{T: t, Bed: &harness.Bed{TB: t, Ctx: t.Context(), Client: b.Client}, major: major, cluster: b.cluster}
			_, err := here.tryHelm(append([]string{"install", release, chart, "--dry-run=server"}, args...)...)
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
	config := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "cilium-config"},
		Data:       map[string]string{"ipam": "crd", "k8s-api-server-urls": "https://api.example.org https://192.0.2.12:6443"},
	}
	b.Create(config)
	expect("Cilium's k8s.apiServerURLs", "k8sServiceHost=api.example.org,k8sServicePort=443")
	b.Create(daemonSet("kube-proxy", "kube-proxy"))
	expect("kube-proxy", "")

	config.Data["agent-not-ready-taint-key"] = "example.org/starting"
	b.Must(b.Client.Update(t.Context(), config))
	expect("another taint of starting agents", "add {key: example.org/starting, operator: Exists} to tolerations")
	expect("one that is tolerated", "", "--set", "tolerations[0].key=example.org/starting,tolerations[0].operator=Exists")
}

// Objects do not depend on Helm's view of the cluster, such as the number of nodes; the notes do.
func TestObjectsDoNotDependOnTheCluster(t *testing.T) {
	objectsDoNotDependOnTheCluster(newBed(t, helm4))
}

func objectsDoNotDependOnTheCluster(b *bed) {
	byName := func(all []*unstructured.Unstructured) map[string]any {
		m := map[string]any{}
		for _, o := range all {
			m[o.GetKind()+" "+o.GetName()] = o.Object
		}
		return m
	}
	values := []string{"-f", examples + "/values.yaml", "-f", examples + "/values-pools.yaml"}
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
	const intolerant = "cilium-operator does not tolerate cilium-pool.io/no-addresses"
	if _, notes := b.renderHere(values...); !strings.Contains(notes, intolerant) {
		b.Errorf("no warning of cilium-operator:\n%s", notes)
	}
	d.Spec.Template.Spec.Tolerations = []corev1.Toleration{{Key: "cilium-pool.io/no-addresses", Operator: corev1.TolerationOpExists}}
	b.Must(b.Client.Update(b.Context(), d))
	if _, notes := b.renderHere(values...); strings.Contains(notes, intolerant) {
		b.Errorf("a warning of a cilium-operator that tolerates it:\n%s", notes)
	}
}

// Helm does not own a pool created by kubectl, and its own error does not name a fix. The chart
// explains how to proceed, and the way it names works.
func TestPoolsOfKubectlAreNotTakenOver(t *testing.T) { poolsOfKubectlAreNotTakenOver(newBed(t, helm4)) }

func poolsOfKubectlAreNotTakenOver(b *bed) {
	go b.playDeploymentController(b.Context())
	notes := b.helm("install", release, chart)
	wantAll(b.T, notes, "There is no pool yet")
	b.Create(&v1alpha1.PodIPPool{ObjectMeta: metav1.ObjectMeta{Name: "beijing"}, Spec: v1alpha1.PodIPPoolSpec{
		IPv4: &v1alpha1.IPv4Ranges{BlockSize: 28, CIDRs: []v1alpha1.PoolCIDR{{CIDR: "100.66.224.0/26"}}},
	}})
	if notes = b.helm("upgrade", release, chart); strings.Contains(notes, "There is no pool yet") {
		b.Errorf("the notes do not see the pool:\n%s", notes)
	}
	wantAll(b.T, b.helm("upgrade", release, chart, "--dry-run=server", "--set-json", `pools={"wide":{"ipv4":{"blockSize":28,"cidrs":[{"cidr":"100.66.224.0/24"}]}}}`),
		"100.66.224.0/24 of pool wide overlaps 100.66.224.0/26, of PodIPPool beijing: the older pool assigns the blocks of both")
	values := writeFile(b.T, fmt.Sprintf(installValues, 9870, 9871))
	_, err := b.tryHelm("upgrade", release, chart, "-f", values)
	wantError(b.T, err, "PodIPPool beijing exists and was not made by Helm", "remove it from pools in the values",
		"kubectl annotate podippool beijing meta.helm.sh/release-name="+release)
	pool := b.pool()
	pool.Annotations = map[string]string{"meta.helm.sh/release-name": release, "meta.helm.sh/release-namespace": namespace}
	pool.Labels = map[string]string{"app.kubernetes.io/managed-by": "Helm"}
	b.Must(b.Client.Update(b.Context(), pool))
	b.helm("upgrade", release, chart, "-f", values)
}

// The operator owns its writes to pools and blocks: Helm, when it applies the same values again,
// sees no difference to revert.
func TestUpgradesAfterTheOperatorHasRun(t *testing.T) {
	upgradesAfterTheOperatorHasRun(newBed(t, helm4))
}

func upgradesAfterTheOperatorHasRun(b *bed) {
	go b.playDeploymentController(b.Context())
	metrics, health := freePorts(b.T)
	values := []string{
		"-f", examples + "/values.yaml", "-f", examples + "/values-pools.yaml",
		"--set", fmt.Sprintf("metrics.port=%d,health.port=%d", metrics, health), "--wait", "--timeout", "2m",
	}
	run := func(args ...string) { b.Helper(); b.helm(append(args, values...)...) }
	run("install", release, chart)
	b.Create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "n1", Labels: map[string]string{"node-restriction.kubernetes.io/zone": "beijing"},
	}})
	b.startOperator("--metrics-bind-address=0")
	b.awaitPool("beijing")
	b.Eventually("the operator has finalized the pool", func() error {
		if p := b.pool(); len(p.Finalizers) == 0 || p.Status.Nodes != 1 {
			return fmt.Errorf("finalizers %v, status %+v", p.Finalizers, p.Status)
		}
		return nil
	})
	generation := b.pool().Generation
	run("upgrade", release, chart)
	run("upgrade", release, chart) // Helm 3 compares only once it owns the pool
	if got := b.pool().Generation; got != generation {
		b.Errorf("an upgrade with the same values changed the pool: generation %d, was %d", got, generation)
	}
	run("upgrade", release, chart, "--set", "pools.beijing.priority=5")
	if got := b.pool().Spec.Priority; got != 5 {
		b.Errorf("after an upgrade the priority is %d", got)
	}
	b.helm("rollback", release, "--wait", "--timeout", "2m")
	if p := b.pool(); p.Spec.Priority != 0 || len(p.Finalizers) == 0 {
		b.Errorf("after a rollback: priority %d, finalizers %v", p.Spec.Priority, p.Finalizers)
	}
}
