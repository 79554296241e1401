package ciliumnode

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	iputil "github.com/cilium/cilium/pkg/ip"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

const v4Name, v6Name = "network.cilium.io/ipv4-pod-cidr", "network.cilium.io/ipv6-pod-cidr"

func kubernetesNode(annotations map[string]string, podCIDRs ...string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u1", ResourceVersion: "7", Annotations: annotations},
		Spec:       corev1.NodeSpec{PodCIDRs: podCIDRs},
	}
}

func TestKubernetesView(t *testing.T) {
	tests := map[string]struct {
		node *corev1.Node
		want []string
	}{
		"nothing assigned":            {node: kubernetesNode(nil)},
		"by annotation":               {kubernetesNode(map[string]string{v4Name: "10.0.0.5/24", v6Name: "fd00::/120"}), []string{"10.0.0.0/24", "fd00::/120"}},
		"as the agent alone reads it": {kubernetesNode(map[string]string{v4Name: "10.0.0.0/024", v6Name: "FD00::9/120"}), []string{"10.0.0.0/24", "fd00::/120"}},
		"an IPv4-mapped one":          {kubernetesNode(map[string]string{v4Name: "::ffff:10.0.0.0/120"}), []string{"10.0.0.0/24"}},
		"several in one":              {node: kubernetesNode(map[string]string{v4Name: "10.0.0.0/24,10.0.1.0/24"})},
		"by an older name":            {kubernetesNode(map[string]string{"io.cilium.network.ipv4-pod-cidr": "10.0.0.0/24"}), []string{"10.0.0.0/24"}},
		"an older name beside it":     {node: kubernetesNode(map[string]string{v4Name: "", "io.cilium.network.ipv4-pod-cidr": "10.0.0.0/24"})},
		"the spec goes first":         {kubernetesNode(map[string]string{v4Name: "10.0.0.0/24"}, "10.1.0.0/24"), []string{"10.1.0.0/24"}},
		"one family in the spec":      {kubernetesNode(map[string]string{v6Name: "fd00::/120"}, "10.1.0.0/24"), []string{"10.1.0.0/24", "fd00::/120"}},
		"the spec's single one":       {&corev1.Node{Spec: corev1.NodeSpec{PodCIDR: "10.2.0.0/24"}}, []string{"10.2.0.0/24"}},
		"nonsense, or another family": {node: kubernetesNode(map[string]string{v4Name: "fd00::/120", v6Name: "x"})},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			v := Kubernetes.View(test.node)
			checkEqual(t, "listed", cidrs(test.want...), v.PodCIDRs)
			if !v.BlockAssignment.SingleBlock || v.BlockAssignment.Reported() {
				t.Errorf("fixed %t, heard %t", v.BlockAssignment.SingleBlock, v.BlockAssignment.Reported())
			}
		})
	}
}

// An agent in kubernetes mode names addresses of its own in each family that it runs.
func TestViewsFamilies(t *testing.T) {
	for name, test := range map[string]struct {
		own  []string
		want [2]bool // not run
	}{
		"nothing is named yet": {},
		"IPv4 alone":           {[]string{"10.1.0.1"}, [2]bool{ipalloc.IPv6: true}},
		"IPv6 alone":           {[]string{"fd00::1"}, [2]bool{ipalloc.IPv4: true}},
		"both":                 {[]string{"10.1.0.1", "fd00::1"}, [2]bool{}},
	} {
		t.Run(name, func(t *testing.T) {
			cn := pooled("default 10.0.0.0/30")
			cn.Spec.Addresses = nil
			for _, addr := range test.own {
				cn.Spec.Addresses = append(cn.Spec.Addresses, ciliumv2.NodeAddress{Type: "CiliumInternalIP", IP: addr})
			}
			vs := NewViewReader(Kubernetes)
			vs.CiliumNode(cn)
			if got := vs.Node(kubernetesNode(nil)).FamiliesDisabled(); got != test.want {
				t.Errorf("families not run: %v, want %v", got, test.want)
			}
		})
	}
}

// In kubernetes mode, an agent's writes into its CiliumNode are added to the view of its Node.
func TestViews(t *testing.T) {
	cn := pooled("default 10.0.0.0/30")
	cn.Spec.IPAM.PodCIDRs = []iputil.Prefix{iputil.PrefixFrom(cidrs("10.1.0.7/24")[0])}
	node := kubernetesNode(map[string]string{v4Name: "10.0.0.0/24", v6Name: "fd00::/120"}, "10.1.0.0/24")
	other := kubernetesNode(nil)
	other.Name = "n2"

	vs := NewViewReader(Kubernetes)
	if v := vs.CiliumNode(cn); v != nil {
		t.Errorf("in kubernetes mode a CiliumNode reads as %+v", v)
	}
	v := vs.Node(node)
	if diff := cmp.Diff(cidrs("10.1.0.0/24"), v.BlockAssignment.ActiveCIDRs, compareNetip()); diff != "" || !v.BlockAssignment.HasAgent {
		t.Errorf("has an agent: %t, which runs with (-want +got):\n%s", v.BlockAssignment.HasAgent, diff)
	}
	checkEqual(t, "annotated", cidrs("10.0.0.0/24", "fd00::/120"), v.BlockAssignment.Annotated)
	if vs.Node(other).BlockAssignment.HasAgent {
		t.Error("a Node without a CiliumNode has an agent")
	}
	for _, mode := range []Mode{CRD, MultiPool} {
		vs := NewViewReader(mode)
		if v := vs.CiliumNode(cn); v == nil || v.Name != "n1" || vs.Node(node) != nil {
			t.Errorf("%s mode: CiliumNode reads as %+v, Node as %+v", mode, v, vs.Node(node))
		}
	}
}

