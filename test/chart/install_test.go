package chart

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/event"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

// installValues make the operator fast, and use ports that are free on this machine.
const installValues = `
pools:
  beijing:
    nodeSelector: {matchLabels: {topology.kubernetes.io/zone: beijing}}
    ipv4: {blockSize: 28, cidrs: [{cidr: 100.66.224.0/26}]}
metrics: {port: %d}
health: {port: %d}
reclaim: {enabled: false}
handshake: {ackHold: 100ms, ackTimeout: 5s}
cooldown: 1s
nodeGoneCooldown: 1s
cilium: {agentSettleTime: 200ms}
nodes: {shortageTaint: cilium-pool.io/no-addresses}
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
		"upgrades after the operator has run": upgradesAfterTheOperatorHasRun,
		"objects do not depend on it":         objectsDoNotDependOnTheCluster,
	} {
		t.Run(name, func(t *testing.T) { test(newBed(t, helm3)) })
	}
}

func installUpgradeRollbackUninstall(b *bed) {
	ctx, cancel := context.WithCancel(b.Context())
	b.Cleanup(cancel)
	go b.playDeploymentController(ctx)
	metrics, health := freePorts(b.T)
	values := writeFile(b.T, fmt.Sprintf(installValues, metrics, health))
	wait := []string{"-f", values, "--wait", "--timeout", "2m"}
	run := func(args ...string) string { return b.helm(append(args, wait...)...) }

	notes := run("install", release, olderChart(b.T))
	if !strings.Contains(notes, "kubectl get podippools") {
		b.Errorf("the notes do not say what to do next:\n%s", notes)
	}
	op := b.startOperator("--metrics-bind-address=0")
	pool := b.awaitPool("beijing")
	b.Eventually("the operator has written the pool's status", func() error {
		if got := b.pool().Status.ObservedGeneration; got != pool.Generation {
			return fmt.Errorf("observedGeneration is %d, want %d", got, pool.Generation)
		}
		return nil
	})
	op.stop()
	go b.playPoolController(ctx)
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
		if !strings.Contains(notes, "once more") {
			b.Errorf("Helm 3 did not say that it leaves the pool as it was:\n%s", notes)
		}
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

	b.helm("rollback", release, "1", "--wait", "--timeout", "2m")
	b.samePool("a rollback", pool)
	b.hasColumns("after a rollback", false)
	upgrade("8")
	if got := b.samePool("an upgrade after a rollback", pool).Spec.Priority; got != 8 {
		b.Errorf("after the upgrade that follows a rollback the priority is %d", got)
	}
	b.hasColumns("after an upgrade that follows a rollback", true)

	run("upgrade", release, chart, "--set", "pools.beijing.priority=9") // an ordinary upgrade
	if got := b.pool().Spec.Priority; got != 9 {
		b.Errorf("after another upgrade the priority is %d", got)
	}
	run("upgrade", release, chart, "--set", "pools=null")
	b.samePool("being taken out of the values", pool)

	b.helm("uninstall", release, "--wait", "--timeout", "2m")
	b.samePool("uninstalling", pool)
	block := &v1alpha1.PodIPBlock{}
	if b.Read(block, "", "100.66.224.16-28"); block.DeletionTimestamp != nil {
		b.Error("uninstalling deleted a block")
	}
	d := &appsv1.Deployment{}
	if err := b.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: release}, d); !apierrors.IsNotFound(err) {
		b.Errorf("uninstalling left the Deployment: %v", err)
	}
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
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		harness.Must(t, yaml.Unmarshal(data, crd))
		crd.Spec.Versions[0].AdditionalPrinterColumns = nil
		if data, err = yaml.Marshal(crd); err != nil {
			t.Fatal(err)
		}
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

// The operator, with the ServiceAccount's token and the Deployment's arguments, does everything it
// can do. The API server's audit log shows that no request was denied, and that no granted right is
// unused.
func TestRightsAreEnoughAndNoMore(t *testing.T) {
	b := newBed(t, helm4)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	go b.playDeploymentController(ctx)
	b.Create(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "cilium-config"}, Data: map[string]string{"ipam": "crd", "enable-ip-masq-agent": "true"},
	})
	metrics, health := freePorts(t)
	values := writeFile(t, fmt.Sprintf(installValues, metrics, health))
	b.helm("install", release, chart, "-f", values, "--wait", "--timeout", "2m",
		"--set-json", `metrics.readers=[{"kind":"ServiceAccount","name":"prometheus","namespace":"default"}]`)
	certificate, trust := b.certificate()
	op := b.startOperator("--metrics-cert-dir=" + certificate)
	b.Cleanup(func() {
		if b.Failed() {
			b.usedRights() // a missing right shows as a timeout
		}
	})

	b.lifeOfANode(ctx)

	op.servesMetrics(trust)
	op.stop()
	op.seesNothingForbidden()
	used := b.usedRights()
	if !b.ServesServiceCIDRs() {
		used = append(used, "watch servicecidrs.networking.k8s.io")
		slices.Sort(used)
	}
	b.compareRights(b.grantedRights(), used)
}

// lifeOfANode makes the operator do everything it can do.
func (b *bed) lifeOfANode(ctx context.Context) {
	b.Helper()
	b.node("n1", "beijing")
	b.agent(ctx, "n1")

	b.Eventually("a first block is claimed and published", func() error { return b.serves("n1", 1) })
	b.Pods("n1", "few", 20)
	b.Eventually("the node grows", func() error { return b.serves("n1", 2) })
	b.Eventually("the pool says so", func() error {
		if s := b.pool().Status; s.Nodes != 1 || !meta.IsStatusConditionTrue(s.Conditions, v1alpha1.PoolReady) {
			return fmt.Errorf("status is %+v", s)
		}
		return nil
	})

	b.Pods("n1", "many", 80)
	b.Eventually("the operator reports a shortage", func() error { return b.short("n1", true) })
	b.DropPods()
	b.Eventually("the operator reports the end of the shortage", func() error { return b.short("n1", false) })

	block := b.blockOfPods("n1")
	b.Delete(&block)
	b.Gone(&block) // by the handshake
	b.node("n2", "beijing")
	b.Eventually("a node whose agent does not run yet has its CiliumNode", func() error { return b.serves("n2", 1) })
	b.Delete(&ciliumv2.CiliumNode{ObjectMeta: metav1.ObjectMeta{Name: "n2"}})
	b.Eventually("a CiliumNode deleted by hand is restored", func() error { return b.serves("n2", 1) })

	for _, name := range []string{"n1", "n2"} {
		b.Delete(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
		b.Eventually("the CiliumNode and the blocks of a deleted Node go", func() error {
			cn := &ciliumv2.CiliumNode{}
			if err := b.Client.Get(ctx, client.ObjectKey{Name: name}, cn); !apierrors.IsNotFound(err) {
				return fmt.Errorf("CiliumNode: %v", err)
			}
			if blocks := b.Blocks(name); len(blocks) != 0 {
				return fmt.Errorf("%d blocks", len(blocks))
			}
			return nil
		})
	}
	pool := b.pool()
	b.Delete(pool)
	b.Gone(pool)
	b.Eventually("events are there", func() error {
		list := &eventsv1.EventList{}
		if err := b.Client.List(ctx, list); err != nil {
			return err
		}
		for _, e := range list.Items {
			if e.Reason == event.ReasonPodAddressShortage && e.ReportingController == "cilium-pool-operator" {
				return nil
			}
		}
		return fmt.Errorf("no %s among %d", event.ReasonPodAddressShortage, len(list.Items))
	})
}

// An operator of a Deployment without the chart's tolerations, with a kubelet's token and the
// chart's rights, reports the taint that could keep it off all Nodes.
func TestOwnPodWithoutTolerations(t *testing.T) {
	b := newBed(t, helm4)
	metrics, health := freePorts(t)
	b.helm("install", release, chart, "-f", writeFile(t, fmt.Sprintf(installValues, metrics, health)))
	b.pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "by-hand"}, Spec: b.deployment().Spec.Template.Spec}
	b.pod.Spec.Tolerations = nil
	b.Create(b.pod)
	op := b.startOperator("--metrics-bind-address=0")
	b.Eventually("the log names the taint", func() error {
		if log := op.Log(); !strings.Contains(log, "add {key: cilium-pool.io/no-addresses, operator: Exists} to its tolerations") {
			return errors.New(log)
		}
		return nil
	})
}
