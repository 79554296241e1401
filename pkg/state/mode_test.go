package state

import (
	"slices"
	"testing"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumconfig"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// An agent that is configured for a mode without its blocks is found, on all nodes or on the nodes
// of a CiliumNodeConfig; a move to or from another mode is none.
func TestOtherMode(t *testing.T) {
	old := func(mode string) ciliumconfig.Override {
		return ciliumconfig.Override{Defaults: map[string]string{"ipam": mode}, NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"old": "true"}}}
	}
	multi := func(cn *ciliumv2.CiliumNode, podCIDRs ...string) *ciliumv2.CiliumNode {
		cn.Spec.IPAM.PodCIDRs = fixtures.CiliumNode("n", "1", podCIDRs...).Spec.IPAM.PodCIDRs
		return cn
	}
	for name, test := range map[string]struct {
		mode     ciliumnode.Mode // of the operator
		config   *ciliumconfig.Config
		override string // the mode of a CiliumNodeConfig for the node
		cn       *ciliumv2.CiliumNode
		spoil    func(*Cluster, *crd.Block, *corev1.Node)
		want     string
	}{
		"the same":       {mode: ciliumnode.CRD, config: inMode("crd")},
		"not known":      {mode: ciliumnode.CRD, config: &ciliumconfig.Config{}},
		"another":        {mode: ciliumnode.CRD, config: inMode("cluster-pool"), want: "cluster-pool"},
		"on the node":    {mode: ciliumnode.CRD, config: inMode("crd"), override: "cluster-pool", want: "cluster-pool"},
		"on all but":     {mode: ciliumnode.CRD, config: inMode("cluster-pool"), override: "crd"},
		"kubernetes":     {mode: ciliumnode.Kubernetes, config: inMode("cluster-pool"), want: "cluster-pool"},
		"not checked":    {mode: ciliumnode.CRD, config: inMode("cluster-pool"), spoil: func(c *Cluster, _ *crd.Block, _ *corev1.Node) { c.AnyMode = true }},
		"without blocks": {mode: ciliumnode.CRD, config: inMode("cluster-pool"), spoil: func(_ *Cluster, b *crd.Block, _ *corev1.Node) { b.Node = "m" }},
		"opted out": {mode: ciliumnode.CRD, config: inMode("cluster-pool"), spoil: func(_ *Cluster, _ *crd.Block, n *corev1.Node) {
			n.Labels[v1alpha1.OptOutLabel] = "true"
		}},
		"adopted from it": {mode: ciliumnode.CRD, config: inMode("crd"), override: "cluster-pool", spoil: func(_ *Cluster, b *crd.Block, _ *corev1.Node) {
			b.AdoptedFrom = "cluster-pool"
		}},
		"adopted from a third": {mode: ciliumnode.CRD, config: inMode("cluster-pool"), want: "cluster-pool", spoil: func(_ *Cluster, b *crd.Block, _ *corev1.Node) {
			b.AdoptedFrom = "kubernetes"
		}},
		"returning": {mode: ciliumnode.CRD, config: inMode("cluster-pool"), spoil: func(_ *Cluster, _ *crd.Block, n *corev1.Node) {
			n.Annotations = map[string]string{v1alpha1.PausedAnnotation: "true", v1alpha1.ReturningAnnotation: "cluster-pool"}
		}},
		"moving from crd to multi-pool":   {mode: ciliumnode.MultiPool, config: inMode("multi-pool"), override: "crd", cn: multi(fixtures.Pooled(8, "10.0.0.0/30"), "10.0.0.0/30")},
		"moving from multi-pool to crd":   {mode: ciliumnode.CRD, config: inMode("crd"), override: "multi-pool", cn: multi(fixtures.Pooled(8, "10.0.0.0/30"), "10.0.0.0/30")},
		"multi-pool without the blocks":   {mode: ciliumnode.CRD, config: inMode("multi-pool"), cn: multi(fixtures.Pooled(8, "10.9.0.0/30"), "10.0.0.0/30"), want: "multi-pool"},
		"crd without what crd mode reads": {mode: ciliumnode.MultiPool, config: inMode("crd"), cn: fixtures.Pooled(8, "10.0.0.0/30"), want: "crd"},
	} {
		t.Run(name, func(t *testing.T) {
			node, block, spare := fixtures.Node(), fixtures.Block("10.0.0.0/30", "p", "n", 1), &Cluster{}
			node.Labels = map[string]string{"old": "true"}
			if test.spoil != nil {
				test.spoil(spare, &block, node)
			}
			c := clusterOf(block)
			c.Mode, c.AnyMode, c.Cilium = test.mode, spare.AnyMode, &ciliumconfig.Latest{}
			if test.override != "" {
				test.config.Overrides = []ciliumconfig.Override{old(test.override)}
			}
			c.Cilium.Set(test.config)
			cn := test.cn
			if cn == nil {
				cn = fixtures.CiliumNode("n", "1", "10.0.0.0/30")
			}
			if test.mode != ciliumnode.Kubernetes {
				c.Ledger.UpsertCiliumNode(test.mode.View(cn))
			}
			if got := c.Snapshot("n", node, fixtures.Noon()).OtherMode; got != test.want {
				t.Errorf("the agent starts in %q, want %q", got, test.want)
			}
			others, n := c.OtherModes([]corev1.Node{*node})
			if n != len(others) || n == 1 != (test.want != "") || n == 1 && !slices.Equal(others[0].Nodes, []string{"n"}) {
				t.Errorf("%d nodes: %v", n, others)
			}
			for _, share := range c.Snapshot("n", node, fixtures.Noon()).Shares {
				held := share.State.ReclaimHold.For == expand.WaitMode && share.State.Blocks[0].Hold.For == expand.WaitMode
				if held != (test.want != "") {
					t.Errorf("drains are held back: %t", held)
				}
			}
		})
	}
}

func inMode(mode string) *ciliumconfig.Config {
	return &ciliumconfig.Config{Data: map[string]string{"ipam": mode}}
}
