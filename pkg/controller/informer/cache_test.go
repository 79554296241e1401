package informer

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/scheduling"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// The cache keeps the parts of a Node that decisions read: whether it is paused, whether Cilium
// runs there, its pool, whether it is cordoned, and the shortage in its condition.
func TestStrippedNodeIsDecidedOnAlike(t *testing.T) {
	tests := map[string]func(n *corev1.Node){
		"plain":              func(*corev1.Node) {},
		"paused":             func(n *corev1.Node) { n.Annotations = map[string]string{v1alpha1.PausedAnnotation: "true", "a": "b"} },
		"other annotations":  func(n *corev1.Node) { n.Annotations = map[string]string{"a": "b"} },
		"opted out by taint": func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "no-cilium"}} },
		"opted out by label": func(n *corev1.Node) { n.Labels = map[string]string{v1alpha1.OptOutLabel: "true"} },
		"cordoned":           func(n *corev1.Node) { n.Spec.Unschedulable = true },
		"short of addresses": func(n *corev1.Node) {
			n.Status.Conditions = []corev1.NodeCondition{{Type: "Ready"}, {Type: v1alpha1.NodeAddressShortage}}
		},
		"offers addresses": func(n *corev1.Node) {
			n.Status.Capacity = corev1.ResourceList{v1alpha1.IPv4Resource: resource.MustParse("30"), corev1.ResourceCPU: resource.MustParse("4")}
			n.Status.Allocatable = corev1.ResourceList{v1alpha1.IPv4Resource: resource.MustParse("29")}
		},
		"admits pods":      func(n *corev1.Node) { n.Status.Allocatable = resources("110") },
		"says what it has": func(n *corev1.Node) { n.Status.Capacity = resources("64") },
		"labels, and address": func(n *corev1.Node) {
			n.Labels, n.Status.Addresses = map[string]string{"zone": "a"}, []corev1.NodeAddress{{Type: "InternalIP", Address: "192.168.0.1"}, {Type: "Hostname", Address: "10.0.0.1"}}
		},
	}
	r := &state.Cluster{IgnoreTaints: map[string]bool{"no-cilium": true}, Pools: state.NewPools(fixtures.Defaults(), state.NewLedger())}
	paused := func(n *corev1.Node) string {
		_, _, why := r.Policy(n, ipalloc.IPv4, "")
		return why
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			whole := fixtures.Node()
			change(whole)
			kept := whole.DeepCopy()
			if _, err := stripNode(kept); err != nil {
				t.Fatal(err)
			}
			if got, want := paused(kept), paused(whole); got != want {
				t.Errorf("paused %q, want %q", got, want)
			}
			if got, want := r.OptedOut(kept), r.OptedOut(whole); got != want {
				t.Errorf("opted out %t, want %t", got, want)
			}
			if kept.Spec.Unschedulable != whole.Spec.Unschedulable {
				t.Errorf("cordoned %t, want %t", kept.Spec.Unschedulable, whole.Spec.Unschedulable)
			}
			if got, want := state.MaxPods(kept), state.MaxPods(whole); got != want {
				t.Errorf("admits %d pods, want %d", got, want)
			}
			for what, lists := range map[string][2]corev1.ResourceList{
				"capacity":    {kept.Status.Capacity, whole.Status.Capacity},
				"allocatable": {kept.Status.Allocatable, whole.Status.Allocatable},
			} {
				if got, want := scheduling.OfferIn(lists[0]), scheduling.OfferIn(lists[1]); got != want {
					t.Errorf("offers %v in %s, want %v", got, what, want)
				}
			}
			if diff := cmp.Diff(shortageOf(whole.Status.Conditions), shortageOf(kept.Status.Conditions)); diff != "" {
				t.Errorf("shortage (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(labels.Set(whole.Labels), labels.Set(kept.Labels)); diff != "" {
				t.Errorf("labels (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(whole.Status.Addresses, kept.Status.Addresses); diff != "" {
				t.Errorf("addresses (-want +got):\n%s", diff)
			}
		})
	}
}

func resources(pods string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourcePods: resource.MustParse(pods), corev1.ResourceCPU: resource.MustParse("4")}
}

// A Node without a number, or with an invalid one, sets no limit.
func TestMaxPods(t *testing.T) {
	tests := map[string]struct {
		status corev1.NodeStatus
		want   int
	}{
		"allocatable":         {corev1.NodeStatus{Allocatable: resources("110"), Capacity: resources("250")}, 110},
		"capacity":            {corev1.NodeStatus{Capacity: resources("250")}, 250},
		"not said":            {corev1.NodeStatus{Capacity: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")}}, 0},
		"a kubelet that is 0": {corev1.NodeStatus{Allocatable: resources("0"), Capacity: resources("110")}, 110},
		"below 0":             {corev1.NodeStatus{Allocatable: resources("-1")}, 0},
		"beyond all bounds":   {corev1.NodeStatus{Allocatable: resources("9E")}, math.MaxInt32},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := state.MaxPods(&corev1.Node{Status: test.status}); got != test.want {
				t.Errorf("admits %d pods, want %d", got, test.want)
			}
		})
	}
	if got := state.MaxPods(nil); got != 0 {
		t.Errorf("without a Node: %d pods, want 0", got)
	}
}
