package chart

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/event"
	"github.com/cilium-pool/cilium-pool-operator/test/cluster/page"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

// installValues make the operator fast, and let the next one become leader soon after one was killed.
const installValues = `
pools:
  beijing:
    nodeSelector: {matchLabels: {topology.kubernetes.io/zone: beijing}}
    ipv4: {blockSize: 28, cidrs: [{cidr: 100.66.224.0/26}]}
reclaim: {policy: Never}
cooldown: 1s
nodeGoneCooldown: 1s
nodes: {shortageTaint: cilium-pool.io/no-addresses}
extraArgs: [--ack-hold=100ms, --ack-timeout=5s, --agent-settle-time=200ms, --leader-elect-lease-duration=3s]
`

// One command installs everything, including pools; upgrades, also to other CRDs, and a
// rollback keep the pools; uninstalling leaves CRDs, pools and blocks.
func TestInstallUpgradeRollbackUninstall(t *testing.T) {
	installUpgradeRollbackUninstall(newBed(t, helm4))
}

// TestLongHelm3 repeats all of it with the other major version of Helm.
func TestLongHelm3(t *testing.T) {
	for name, test := range map[string]func(*bed){
		"install to uninstall":                installUpgradeRollbackUninstall, // helm -f accepts no path with a comma
		"remove everything":                   removeEverything,
		"pools of a first installation":       poolsOfAFirstInstallation,
		"pools of kubectl are not taken over": poolsOfKubectlAreNotTakenOver,
		"objects do not depend on it":         objectsDoNotDependOnTheCluster,
	} {
		t.Run(name, func(t *testing.T) { test(newBed(t, helm3)) })
	}
}

func installUpgradeRollbackUninstall(b *bed) {
	run := func(args ...string) string { b.Helper(); return b.helm(append(args, "-f", b.values)...) }

	notes := run("install", release, olderChart(b.T))
	wantAll(b.T, notes, "kubectl get podippools")
	op := b.startOperator("--metrics-bind-address=0")
	pool := b.awaitPool("beijing")
	b.Eventually("the operator has written the pool's status", func() error {
		if got := b.pool().Status.ObservedGeneration; got != pool.Generation {
			return fmt.Errorf("observedGeneration is %d, want %d", got, pool.Generation)
		}
		return nil
	})
	op.stop()
	if got := pool.Spec.IPv4.BlockSize; got != 28 {
		b.Errorf("blockSize of the pool is %d", got)
	}
	b.hasColumns("with the older chart", false)

	upgrade := func(priority string) {
		b.Helper()
		notes := run("upgrade", release, chart, "--set", "pools.beijing.priority="+priority)
		if b.major != helm3 {
			return
		}
		wantAll(b.T, notes, "once more")
		run("upgrade", release, chart, "--set", "pools.beijing.priority="+priority)
	}
	upgrade("7")
	if got := b.samePool("an upgrade", pool).Spec.Priority; got != 7 {
		b.Errorf("after the upgrade the priority is %d", got)
	}
	b.hasColumns("after an upgrade", true)
	b.Create(&v1alpha1.PodIPBlock{
		ObjectMeta: metav1.ObjectMeta{Name: "100.66.224.16-28", Finalizers: []string{v1alpha1.Finalizer}},
		Spec:       v1alpha1.PodIPBlockSpec{CIDR: "100.66.224.16/28", PoolName: "beijing", NodeName: "n1", NodeUID: "u"},
	})

	b.helm("rollback", release, "1")
	b.samePool("a rollback", pool)
	b.hasColumns("after a rollback", false)
	upgrade("8")
	if got := b.samePool("an upgrade after a rollback", pool).Spec.Priority; got != 8 {
		b.Errorf("after the upgrade that follows a rollback the priority is %d", got)
	}
	b.hasColumns("after an upgrade that follows a rollback", true)

	generation := b.pool().Generation
	run("upgrade", release, chart, "--set", "pools.beijing.priority=8")
	if got := b.samePool("an upgrade with the same values", pool).Generation; got != generation {
		b.Errorf("an upgrade with the same values changed the pool: generation %d, was %d", got, generation)
	}
	run("upgrade", release, chart, "--set", "pools.beijing.priority=9") // an ordinary upgrade
	if got := b.pool().Spec.Priority; got != 9 {
		b.Errorf("after another upgrade the priority is %d", got)
	}
	b.helm("rollback", release)
	if p := b.pool(); p.Spec.Priority != 8 || !slices.Contains(p.Finalizers, v1alpha1.Finalizer) { // of the operator
		b.Errorf("after a rollback: priority %d, finalizers %v", p.Spec.Priority, p.Finalizers)
	}
	run("upgrade", release, chart, "--set", "pools=null")
	b.samePool("being taken out of the values", pool)

	b.helm("uninstall", release)
	b.samePool("uninstalling", pool)
	block := &v1alpha1.PodIPBlock{}
	if b.Read(block, "", "100.66.224.16-28"); block.DeletionTimestamp != nil {
		b.Error("uninstalling deleted a block")
	}
	b.Gone(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: release}})
	run("install", release, chart)
	b.samePool("installing again", pool)
}

