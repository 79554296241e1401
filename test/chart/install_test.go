package chart

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
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
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/controller"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/agent"
	"github.com/cilium-pool/cilium-pool-operator/test/controlplane"
	"github.com/cilium-pool/cilium-pool-operator/test/controlplane/cptest"
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

// bed is a cluster with Cilium's CRDs, and nothing of ours.
type bed struct {
	*testing.T
	cluster *controlplane.Cluster
	client  client.WithWatch
}

func newBed(t *testing.T) *bed {
	t.Helper()
	cilium, err := controlplane.CiliumCRDs()
	if err != nil {
		t.Fatal(err)
	}
	cluster := cptest.New(t, controlplane.Options{CRDs: cilium, AuditLog: true})
	scheme, err := controller.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c, err := client.NewWithWatch(cluster.Config(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return &bed{T: t, cluster: cluster, client: c}
}

func (b *bed) helm(args ...string) string {
	b.Helper()
	return helm(b.T, append(args, "--namespace", namespace, "--kubeconfig", filepath.Join(b.cluster.Dir(), "kubeconfig"))...)
}

func (b *bed) create(o client.Object) {
	b.Helper()
	if err := b.client.Create(b.Context(), o); err != nil {
		b.Fatalf("creating %T %s: %v", o, o.GetName(), err)
	}
}

func (b *bed) delete(o client.Object) {
	b.Helper()
	if err := b.client.Delete(b.Context(), o, client.GracePeriodSeconds(0)); err != nil {
		b.Fatalf("deleting %T %s: %v", o, o.GetName(), err)
	}
}

// eventually waits until holds returns nil, or fails with its last error.
func (b *bed) eventually(what string, holds func() error) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), patience)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := holds()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			b.Fatalf("%s: not within %s: %v", what, patience, err)
		case <-tick.C:
		}
	}
}

// playDeploymentController reports the Deployment as rolled out, as no kubelet
// runs here: helm --wait waits for that.
func (b *bed) playDeploymentController(ctx context.Context) {
	for ctx.Err() == nil {
		d := &appsv1.Deployment{}
		key := client.ObjectKey{Namespace: namespace, Name: release}
		if err := b.client.Get(ctx, key, d); err == nil && d.Status.ObservedGeneration != d.Generation {
			n := *d.Spec.Replicas
			d.Status = appsv1.DeploymentStatus{
				ObservedGeneration: d.Generation, Replicas: n, UpdatedReplicas: n, ReadyReplicas: n, AvailableReplicas: n,
				Conditions: []appsv1.DeploymentCondition{
					{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionTrue},
					{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue, Reason: "NewReplicaSetAvailable"},
				},
			}
			_ = b.client.Status().Update(ctx, d) // tried again in the next turn
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

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

func (b *bed) node(name, zone string) {
	b.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelTopologyZone: zone}}}
	b.create(n)
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.7"}}
	if err := b.client.Status().Update(b.Context(), n); err != nil {
		b.Fatal(err)
	}
}

// agent runs a stand-in for the agent and for kubelet for a node until the test ends.
func (b *bed) agent(ctx context.Context, node string) {
	b.Helper()
	hub := agent.NewHub(b.client)
	kubelet := agent.NewKubelet(b.client, agent.KubeletOptions{Retry: 200 * time.Millisecond})
	a := agent.New(b.client, hub, agent.Options{
		NodeName: node, Pod: true, Seed: 1,
		UpdateRate: 200 * time.Millisecond, PollInterval: 50 * time.Millisecond, CrashBackoff: 100 * time.Millisecond,
	})
	kubelet.Attach(a)
	go hub.Run(ctx)
	go kubelet.Run(ctx)
	go a.Run(ctx)
}

func (b *bed) pods(node string, n int) {
	b.Helper()
	for i := range n {
		b.create(&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("of-%d-%d", n, i)},
			Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "none"}}},
		})
	}
}