func TestKubernetesPatch(t *testing.T) {
	blocks := cidrs("10.0.0.0/24", "10.0.1.0/24", "fd00::/120")
	const head = `{"metadata":{"resourceVersion":"7","annotations":{`
	tests := map[string]struct {
		node   *corev1.Node
		change Change
		want   string // "": no write
	}{
		"nothing asked": {node: kubernetesNode(nil), change: Change{Blocks: blocks}},
		"one of each family": {
			node: kubernetesNode(nil), change: Change{Assign: blocks, Blocks: blocks},
			want: head + `"` + v4Name + `":"10.0.0.0/24","` + v6Name + `":"fd00::/120"}}}`,
		},
		"what is there stays": {
			node:   kubernetesNode(map[string]string{v4Name: "10.9.0.0/24"}),
			change: Change{Assign: cidrs("10.0.0.0/24", "fd00::/120"), Blocks: blocks},
			want:   head + `"` + v6Name + `":"fd00::/120"}}}`,
		},
		"what is in the spec stays": {node: kubernetesNode(nil, "10.9.0.0/24"), change: Change{Assign: blocks[:1], Blocks: blocks}},
		"nothing is taken away": {
			node: kubernetesNode(map[string]string{v4Name: "10.0.0.0/24"}), change: Change{Remove: addrs("10.0.0.1"), Blocks: blocks},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := encodedPatch(t, Kubernetes.patch(Kubernetes.View(test.node), test.change))
			checkEqual(t, "patch", test.want, string(got))
		})
	}
}

func kubernetesClient(t *testing.T, objects ...client.Object) *Client {
	t.Helper()
	c := fakeClient(t, interceptor.Funcs{}, objects...)
	c.Mode = Kubernetes
	return c
}

func TestKubernetesApply(t *testing.T) {
	change := Change{Assign: cidrs("10.0.0.0/24"), Blocks: cidrs("10.0.0.0/24")}
	tests := map[string]struct {
		agent   []string // podCIDRs it runs with
		wantErr string
	}{
		"an agent that has yet to start": {},
		"an agent that runs with it":     {agent: []string{"10.0.0.0/24"}},
		"one that runs with IPv6 alone":  {agent: []string{"fd00::/120"}},
		"one that runs with another":     {agent: []string{"10.7.0.0/16"}, wantErr: "runs with another podCIDR: 10.7.0.0/16"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			cn := node(nil, test.agent...)
			cn.ResourceVersion = ""
			c := kubernetesClient(t, kubernetesNode(map[string]string{"a": "b"}), cn)
			old := live(t, c, "n1")
			v, err := c.PatchSpec(t.Context(), old, change)
			if test.wantErr != "" {
				if !errors.Is(err, ErrRunsWithAnother) || !strings.Contains(err.Error(), test.wantErr) {
					t.Errorf("Apply: %v, want %q", err, test.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			checkEqual(t, "listed", cidrs("10.0.0.0/24"), v.PodCIDRs)
			n := &corev1.Node{}
			if err := c.Reader.Get(t.Context(), client.ObjectKey{Name: "n1"}, n); err != nil || n.Annotations["a"] != "b" {
				t.Errorf("other annotations are %v, %v", n.Annotations, err)
			}
			if _, err := c.PatchSpec(t.Context(), old, change); !apierrors.IsConflict(err) {
				t.Errorf("Apply on an old version: %v, want a conflict", err)
			}
		})
	}
}

// The operator does not create Nodes.
func TestKubernetesCreatesNothing(t *testing.T) {
	c := kubernetesClient(t, kubernetesNode(nil))
	if _, err := c.Create(t.Context(), kubernetesNode(nil)); !apierrors.IsAlreadyExists(err) {
		t.Errorf("Create: %v, want AlreadyExists", err)
	}
}

// Each move changes the Node, even after another process's move, and only in a field without
// another reader. A patch of an older version conflicts.
func TestKubernetesMove(t *testing.T) {
	c := kubernetesClient(t, kubernetesNode(map[string]string{v4Name: "10.0.0.0/24"}))
	first, err := c.Live(t.Context(), "n1")
	if err != nil || first == nil {
		t.Fatalf("%v, %v", first, err)
	}
	said := map[string]bool{}
	for v := first; len(said) < 3; {
		written, err := c.BumpVersion(t.Context(), v, netip.Addr{})
		if err != nil {
			t.Fatal(err)
		}
		v = written
		node := &corev1.Node{}
		if err := c.Reader.Get(t.Context(), types.NamespacedName{Name: "n1"}, node); err != nil {
			t.Fatal(err)
		}
		if now := node.Annotations[versionAnnotation]; now == "" || said[now] || node.Annotations[v4Name] != "10.0.0.0/24" {
			t.Fatalf("annotations are %v after %v", node.Annotations, said)
		}
		said[node.Annotations[versionAnnotation]] = true
	}
	if _, err := c.BumpVersion(t.Context(), first, netip.Addr{}); !apierrors.IsConflict(err) {
		t.Errorf("an old version: %v", err)
	}
}
