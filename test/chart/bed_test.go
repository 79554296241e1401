package chart

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/controlplane"
	"github.com/cilium-pool/cilium-pool-operator/test/controlplane/cptest"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

// bed is a test's own cluster, with Cilium's CRDs but none of ours.
type bed struct {
	*testing.T
	*harness.Bed
	major   string // of Helm
	cluster *controlplane.Cluster
	values  string      // file of installValues, with free ports
	pod     *corev1.Pod // that the operator's token is bound to; nil: none
	// warnings are those of clientAs.
	warnings warnings
}

func newBed(t *testing.T, major string) *bed {
	t.Helper()
	t.Parallel()
	cilium, err := controlplane.CiliumCRDs()
	harness.Must(t, err)
	cluster := cptest.New(t, controlplane.Options{CRDs: cilium, AuditLog: true})
	b := &bed{T: t, Bed: harness.NewBed(t, cluster.Config(), apiextensionsv1.AddToScheme), major: major, cluster: cluster}
	b.values = writeFile(t, installValues+b.freePorts())
	return b
}

// withHelm returns the bed of a subtest, with a Helm of another version.
func (b *bed) withHelm(t *testing.T, major string) *bed {
	return &bed{T: t, Bed: &harness.Bed{TB: t, Ctx: t.Context(), Client: b.Client}, major: major, cluster: b.cluster}
}

func (b *bed) kubeconfig() string { return filepath.Join(b.cluster.Dir(), "kubeconfig") }

func (b *bed) helm(args ...string) string {
	b.Helper()
	out, err := b.tryHelm(args...)
	b.Must(err)
	return out
}

// helmWait runs Helm with the values, until all that it made is ready.
func (b *bed) helmWait(args ...string) string {
	b.Helper()
	return b.helm(append(args, "-f", b.values, "--wait", "--timeout", "2m")...)
}

func (b *bed) tryHelm(args ...string) (string, error) {
	b.Helper()
	return tryHelm(b.T, b.major, append(args, "--namespace", namespace, "--kubeconfig", b.kubeconfig())...)
}

// playDeploymentController reports the Deployment as rolled out, because no kubelet runs here:
// helm --wait waits for that. Helm 3 also looks for its ReplicaSet.
func (b *bed) playDeploymentController(ctx context.Context) {
	for ctx.Err() == nil {
		d := &appsv1.Deployment{}
		key := client.ObjectKey{Namespace: namespace, Name: release}
		if err := b.Client.Get(ctx, key, d); err == nil && d.Status.ObservedGeneration != d.Generation {
			_ = b.rollOut(ctx, d) // retried in the next turn
		}
		_ = harness.Sleep(ctx, 50*time.Millisecond) // the loop ends with ctx
	}
}

func (b *bed) rollOut(ctx context.Context, d *appsv1.Deployment) error {
	n := *d.Spec.Replicas
	rs := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: fmt.Sprintf("%s-%s-%d", release, d.UID, d.Generation), Labels: d.Spec.Template.Labels,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("Deployment"))},
		},
		Spec: appsv1.ReplicaSetSpec{Replicas: &n, Selector: d.Spec.Selector, Template: d.Spec.Template},
	}
	if err := b.Client.Create(ctx, rs); client.IgnoreAlreadyExists(err) != nil {
		return err
	}
	if err := b.Client.Get(ctx, client.ObjectKeyFromObject(rs), rs); err != nil {
		return err
	}
	rs.Status = appsv1.ReplicaSetStatus{ObservedGeneration: rs.Generation, Replicas: n, ReadyReplicas: n, AvailableReplicas: n}
	if err := b.Client.Status().Update(ctx, rs); err != nil {
		return err
	}
	d.Status = appsv1.DeploymentStatus{
		ObservedGeneration: d.Generation, Replicas: n, UpdatedReplicas: n, ReadyReplicas: n, AvailableReplicas: n,
		Conditions: []appsv1.DeploymentCondition{
			{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionTrue},
			{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue, Reason: "NewReplicaSetAvailable"},
		},
	}
	return b.Client.Status().Update(ctx, d)
}

// freePorts sets the operator's ports to free ones.
func (b *bed) freePorts() string {
	b.Helper()
	var ports [2]int
	for ports[0] == ports[1] {
		for i := range ports {
			port, err := controlplane.FreePort("127.0.0.1")
			b.Must(err)
			ports[i] = port
		}
	}
	return fmt.Sprintf("metrics: {port: %d}\nhealth: {port: %d}\n", ports[0], ports[1])
}

// node registers a Node of the zone beijing.
func (b *bed) node(name string) {
	b.Helper()
	b.Must(harness.JoinNode(b.Context(), b.Client, name, "192.0.2.7", map[string]string{corev1.LabelTopologyZone: "beijing"}))
}

// serves returns an error unless a node has n blocks, all in its CiliumNode.
func (b *bed) serves(node string, n int) error {
	cn := &ciliumv2.CiliumNode{}
	if err := b.Client.Get(b.Context(), client.ObjectKey{Name: node}, cn); err != nil {
		return err
	}
	if blocks := b.Blocks(node); len(blocks) != n || len(cn.Spec.IPAM.PodCIDRs) != n || len(cn.Spec.IPAM.Pool) != 14*n {
		return fmt.Errorf("%d blocks, podCIDRs %v, %d addresses", len(blocks), cn.Spec.IPAM.PodCIDRs, len(cn.Spec.IPAM.Pool))
	}
	return nil
}

// short returns an error unless a node reports that it is short of addresses, or does not, as
// wanted.
func (b *bed) short(node string, want bool) error {
	n := &corev1.Node{}
	if err := b.Client.Get(b.Context(), client.ObjectKey{Name: node}, n); err != nil {
		return err
	}
	condition, taint := false, false
	for _, c := range n.Status.Conditions {
		condition = condition || c.Type == v1alpha1.NodeAddressShortage && c.Status == corev1.ConditionTrue
	}
	for _, t := range n.Spec.Taints {
		taint = taint || t.Key == "cilium-pool.io/no-addresses"
	}
	if condition != want || taint != want {
		return fmt.Errorf("condition %v, taint %v", condition, taint)
	}
	return nil
}

// deployment reads the chart's Deployment and the Service's selector, which must match its
// pods.
func (b *bed) deployment() *appsv1.Deployment {
	b.Helper()
	d := &appsv1.Deployment{}
	b.Read(d, namespace, release)
	s := &corev1.Service{}
	b.Read(s, namespace, release+"-metrics")
	if !labels.SelectorFromSet(s.Spec.Selector).Matches(labels.Set(d.Spec.Template.Labels)) {
		b.Errorf("the Service selects %v, the pods have %v", s.Spec.Selector, d.Spec.Template.Labels)
	}
	return d
}

// get fetches an endpoint of the operator by the port's name; config has credentials and trust.
func get(ctx context.Context, container corev1.Container, port, path string, config rest.Config) (string, error) {
	i := slices.IndexFunc(container.Ports, func(p corev1.ContainerPort) bool { return p.Name == port })
	if i < 0 {
		return "", fmt.Errorf("no port %s", port)
	}
	config.Host = net.JoinHostPort("127.0.0.1", strconv.Itoa(int(container.Ports[i].ContainerPort)))
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	c, err := rest.UnversionedRESTClientFor(&config)
	if err != nil {
		return "", err
	}
	body, err := c.Get().AbsPath(path).DoRaw(ctx)
	return string(body), err
}
