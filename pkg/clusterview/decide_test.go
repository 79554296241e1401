package clusterview

import (
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/clusterread"
	"github.com/cilium-pool/cilium-pool-operator/pkg/config"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// In kubernetes mode the operator reads the CIDRs that an agent runs with if the node has a block
// and its Node names none.
func TestDecidesByWhatAnAgentRunsWith(t *testing.T) {
	const block = "10.0.0.0/30"
	for name, test := range map[string]struct {
		assigned, runs string
		held           bool
		want           string
	}{
		"a block of the node": {"", block, true, block},
		"another":             {"", "10.7.0.0/16", true, "10.7.0.0/16"},
		"of another family":   {"", "fd07::/64", true, ""},
		"it is assigned":      {block, block, true, ""},
		"no block":            {"", "10.7.0.0/16", false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			node := fixtures.Node()
			if test.assigned != "" {
				node.Annotations = map[string]string{"network.cilium.io/ipv4-pod-cidr": test.assigned}
			}
			views := ciliumnode.NewViewReader(ciliumnode.Kubernetes)
			views.CiliumNode(fixtures.CiliumNode("n", "", test.runs))
			s := &clusterread.Objects{
				Time: fixtures.Noon(), Mode: ciliumnode.Kubernetes, Nodes: []corev1.Node{*node},
				CiliumNodes: []clusterread.CiliumNode{{View: views.Node(node)}},
				Pools:       []v1alpha1.PodIPPool{*fixtures.PodIPPool("p", 1, "10.0.0.0/28")},
			}
			if test.held {
				s.Blocks = []v1alpha1.PodIPBlock{*fixtures.BlockObject(block, ipalloc.InService)}
			}
			var want []netip.Prefix
			if test.want != "" {
				want = append(want, netip.MustParsePrefix(test.want))
			}
			decisions := New(s, clusterread.Operator{Settings: config.DefaultSettings()}).Decide("n")
			if len(decisions) != 1 || !slices.Equal(decisions[0].State.BlockAssignment.ActiveCIDRs, want) {
				t.Errorf("decisions are %+v, want one that knows of %v", decisions, want)
			}
		})
	}
}