// olderChart returns the chart as an earlier version might have been, with CRDs that lack
// something.
func olderChart(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "cilium-pool-operator")
	harness.Must(t, os.CopyFS(dir, os.DirFS(chart)))
	files, err := filepath.Glob(filepath.Join(dir, "files/crds/*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no CRDs in the chart: %v", err)
	}
	for _, file := range files {
		crd := parseCRD(t, readFile(t, file))
		crd.Spec.Versions[0].AdditionalPrinterColumns = nil
		data, err := yaml.Marshal(crd)
		harness.Must(t, err)
		harness.Must(t, os.WriteFile(file, data, 0o600))
	}
	return dir
}

func (b *bed) hasColumns(when string, want bool) {
	b.Helper()
	for _, name := range []string{"podippools", "podipblocks"} {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		b.Read(crd, "", name+"."+v1alpha1.GroupVersion.Group)
		if got := len(crd.Spec.Versions[0].AdditionalPrinterColumns) > 0; got != want {
			b.Errorf("%s: the CRD %s has columns: %v, want %v", when, name, got, want)
		}
	}
}

func (b *bed) samePool(after string, want *v1alpha1.PodIPPool) *v1alpha1.PodIPPool {
	b.Helper()
	got := b.pool()
	if got.UID != want.UID || got.DeletionTimestamp != nil {
		b.Errorf("after %s the pool is another, or on its way out", after)
	}
	return got
}

func (b *bed) pool() *v1alpha1.PodIPPool {
	b.Helper()
	p := &v1alpha1.PodIPPool{}
	b.Read(p, "", "beijing")
	return p
}

// Helm does not own a pool created by kubectl, and its own error does not name a fix. The chart
// explains how to proceed, and the way it names works.
func TestPoolsOfKubectlAreNotTakenOver(t *testing.T) { poolsOfKubectlAreNotTakenOver(newBed(t, helm4)) }

func poolsOfKubectlAreNotTakenOver(b *bed) {
	wantAll(b.T, b.helm("install", release, chart), "There is no pool yet")
	b.Create(&v1alpha1.PodIPPool{ObjectMeta: metav1.ObjectMeta{Name: "beijing"}, Spec: v1alpha1.PodIPPoolSpec{
		IPv4: &v1alpha1.IPv4Ranges{BlockSize: 28, CIDRs: []v1alpha1.PoolCIDR{{CIDR: "100.66.224.0/26"}}},
	}})
	if notes := b.helm("upgrade", release, chart); strings.Contains(notes, "There is no pool yet") {
		b.Errorf("the notes do not see the pool:\n%s", notes)
	}
	wantAll(b.T, b.helm("upgrade", release, chart, "--dry-run=server", "--set-json", `pools={"wide":{"ipv4":{"blockSize":28,"cidrs":[{"cidr":"100.66.224.0/24"}]}}}`),
		"100.66.224.0/24 of pool wide overlaps 100.66.224.0/26, of PodIPPool beijing: the older pool assigns the blocks of both")
	values := writeFile(b.T, installValues)
	_, err := b.tryHelm("upgrade", release, chart, "-f", values)
	wantError(b.T, err, "PodIPPool beijing exists and was not made by Helm", "remove it from pools in the values",
		"kubectl annotate podippool beijing meta.helm.sh/release-name="+release)
	pool := b.pool()
	pool.Annotations = map[string]string{"meta.helm.sh/release-name": release, "meta.helm.sh/release-namespace": namespace}
	pool.Labels = map[string]string{"app.kubernetes.io/managed-by": "Helm"}
	b.Must(b.Client.Update(b.Context(), pool))
	b.helm("upgrade", release, chart, "-f", values)
}

const initialPools = release + "-initial-pools"

// awaitPool waits until the operator has created a pool of the values.
func (b *bed) awaitPool(name string) *v1alpha1.PodIPPool {
	b.Helper()
	pool := &v1alpha1.PodIPPool{ObjectMeta: metav1.ObjectMeta{Name: name}}
	b.Eventually("pool "+name+" is created and recorded", func() error {
		if err := b.Client.Get(b.Context(), client.ObjectKeyFromObject(pool), pool); err != nil {
			return err
		}
		config := &corev1.ConfigMap{}
		b.Read(config, namespace, initialPools)
		if recorded := strings.Fields(config.Annotations[v1alpha1.CreatedPoolsAnnotation]); !slices.Contains(recorded, name) {
			return fmt.Errorf("recorded are %v", recorded)
		}
		return nil
	})
	return pool
}

// addInitialPool writes a pool into the ConfigMap.
func (b *bed) addInitialPool(name, spec string) {
	b.Helper()
	config := &corev1.ConfigMap{}
	b.Read(config, namespace, initialPools)
	config.Data[name] = fmt.Sprintf("apiVersion: cilium-pool.io/v1alpha1\nkind: PodIPPool\nmetadata: {name: %s}\nspec: %s\n", name, spec)
	b.Must(b.Client.Update(b.Context(), config))
}

