package state

import (
	"slices"
	"testing"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumconfig"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// inZone returns a pool for nodes of a zone that drains its blocks on other nodes.
func inZone(zone string, ranges ...string) *v1alpha1.PodIPPool {
	return fixtures.Edited(fixtures.PodIPPool(zone, 1, ranges...), func(s *v1alpha1.PodIPPoolSpec) {
		s.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"zone": zone}}
		s.UnselectedNodes.Mode = v1alpha1.UnselectedNodesDrain
	})
}

// Node n of zone b holds a block of zone a.
func TestUnselected(t *testing.T) {
	const cidr = "10.1.0.0/30"
	block := fixtures.Block(cidr, "a", "n", 1)
	draining := func(why expand.Reason) func(*Cluster, *corev1.Node) {
		return func(c *Cluster, _ *corev1.Node) {
			b := fixtures.At(block, 2, ipalloc.Draining)
			b.Reason = why
			c.Ledger.Upsert(b)
		}
	}
	for name, test := range map[string]struct {
		change func(*Cluster, *corev1.Node)
		want   expand.Reason
	}{
		"it moves off":               {want: expand.NodeUnselected},
		"it goes on, once begun":     {draining(expand.NodeUnselected), expand.NodeUnselected},
		"as idle as it is":           {draining(expand.Reclaim), expand.NodeUnselected},
		"a first block, before that": {draining(expand.PoolChanged), expand.None},
		"it cools down: not again": {func(c *Cluster, _ *corev1.Node) {
			c.Ledger.Upsert(fixtures.At(block, 2, ipalloc.CoolingDown))
		}, expand.NodeUnselected},
		"back in its zone": {func(_ *Cluster, n *corev1.Node) { n.Labels["zone"] = "a" }, expand.None},
		"the pool retains": {func(c *Cluster, _ *corev1.Node) {
			c.Pools.Set(fixtures.Edited(inZone("a", "10.1.0.0/28"), func(s *v1alpha1.PodIPPoolSpec) { s.UnselectedNodes.Mode = v1alpha1.UnselectedNodesRetain }))
		}, expand.None},
		"no other pool serves it": {func(_ *Cluster, n *corev1.Node) { n.Labels["zone"] = "c" }, expand.None},
		"Cilium does not run there": {func(_ *Cluster, n *corev1.Node) {
			n.Labels[v1alpha1.OptOutLabel] = "true"
		}, expand.None},
		"its labels are not final": {func(_ *Cluster, n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: "labels-come"}}
		}, expand.None},
		"a selector that cannot be read": {func(c *Cluster, _ *corev1.Node) {
			c.Pools.Set(fixtures.Edited(inZone("a", "10.1.0.0/28"), func(s *v1alpha1.PodIPPoolSpec) {
				s.NodeSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "zone", Operator: "Is"}}}
			}))
		}, expand.None},
		"its agent is assigned whole blocks": {func(c *Cluster, _ *corev1.Node) {
			cn := fixtures.Pooled(2, cidr)
			cn.ResourceVersion = "9"
			c.Ledger.UpsertCiliumNode(ciliumnode.MultiPool.View(cn))
		}, expand.None},
		"requested by its name": {func(c *Cluster, _ *corev1.Node) {
			b := fixtures.At(block, 2, ipalloc.InService)
			b.Deleting = true
			c.Ledger.Upsert(b)
		}, expand.Deleted},
	} {
		t.Run(name, func(t *testing.T) {
			c, node := clusterOf(block), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"zone": "b"}}}
			c.Pools.Delete("p")
			c.Pools.Set(inZone("a", "10.1.0.0/28"))
			c.Pools.Set(inZone("b", "10.2.0.0/28"))
			c.Ledger.UpsertCiliumNode(ciliumnode.NewView(fixtures.Joined("n", "10.1.0.1", "10.1.0.2")))
			if test.change != nil {
				test.change(c, node)
			}
			shares := c.Snapshot("n", node, fixtures.Noon()).Shares
			if len(shares) != 1 || len(shares[0].State.Blocks) != 1 {
				t.Fatalf("%d shares: %+v", len(shares), shares)
			}
			if got := shares[0].State.Blocks[0].Request; got != test.want {
				t.Errorf("the block is requested as %q, want %q", got, test.want)
			}
		})
	}
}

