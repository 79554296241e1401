package chart

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
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
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/controlplane"
	"github.com/cilium-pool/cilium-pool-operator/test/controlplane/cptest"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
	"github.com/cilium-pool/cilium-pool-operator/test/harness/fleet"
)

// bed is a test's own cluster, with Cilium's CRDs but none of ours.
type bed struct {
	*testing.T
	*harness.Bed
	major   string // of Helm
	cluster *controlplane.Cluster
	pod     *corev1.Pod // that the operator's token is bound to; nil: none
}

func newBed(t *testing.T, major string) *bed {
	t.Helper()
	t.Parallel()
	cilium, err := controlplane.CiliumCRDs()
	if err != nil {
		t.Fatal(err)
	}
	cluster := cptest.New(t, controlplane.Options{CRDs: cilium, AuditLog: true})
	return &bed{T: t, Bed: harness.NewBed(t, cluster.Config(), apiextensionsv1.AddToScheme), major: major, cluster: cluster}
}

func (b *bed) kubeconfig() string { return filepath.Join(b.cluster.Dir(), "kubeconfig") }

func (b *bed) helm(args ...string) string {
	b.Helper()
	out, err := b.tryHelm(args...)
	if err != nil {
		b.Fatal(err)
	}
	return out
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

// playPoolController reports each generation of the pools as observed, for tests without an
// operator: helm --wait waits for that once a pool has a status.
func (b *bed) playPoolController(ctx context.Context) {
	for ctx.Err() == nil {
		pools := &v1alpha1.PodIPPoolList{}
		if err := b.Client.List(ctx, pools); err == nil {
			for i := range pools.Items {
				if p := &pools.Items[i]; p.Status.ObservedGeneration != p.Generation {
					p.Status.ObservedGeneration = p.Generation
					_ = b.Client.Status().Update(ctx, p) // retried in the next turn
				}
			}
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

// freePorts returns two free ports.
func freePorts(t *testing.T) (int, int) {
	t.Helper()
	var ports [2]int
	for ports[0] == ports[1] {
		for i := range ports {
			port, err := controlplane.FreePort("127.0.0.1")
			if err != nil {
				t.Fatal(err)
			}
			ports[i] = port
		}
	}
	return ports[0], ports[1]
}

func (b *bed) node(name, zone string) {
	b.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelTopologyZone: zone}}}
	b.Create(n)
	created := n.DeepCopy()
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.7"}}
	// Use a patch, as the operator may have written to the Node by now.
	b.Must(b.Client.Status().Patch(b.Context(), n, client.MergeFrom(created)))
}

// agent simulates the agent and the kubelet of a node until the test ends.
func (b *bed) agent(ctx context.Context, node string) {
	machines := fleet.New(b.Client, fleet.Options{Agent: fleet.Quick(), Retry: 200 * time.Millisecond})
	machines.Boot(ctx, node)
	go machines.Run(ctx)
}

// blockOfPods returns a block of a node that does not contain the agent's own address: a block
// with that address never leaves. It waits until the agent has one.
func (b *bed) blockOfPods(node string) v1alpha1.PodIPBlock {
	b.Helper()
	cn := &ciliumv2.CiliumNode{}
	b.Eventually("the agent has an address of its own", func() error {
		if err := b.Client.Get(b.Context(), client.ObjectKey{Name: node}, cn); err != nil {
			return err
		}
		if !slices.ContainsFunc(cn.Spec.Addresses, func(a ciliumv2.NodeAddress) bool { return a.Type == "CiliumInternalIP" }) {
			return fmt.Errorf("addresses are %v", cn.Spec.Addresses)
		}
		return nil
	})
	for _, block := range b.Blocks(node) {
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

// get fetches an endpoint of the operator by the port's name, and returns the response.
func get(ctx context.Context, container corev1.Container, port, path, token string, trust *tls.Config) (string, error) {
	i := slices.IndexFunc(container.Ports, func(p corev1.ContainerPort) bool { return p.Name == port })
	if i < 0 {
		return "", fmt.Errorf("no port %s", port)
	}
	url := "://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(int(container.Ports[i].ContainerPort))) + path
	scheme := "http"
	if trust != nil {
		scheme = "https"
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+url, nil)
	if err != nil {
		return "", err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	transport := &http.Transport{TLSClientConfig: trust}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return "", err
	}
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: %s", request.URL, response.Status)
	}
	return string(body), nil
}