func (b *bed) deletePods() {
	b.Helper()
	list := &corev1.PodList{}
	if err := b.client.List(b.Context(), list, client.InNamespace("default")); err != nil {
		b.Fatal(err)
	}
	for i := range list.Items {
		b.delete(&list.Items[i])
	}
}

func (b *bed) blocks(node string) []v1alpha1.PodIPBlock {
	b.Helper()
	list := &v1alpha1.PodIPBlockList{}
	if err := b.client.List(b.Context(), list, client.MatchingFields{"spec.node": node}); err != nil {
		b.Fatal(err)
	}
	return list.Items
}

// blockOfPods is a block of a node without the agent's own address, which never
// leaves.
func (b *bed) blockOfPods(node string) v1alpha1.PodIPBlock {
	b.Helper()
	cn := &ciliumv2.CiliumNode{}
	if err := b.client.Get(b.Context(), client.ObjectKey{Name: node}, cn); err != nil {
		b.Fatal(err)
	}
	for _, block := range b.blocks(node) {
		cidr := netip.MustParsePrefix(block.Spec.CIDR)
		if !slices.ContainsFunc(cn.Spec.Addresses, func(a ciliumv2.NodeAddress) bool {
			return cidr.Contains(netip.MustParseAddr(a.IP))
		}) {
			return block
		}
	}
	b.Fatalf("each block of %s holds an address of its agent", node)
	return v1alpha1.PodIPBlock{}
}

// serves reports what is missing to a node with n blocks in its CiliumNode.
func (b *bed) serves(node string, n int) error {
	cn := &ciliumv2.CiliumNode{}
	if err := b.client.Get(b.Context(), client.ObjectKey{Name: node}, cn); err != nil {
		return err
	}
	if blocks := b.blocks(node); len(blocks) != n || len(cn.Spec.IPAM.PodCIDRs) != n || len(cn.Spec.IPAM.Pool) != 14*n {
		return fmt.Errorf("%d blocks, podCIDRs %v, %d addresses", len(blocks), cn.Spec.IPAM.PodCIDRs, len(cn.Spec.IPAM.Pool))
	}
	return nil
}

// short reports where a node does not say that it is short of addresses, or
// does not cease to.
func (b *bed) short(node string, want bool) error {
	n := &corev1.Node{}
	if err := b.client.Get(b.Context(), client.ObjectKey{Name: node}, n); err != nil {
		return err
	}
	condition, taint := false, false
	for _, c := range n.Status.Conditions {
		condition = condition || c.Type == controller.Shortage && c.Status == corev1.ConditionTrue
	}
	for _, t := range n.Spec.Taints {
		taint = taint || t.Key == "cilium-pool.io/no-addresses"
	}
	if condition != want || taint != want {
		return fmt.Errorf("condition %v, taint %v", condition, taint)
	}
	return nil
}

// deployment reads the chart's Deployment and the Service's selector, which
// must find its pods.
func (b *bed) deployment() *appsv1.Deployment {
	b.Helper()
	d := &appsv1.Deployment{}
	if err := b.client.Get(b.Context(), client.ObjectKey{Namespace: namespace, Name: release}, d); err != nil {
		b.Fatal(err)
	}
	s := &corev1.Service{}
	if err := b.client.Get(b.Context(), client.ObjectKey{Namespace: namespace, Name: release + "-metrics"}, s); err != nil {
		b.Fatal(err)
	}
	if !labels.SelectorFromSet(s.Spec.Selector).Matches(labels.Set(d.Spec.Template.Labels)) {
		b.Errorf("the Service selects %v, the pods have %v", s.Spec.Selector, d.Spec.Template.Labels)
	}
	return d
}

// get fetches an endpoint of the operator by the port's name.
func get(ctx context.Context, container corev1.Container, port, path string) error {
	for _, p := range container.Ports {
		if p.Name != port {
			continue
		}
		url := "http://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(int(p.ContainerPort))) + path
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %s", url, response.Status)
		}
		return nil
	}
	return fmt.Errorf("no port %s", port)
}
