package chart

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/controller"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
)

// patience bounds every wait; it is never slept through.
const patience = 90 * time.Second

// installValues make the operator quick, and put it where this machine has room.
const installValues = `
pools:
  beijing:
    nodeSelector: {matchLabels: {topology.kubernetes.io/zone: beijing}}
    ipv4: {blockSize: 28, cidrs: [{cidr: 100.162.224.0/26}]}
metrics: {port: %d}
health: {port: %d}
reclaim: {enabled: false}
handshake: {ackHold: 100ms, ackTimeout: 5s}
cooldown: 1s
nodeGoneCooldown: 1s
cilium: {agentSettleTime: 200ms}
nodes: {shortageTaint: cilium-pool.io/no-addresses}
`

// One command installs all, pools included; an upgrade takes the pools over;
// uninstalling leaves CRDs and pools.
func TestInstallUpgradeUninstall(t *testing.T) {
	b := newBed(t)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	go b.playDeploymentController(ctx)

	values := writeFile(t, fmt.Sprintf(installValues, 9870, 9871))
	notes := b.helm("install", release, chart, "-f", values, "--wait", "--timeout", "2m")
	if !strings.Contains(notes, "kubectl get podippools") {
		t.Errorf("the notes do not say what to do next:\n%s", notes)
	}
	pool := b.pool()
	if got := pool.Spec.IPv4.BlockSize; got != 28 {
		t.Errorf("blockSize of the pool is %d", got)
	}

	b.helm("upgrade", release, chart, "-f", values, "--set", "pools.beijing.priority=7", "--wait", "--timeout", "2m")
	upgraded := b.pool()
	if upgraded.UID != pool.UID || upgraded.Spec.Priority != 7 {
		t.Errorf("after the upgrade the pool is another (%v), or its priority %d is not 7", upgraded.UID != pool.UID, upgraded.Spec.Priority)
	}

	// A CRD that lacks something gets it back by an upgrade.
	crd := &apiextensionsv1.CustomResourceDefinition{}
	key := client.ObjectKey{Name: "podippools." + v1alpha1.GroupVersion.Group}
	if err := b.client.Get(ctx, key, crd); err != nil {
		t.Fatal(err)
	}
	crd.Spec.Versions[0].AdditionalPrinterColumns = nil
	if err := b.client.Update(ctx, crd); err != nil {
		t.Fatal(err)
	}
	b.helm("upgrade", release, chart, "-f", values, "--force-conflicts", "--wait", "--timeout", "2m")
	if err := b.client.Get(ctx, key, crd); err != nil {
		t.Fatal(err)
	}
	if len(crd.Spec.Versions[0].AdditionalPrinterColumns) == 0 {
		t.Error("the upgrade did not upgrade the CRD")
	}

	b.helm("uninstall", release, "--wait", "--timeout", "2m")
	if left := b.pool(); left.UID != pool.UID || left.DeletionTimestamp != nil {
		t.Error("uninstalling deleted the pool")
	}
	d := &appsv1.Deployment{}
	if err := b.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: release}, d); !apierrors.IsNotFound(err) {
		t.Errorf("uninstalling left the Deployment: %v", err)
	}

	b.helm("install", release, chart, "-f", values, "--wait", "--timeout", "2m")
	if again := b.pool(); again.UID != pool.UID {
		t.Error("installing again made another pool")
	}
}

func (b *bed) pool() *v1alpha1.PodIPPool {
	b.Helper()
	p := &v1alpha1.PodIPPool{}
	if err := b.client.Get(b.Context(), client.ObjectKey{Name: "beijing"}, p); err != nil {
		b.Fatal(err)
	}
	return p
}

// The operator, with the ServiceAccount's token and the Deployment's arguments,
// goes through all it does; the API server's audit log tells that nothing was
// denied, and that nothing is granted that is not used.
func TestRightsAreEnoughAndNoMore(t *testing.T) {
	b := newBed(t)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	go b.playDeploymentController(ctx)
	b.create(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "cilium-config"}, Data: map[string]string{"ipam": "crd"},
	})
	values := writeFile(t, fmt.Sprintf(installValues, freePort(t), freePort(t)))
	b.helm("install", release, chart, "-f", values, "--wait", "--timeout", "2m")
	op := b.startOperator()
	b.Cleanup(func() {
		if b.Failed() {
			b.usedRights() // a right that is missing shows as a wait in vain
		}
	})

	b.lifeOfANode(ctx)

	op.stop()
	op.seesNothingForbidden()
	used := b.usedRights()
	b.compareRights(b.grantedRights(), used)
}

// lifeOfANode makes the operator do all it can do.
func (b *bed) lifeOfANode(ctx context.Context) {
	b.Helper()
	b.node("n1", "beijing")
	b.agent(ctx, "n1")

	b.eventually("a first block is claimed and published", func() error { return b.serves("n1", 1) })
	b.pods("n1", 20)
	b.eventually("the node grows", func() error { return b.serves("n1", 2) })
	b.eventually("the pool says so", func() error {
		if s := b.pool().Status; s.Nodes != 1 || !meta.IsStatusConditionTrue(s.Conditions, v1alpha1.PoolReady) {
			return fmt.Errorf("status is %+v", s)
		}
		return nil
	})

	b.pods("n1", 80)
	b.eventually("a shortage is told", func() error { return b.short("n1", true) })
	b.deletePods()
	b.eventually("the end of the shortage is told", func() error { return b.short("n1", false) })

	block := b.blockOfPods("n1")
	b.delete(&block)
	b.eventually("a deleted block drains by the handshake", func() error {
		if err := b.client.Get(ctx, client.ObjectKeyFromObject(&block), &v1alpha1.PodIPBlock{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("block: %v", err)
		}
		return nil
	})
	b.node("n2", "beijing")
	b.eventually("a node whose agent does not run yet has its CiliumNode", func() error { return b.serves("n2", 1) })
	b.delete(&ciliumv2.CiliumNode{ObjectMeta: metav1.ObjectMeta{Name: "n2"}})
	b.eventually("a CiliumNode deleted by hand is put back", func() error { return b.serves("n2", 1) })

	for _, name := range []string{"n1", "n2"} {
		b.delete(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
		b.eventually("the CiliumNode and the blocks of a deleted Node go", func() error {
			cn := &ciliumv2.CiliumNode{}
			if err := b.client.Get(ctx, client.ObjectKey{Name: name}, cn); !apierrors.IsNotFound(err) {
				return fmt.Errorf("CiliumNode: %v", err)
			}
			if blocks := b.blocks(name); len(blocks) != 0 {
				return fmt.Errorf("%d blocks", len(blocks))
			}
			return nil
		})
	}
	b.delete(b.pool())
	b.eventually("a deleted pool goes", func() error {
		if err := b.client.Get(ctx, client.ObjectKey{Name: "beijing"}, &v1alpha1.PodIPPool{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("pool: %v", err)
		}
		return nil
	})
	b.eventually("events are there", func() error {
		list := &eventsv1.EventList{}
		if err := b.client.List(ctx, list); err != nil {
			return err
		}
		for _, e := range list.Items {
			if e.Reason == controller.EventAddressShortage && e.ReportingController == "cilium-pool-operator" {
				return nil
			}
		}
		return fmt.Errorf("no %s among %d", controller.EventAddressShortage, len(list.Items))
	})
}