// Blocks of an earlier Node of the name return to the present one only if their pools select it,
// with any policy for unselected nodes. A block no younger than the CiliumNode cools down until its
// agent has had time to report.
func TestBlocksOfEarlierNode(t *testing.T) {
	for name, test := range map[string]struct {
		zone   string
		reason expand.Reason
		want   expand.Reason
		after  time.Duration // created, after the CiliumNode
	}{
		"in another zone":           {zone: "b", reason: expand.NodeGone, want: expand.NodeUnselected},
		"in the same zone":          {zone: "a", reason: expand.NodeGone},
		"younger":                   {zone: "a", reason: expand.NodeGone, after: time.Second},
		"in another, given back":    {zone: "b", reason: expand.Returned},
		"there is no Node any more": {reason: expand.NodeGone, after: -time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			block := fixtures.At(fixtures.Block("10.1.0.0/30", "a", "n", 1), 2, ipalloc.CoolingDown)
			block.Reason, block.Created = test.reason, fixtures.Noon().Add(test.after)
			c, cn := clusterOf(block), fixtures.CiliumNode("n", "1")
			cn.CreationTimestamp = metav1.NewTime(fixtures.Noon())
			c.Ledger.UpsertCiliumNode(ciliumnode.NewView(cn))
			c.Pools.Set(fixtures.Edited(inZone("a", "10.1.0.0/28"), func(s *v1alpha1.PodIPPoolSpec) { s.UnselectedNodes.Mode = v1alpha1.UnselectedNodesRetain }))
			var node *corev1.Node
			if test.zone != "" {
				node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"zone": test.zone}}}
			}
			got := c.Snapshot("n", node, fixtures.Noon()).Shares[0].State.Blocks[0]
			if got.Request != test.want {
				t.Errorf("the block is requested as %q, want %q", got.Request, test.want)
			}
			if extended := got.CooldownUntil.Equal(fixtures.Noon().Add(c.Defaults.Policy.AckTimeout)); extended != (test.after <= 0) {
				t.Errorf("the block cools down until %s", got.CooldownUntil)
			}
		})
	}
}

// The same holds if the operator did not see that the earlier Node was gone.
func TestBlocksOfEarlierNodeInService(t *testing.T) {
	for name, test := range map[string]struct {
		uid    types.UID // of the block's Node
		change func(*Cluster)
		want   expand.Reason
	}{
		"of an earlier Node": {"earlier", nil, expand.NodeUnselected},
		"of this Node":       {"uid", nil, expand.None},
		"of an unknown Node": {"", nil, expand.None},
		"its CiliumNode lists": {"earlier", func(c *Cluster) {
			c.Ledger.UpsertCiliumNode(ciliumnode.NewView(fixtures.Joined("n", "10.1.0.1")))
		}, expand.None},
		"a pod uses it": {"earlier", func(c *Cluster) {
			c.Pods.Set(ReadPod(fixtures.Pod("a", "a", "n", "10.1.0.1")), fixtures.Noon())
		}, expand.None},
	} {
		t.Run(name, func(t *testing.T) {
			block := fixtures.Block("10.1.0.0/30", "a", "n", 1)
			block.NodeUID = test.uid
			c := clusterOf(block)
			c.Pools.Set(fixtures.Edited(inZone("a", "10.1.0.0/28"), func(s *v1alpha1.PodIPPoolSpec) { s.UnselectedNodes.Mode = v1alpha1.UnselectedNodesRetain }))
			if test.change != nil {
				test.change(c)
			}
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "uid", Labels: map[string]string{"zone": "b"}}}
			if got := c.Snapshot("n", node, fixtures.Noon()).Shares[0].State.Blocks[0].Request; got != test.want {
				t.Errorf("the block is requested as %q, want %q", got, test.want)
			}
		})
	}
}

func TestMovingOff(t *testing.T) {
	c := clusterOf()
	for i, b := range []crd.Block{
		{Node: "moves", Phase: ipalloc.Draining, Reason: expand.NodeUnselected},
		{Node: "gives-back", Phase: ipalloc.Draining, Reason: expand.Reclaim},
		{Node: "waits", Phase: ipalloc.InService},
		{Node: "has-moved", Phase: ipalloc.CoolingDown, Reason: expand.Returned},
	} {
		of := fixtures.Block(fixtures.Prefixes("10.0.0.0/30", "10.0.0.4/30", "10.0.0.8/30", "10.0.0.12/30")[i].String(), "p", b.Node, i+1)
		of.Phase, of.Reason = b.Phase, b.Reason
		c.Ledger.Upsert(of)
	}
	of := c.Ledger.NodeBlocks("moves")[0]
	second := fixtures.Block("10.0.0.16/30", "p", "moves", 9)
	second.Phase, second.Reason = of.Phase, of.Reason
	c.Ledger.Upsert(second)
	check := func(want bool) {
		t.Helper()
		n := 0
		for _, node := range c.Ledger.Nodes() {
			if c.Ledger.MovesOff(node, "p") {
				n++
			}
		}
		if got := c.Ledger.MovingOff("p"); got != n || c.Ledger.MovesOff("moves", "p") != want || (n == 1) != want {
			t.Errorf("%d nodes move off p, said to be %d", n, got)
		}
	}
	check(true)
	c.Ledger.Remove(of)
	check(true)
	second.Phase, second.ResourceVersion = ipalloc.CoolingDown, "10"
	c.Ledger.Upsert(second)
	check(false)
}

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
