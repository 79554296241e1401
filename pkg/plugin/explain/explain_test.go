package explain

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/clusterread"
	"github.com/cilium-pool/cilium-pool-operator/pkg/clusterview"
	"github.com/cilium-pool/cilium-pool-operator/pkg/config"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cli"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// In kubernetes mode an agent of a Node without a podCIDR waits for one only if it does not run
// with one already.
func TestExplainsWhatAnAgentRunsWith(t *testing.T) {
	const block = "10.0.0.0/30"
	another := "Its agent runs with podCIDR 10.7.0.0/16, which is no block of this node, so the node is assigned none. Drain the Node and delete it.\n"
	for name, test := range map[string]struct {
		assigned, runs string
		held           bool
		want           string
	}{
		"with none":                   {"", "", true, "Its agent waits for a podCIDR.\n"},
		"with the one assigned":       {block, block, true, "Its agent was assigned 10.0.0.0/30.\n"},
		"with a block of the node":    {"", block, true, "Its agent runs with podCIDR 10.0.0.0/30, a block of this node. The Node is to name it again.\n"},
		"with another":                {"", "10.7.0.0/16", true, another},
		"with another, and no block":  {"", "10.7.0.0/16", false, another},
		"with one of another family":  {"", "fd07::/64", true, "Its agent waits for a podCIDR.\n"},
		"with another than was asked": {block, "10.7.0.0/16", true, "Its agent was assigned 10.0.0.0/30.\n"},
	} {
		t.Run(name, func(t *testing.T) {
			node, cn := fixtures.Node(), fixtures.CiliumNode("n", "")
			if test.runs != "" {
				cn = fixtures.CiliumNode("n", "", test.runs)
			}
			if test.assigned != "" {
				node.Annotations = map[string]string{"network.cilium.io/ipv4-pod-cidr": test.assigned}
			}
			views := ciliumnode.NewViewReader(ciliumnode.Kubernetes)
			views.CiliumNode(cn)
			s := &clusterread.Objects{
				Time: fixtures.Noon(), Mode: ciliumnode.Kubernetes, Nodes: []corev1.Node{*node},
				CiliumNodes: []clusterread.CiliumNode{{View: views.Node(node)}},
				Pools:       []v1alpha1.PodIPPool{*fixtures.PodIPPool("p", 1, "10.0.0.0/28")},
			}
			if test.held {
				s.Blocks = []v1alpha1.PodIPBlock{*fixtures.BlockObject(block, ipalloc.InService)}
			}
			var text cli.Text
			Node(&text, clusterview.New(s, clusterread.Operator{Settings: config.DefaultSettings()}), "n")
			if !strings.Contains(text.String(), test.want) {
				t.Errorf("want %q, got:\n%s", test.want, text.String())
			}
		})
	}
}

// It quotes the condition of the Node: a cause outside of the objects, such as a webhook that is down, is nowhere else.
func TestExplainQuotesTheOperator(t *testing.T) {
	node := fixtures.Node()
	node.Status.Conditions = []corev1.NodeCondition{{Type: v1alpha1.NodeAddressShortage, Status: corev1.ConditionTrue, Message: "failed calling webhook"}}
	s := &clusterread.Objects{Time: fixtures.Noon(), Nodes: []corev1.Node{*node}, Pools: []v1alpha1.PodIPPool{*fixtures.PodIPPool("p", 1, "10.0.0.0/30")}}
	var text cli.Text
	Node(&text, clusterview.New(s, clusterread.Operator{Settings: config.DefaultSettings()}), "n")
	if want := "The operator reports: failed calling webhook.\n"; !strings.Contains(text.String(), want) {
		t.Errorf("want %q, got:\n%s", want, text.String())
	}
}

// Where the ruling pool is full, it names the blocks that come back to it and the pool that takes
// over.
func TestExplainFullPool(t *testing.T) {
	next := fixtures.PodIPPool("q", 1, "10.1.0.0/28")
	next.Spec.Priority = -1
	s := &clusterread.Objects{
		Time: fixtures.Noon(), Nodes: []corev1.Node{*fixtures.Node()},
		Pools:  []v1alpha1.PodIPPool{*fixtures.PodIPPool("p", 1, "10.0.0.0/30"), *next},
		Blocks: []v1alpha1.PodIPBlock{*fixtures.BlockObject("10.0.0.0/30", ipalloc.InService)},
	}
	var text cli.Text
	Node(&text, clusterview.New(s, clusterread.Operator{Settings: config.DefaultSettings()}), "n")
	if want := "Pool p has no free block: no block cools down.\nPool q has 4 free blocks.\n"; !strings.Contains(text.String(), want) {
		t.Errorf("want %q, got:\n%s", want, text.String())
	}
}

// A pod that waits on its node is explained itself, also beside a cordoned pool.
func TestExplainsPodThatWaitsOnItsNode(t *testing.T) {
	const lacks = "It is bound to node n and has no address yet.\n\nThe node lacks 1 address of ipv4: it needs 1 and has 0.\n"
	for name, test := range map[string]struct {
		spoil func(*v1alpha1.PodIPPool, *corev1.Pod)
		want  string
	}{
		"it has one":   {func(_ *v1alpha1.PodIPPool, pod *corev1.Pod) { pod.Status.PodIPs = []corev1.PodIP{{IP: "10.0.0.1"}} }, "It is bound to node n and has address 10.0.0.1.\n"},
		"it has ended": {func(_ *v1alpha1.PodIPPool, pod *corev1.Pod) { pod.Status.Phase = corev1.PodSucceeded }, "It has ended on node n, and needs no address.\n"},
		"no agent":     {func(_ *v1alpha1.PodIPPool, pod *corev1.Pod) { pod.Spec.NodeName = "other" }, "No Cilium agent has run there, and only an agent gives a pod its address"},
		"it waits":     {func(*v1alpha1.PodIPPool, *corev1.Pod) {}, lacks + "Pool p rules it.\n"},
		"cordoned": {func(pool *v1alpha1.PodIPPool, _ *corev1.Pod) {
			pool.Spec.IPv4.CIDRs[0].AllocationPolicy = v1alpha1.AllocationCordon
		}, "gives no block: all its CIDRs are cordoned (allocationPolicy: Cordon).\n"},
	} {
		t.Run(name, func(t *testing.T) {
			pool := fixtures.PodIPPool("p", 1, "10.0.0.0/28")
			pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-0"}}
			pod.Spec.NodeName = "n"
			test.spoil(pool, &pod)
			agent := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "cilium"}}
			agent.Spec.NodeName = "n"
			agent.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "cilium-agent", ContainerID: "1"}}
			views := ciliumnode.NewViewReader(ciliumnode.CRD)
			s := &clusterread.Objects{
				Time: fixtures.Noon(), Mode: ciliumnode.CRD, Nodes: []corev1.Node{*fixtures.Node()}, Pods: []corev1.Pod{pod},
				CiliumNodes: []clusterread.CiliumNode{{View: views.CiliumNode(fixtures.CiliumNode("n", ""))}}, Pools: []v1alpha1.PodIPPool{*pool},
				Agents: []corev1.Pod{agent},
			}
			var text cli.Text
			Pod(&text, clusterview.New(s, clusterread.Operator{Settings: config.DefaultSettings()}), &pod, nil)
			if !strings.Contains(text.String(), test.want) {
				t.Errorf("want %q, got:\n%s", test.want, text.String())
			}
		})
	}
}
