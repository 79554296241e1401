package chart

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	eventsv1 "k8s.io/api/events/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/cluster/page"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

// installValues make the operator fast, and let the next one become leader soon after one was killed.
const installValues = `
reclaim: {policy: Never}
cooldown: 1s
nodeGoneCooldown: 1s
nodes: {shortageTaint: cilium-pool.io/no-addresses}
extraArgs: [--ack-hold=100ms, --ack-timeout=5s, --agent-settle-time=200ms, --leader-elect-lease-duration=3s]
`

const beijing = `
apiVersion: cilium-pool.io/v1alpha1
kind: PodIPPool
metadata: {name: beijing, annotations: {helm.sh/resource-policy: keep}}
spec:
  nodeSelector: {matchLabels: {topology.kubernetes.io/zone: beijing}}
  ipv4: {blockSize: 28, cidrs: [{cidr: 100.66.224.0/26}]}
`

// Upgrades, also to other CRDs, and a rollback keep the pools, even one that an older chart had as
// an object of its own; uninstalling leaves CRDs, pools and blocks.
func TestInstallUpgradeRollbackUninstall(t *testing.T) {
	installUpgradeRollbackUninstall(newBed(t, helm4))
}

// TestLongHelm3 repeats all of it with the other major version of Helm.
func TestLongHelm3(t *testing.T) {
	for name, test := range map[string]func(*bed){
		"install to uninstall":        installUpgradeRollbackUninstall, // helm -f accepts no path with a comma
		"remove everything":           removeEverything,
		"objects do not depend on it": objectsDoNotDependOnTheCluster,
	} {
		t.Run(name, func(t *testing.T) { test(newBed(t, helm3)) })
	}
}

func installUpgradeRollbackUninstall(b *bed) {
	run := func(args ...string) string { b.Helper(); return b.helm(append(args, "-f", b.values)...) }

	older := olderChart(b.T)
	wantAll(b.T, run("install", release, older), "There is no pool yet")
	run("upgrade", release, older)
	op := b.startOperator("--metrics-bind-address=0")
	pool := b.pool()
	b.Eventually("the operator has written the pool's status", func() error {
		if got := b.pool().Status.ObservedGeneration; got != pool.Generation {
			return fmt.Errorf("observedGeneration is %d, want %d", got, pool.Generation)
		}
		return nil
	})
	op.stop()
	b.hasColumns("with the older chart", false)

	wantAll(b.T, run("upgrade", release, chart), "kubectl get podippools")
	b.samePool("an upgrade to a chart without it", pool)
	b.hasColumns("after an upgrade", true)
	b.Create(&v1alpha1.PodIPBlock{
		ObjectMeta: metav1.ObjectMeta{Name: "100.66.224.16-28", Finalizers: []string{v1alpha1.Finalizer}},
		Spec:       v1alpha1.PodIPBlockSpec{CIDR: "100.66.224.16/28", PoolName: "beijing", NodeName: "n1", NodeUID: "u"},
	})

	b.helm("rollback", release, "1")
	b.samePool("a rollback", pool)
	b.hasColumns("after a rollback", false)
	run("upgrade", release, chart)
	b.samePool("an upgrade after a rollback", pool)
	b.hasColumns("after an upgrade that follows a rollback", true)

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

// olderChart returns the chart as an earlier version might have been: its CRDs lack something, and it
// has a pool once the API server serves these.
func olderChart(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "cilium-pool-operator")
	harness.Must(t, os.CopyFS(dir, os.DirFS(chart)))
	harness.Must(t, os.WriteFile(filepath.Join(dir, "templates/pool.yaml"),
		[]byte(`{{ if .Capabilities.APIVersions.Has "cilium-pool.io/v1alpha1/PodIPPool" }}`+beijing+"{{ end }}"), 0o600))
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

func (b *bed) createBeijing() {
	b.Helper()
	for _, o := range objects(b.T, beijing) {
		b.Create(o)
	}
}

func (b *bed) pool() *v1alpha1.PodIPPool {
	b.Helper()
	p := &v1alpha1.PodIPPool{}
	b.Read(p, "", "beijing")
	return p
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
	b.createBeijing()
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

// A CRD is deleted only where a person allowed that, and the commands of docs/operations.md bring all of its objects back:
// nodes keep their blocks, and new ones get others.
func TestDeletedCRDComesBack(t *testing.T) {
	b := newBed(t, helm4)
	go b.playDeploymentController(t.Context())
	b.helmWait("install", release, chart)
	b.createBeijing()
	op := b.startOperator()
	b.node("n1")
	b.Eventually("a node holds a block", func() error { return b.serves("n1", 1) })
	before := b.Blocks("n1")

	for _, name := range []string{"podippools", "podipblocks"} {
		crd := crdNamed(name + ".cilium-pool.io")
		if err := b.Client.Delete(t.Context(), crd); !apierrors.IsForbidden(err) {
			t.Fatalf("deleting %s: %v", crd.Name, err)
		}
		b.Must(write(t.Context(), b.Client, crd, false, `{"metadata":{"annotations":{"cilium-pool.io/allow-delete":"true"}}}`))
		b.Must(b.Client.Delete(t.Context(), crd))
	}
	b.Eventually("the block drains", func() error {
		if block := b.Blocks("n1")[0]; block.DeletionTimestamp == nil {
			return errors.New("it is not deleted")
		}
		return nil
	})
	op.stop()
	b.shell("cd " + b.TempDir() + "\nmkdir charts\nln -s " + absolute(t, chart) + " charts/\n" + section(t, "docs/operations.md", "A CRD was deleted"))
	after := b.Blocks("n1")
	if len(after) != 1 || after[0].UID == before[0].UID || after[0].DeletionTimestamp != nil || after[0].Spec != before[0].Spec {
		t.Errorf("the node has %+v, want %+v", after, before)
	}
	b.startOperator()
	b.node("n2")
	b.Eventually("the nodes hold blocks", func() error { return errors.Join(b.serves("n1", 1), b.serves("n2", 1)) })
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	harness.Must(t, err)
	return path
}

// section returns the first shell block of a page below a heading.
func section(t *testing.T, path, heading string) string {
	t.Helper()
	return blockBelow(t, path, heading, "sh")
}

// blockBelow returns the first block of a language below a heading of a page.
func blockBelow(t *testing.T, path, heading, language string) string {
	t.Helper()
	_, after, found := strings.Cut(string(readFile(t, filepath.Join(root, path))), "# "+heading+"\n")
	blocks := page.OfLanguage(after, language)
	if !found || len(blocks) == 0 {
		t.Fatalf("%s has no block below %q", path, heading)
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