// Pools of the values exist even if the first installation timed out. The operator creates
// them, once, and Helm owns them from the next upgrade on.
func TestPoolsOfAFirstInstallation(t *testing.T) { poolsOfAFirstInstallation(newBed(t, helm4)) }

func poolsOfAFirstInstallation(b *bed) {
	second := "--set-json=pools.shanghai={\"ipv4\":{\"blockSize\":28,\"cidrs\":[{\"cidr\":\"100.68.0.0/26\"}]}}"
	// No Deployment controller runs: no pod becomes ready.
	if _, err := b.tryHelm("install", release, chart, second, "-f", b.values, "--wait", "--timeout=3s"); err == nil {
		b.Fatal("an installation whose Deployment is never ready succeeded")
	}
	op := b.startOperator("--metrics-bind-address=0")
	beijing := b.awaitPool("beijing")
	shanghai := b.awaitPool("shanghai")
	b.Delete(shanghai)
	b.Gone(shanghai)
	b.Must(op.Kill())

	// Once the last pool of the ConfigMap is created, all earlier ones have been processed.
	b.addInitialPool("wrong", "{ipv4: {blockSizes: 28, blockSize: 28, cidrs: [{cidr: 100.69.0.0/26}]}}")
	b.addInitialPool("zunyi", "{ipv4: {blockSize: 28, cidrs: [{cidr: 100.70.0.0/26}]}}")
	op = b.startOperator("--metrics-bind-address=0")
	b.awaitPool("zunyi")
	if err := b.Client.Get(b.Context(), client.ObjectKeyFromObject(shanghai), shanghai); !apierrors.IsNotFound(err) {
		b.Errorf("a restart of the operator brought a deleted pool back: %v", err)
	}
	b.reported(event.ReasonInitialPoolRefused, "pools.wrong in the chart's values", "blockSizes")

	go b.playDeploymentController(b.Context())
	upgrade := func() {
		b.Helper()
		b.helmWait("upgrade", release, chart, "--set=pools.beijing.priority=5")
	}
	upgrade()
	if b.major == helm3 {
		upgrade()
	}
	pool := b.samePool("the first upgrade", beijing)
	if pool.Spec.Priority != 5 || !slices.Contains(pool.Finalizers, v1alpha1.Finalizer) {
		b.Errorf("after the upgrade: priority %d, finalizers %v", pool.Spec.Priority, pool.Finalizers)
	}
	b.Gone(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: initialPools}})
	op.stop()
}

// reported waits for an event of the operator with these parts in its note.
func (b *bed) reported(reason string, parts ...string) {
	b.Helper()
	b.Eventually("the event "+reason, func() error {
		list := &eventsv1.EventList{}
		b.Must(b.Client.List(b.Context(), list))
		for _, e := range list.Items {
			if e.Reason == reason && e.ReportingController == release {
				wantAll(b.T, e.Note, parts...)
				return nil
			}
		}
		return fmt.Errorf("not among %d", len(list.Items))
	})
}

// The commands of docs/operations.md that remove everything leave no object behind, and hang on no
// finalizer, although the operator's nodes still hold blocks.
func TestRemoveEverything(t *testing.T) { removeEverything(newBed(t, helm4)) }

func removeEverything(b *bed) {
	go b.playDeploymentController(b.Context())
	b.helmWait("install", release, chart)
	before := b.objectsOfOurs()
	op := b.startOperator()
	container := b.deployment().Spec.Template.Spec.Containers[0]
	b.Eventually("metrics are served with a self-signed certificate", func() error {
		_, err := get(b.Context(), container, "metrics", "/metrics", rest.Config{TLSClientConfig: rest.TLSClientConfig{Insecure: true}})
		if !apierrors.IsUnauthorized(err) {
			return fmt.Errorf("without a token: %w", err)
		}
		return nil
	})
	b.node("n1")
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
	_, after, found := strings.Cut(string(readFile(t, filepath.Join(root, path))), "# "+heading+"\n")
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
	b.Must(err)
	helm, err := harness.HelmPath(b.major)
	b.Must(err)
	for name, path := range map[string]string{"helm": helm, "kubectl": kubectl} {
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

func (b *bed) kubectl(args ...string) string {
	b.Helper()
	out, err := exec.CommandContext(b.Context(), filepath.Join(b.cluster.BinDir(), "kubectl"), append(args, "--kubeconfig", b.kubeconfig())...).Output()
	b.Must(err)
	return string(out)
}

// objectsOfOurs returns all objects with our names or labels, of every kind that the API
// server can list.
func (b *bed) objectsOfOurs() []string {
	b.Helper()
	list := &metav1.PartialObjectMetadataList{}
	if out := b.kubectl("get", strings.Join(strings.Fields(b.kubectl("api-resources", "--verbs=list", "-o", "name")), ","), "-A", "-o", "json", "--ignore-not-found"); out != "" {
		b.Must(json.Unmarshal([]byte(out), list))
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
