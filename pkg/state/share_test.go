package state

import (
	"slices"
	"testing"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumconfig"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// inZone returns a pool for nodes of a zone that drains its blocks on other nodes.
func inZone(zone string, ranges ...string) *v1alpha1.PodIPPool {
	return fixtures.Edited(fixtures.PodIPPool(zone, 1, ranges...), func(s *v1alpha1.PodIPPoolSpec) {
		s.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"zone": zone}}
		s.UnselectedNodes.Policy = v1alpha1.UnselectedNodesDrain
	})
}

// Node n of zone b holds a block of zone a. A block of an earlier Node of the name returns to the
// present one only if its pool selects that, with any policy for unselected nodes.
func TestRequest(t *testing.T) {
	const cidr = "10.1.0.0/30"
	phase := func(phase ipalloc.Phase, why expand.Reason) func(*crd.Block) {
		return func(b *crd.Block) { b.Phase, b.Reason = phase, why }
	}
	nodeUID := func(uid types.UID) func(*crd.Block) { return func(b *crd.Block) { b.NodeUID = uid } }
	zone := func(zone string) func(*Cluster, *corev1.Node) {
		return func(_ *Cluster, n *corev1.Node) { n.Labels["zone"] = zone }
	}
	retains := func(c *Cluster, _ *corev1.Node) {
		c.Pools.Set(fixtures.Edited(inZone("a", "10.1.0.0/28"), func(s *v1alpha1.PodIPPoolSpec) { s.UnselectedNodes.Policy = v1alpha1.UnselectedNodesRetain }))
	}
	unpublished := func(c *Cluster, _ *corev1.Node) {
		c.Ledger.UpsertCiliumNode(ciliumnode.NewView(fixtures.CiliumNode("n", "9")))
	}
	listed := func(c *Cluster, _ *corev1.Node) {
		c.Ledger.UpsertCiliumNode(ciliumnode.NewView(fixtures.CiliumNode("n", "9", cidr)))
	}
	for name, test := range map[string]struct {
		block  func(*crd.Block)
		change []func(*Cluster, *corev1.Node)
		want   expand.Reason
	}{
		"it moves off":               {nil, nil, expand.NodeUnselected},
		"it goes on, once begun":     {phase(ipalloc.Draining, expand.NodeUnselected), nil, expand.NodeUnselected},
		"as idle as it is":           {phase(ipalloc.Draining, expand.Reclaim), nil, expand.NodeUnselected},
		"a first block, before that": {phase(ipalloc.Draining, expand.PoolChanged), nil, expand.None},
		"it cools down: not again":   {phase(ipalloc.CoolingDown, expand.Returned), nil, expand.NodeUnselected},
		"requested by its name":      {func(b *crd.Block) { b.Deleting = true }, nil, expand.Deleted},
		"requested in its spec":      {func(b *crd.Block) { b.Drain = true }, nil, expand.DrainRequested},
		"back in its zone":           {nil, []func(*Cluster, *corev1.Node){zone("a")}, expand.None},
		"the pool retains":           {nil, []func(*Cluster, *corev1.Node){retains}, expand.None},
		"no other pool serves it":    {nil, []func(*Cluster, *corev1.Node){zone("c")}, expand.None},
		"Cilium does not run there": {nil, []func(*Cluster, *corev1.Node){func(_ *Cluster, n *corev1.Node) {
			n.Labels[v1alpha1.OptOutLabel] = "true"
		}}, expand.None},
		"its labels are not final": {nil, []func(*Cluster, *corev1.Node){func(_ *Cluster, n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: "labels-come"}}
		}}, expand.None},
		"a selector that cannot be read": {nil, []func(*Cluster, *corev1.Node){func(c *Cluster, _ *corev1.Node) {
			c.Pools.Set(fixtures.Edited(inZone("a", "10.1.0.0/28"), func(s *v1alpha1.PodIPPoolSpec) {
				s.NodeSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "zone", Operator: "Is"}}}
			}))
		}}, expand.None},
		"its agent is assigned whole blocks": {nil, []func(*Cluster, *corev1.Node){func(c *Cluster, _ *corev1.Node) {
			cn := fixtures.Pooled(2, cidr)
			cn.ResourceVersion = "9"
			c.Ledger.UpsertCiliumNode(ciliumnode.MultiPool.View(cn))
		}}, expand.None},

		"of an earlier Node that is gone": {phase(ipalloc.CoolingDown, expand.NodeGone), []func(*Cluster, *corev1.Node){retains, unpublished}, expand.NodeUnselected},
		"of one in the same zone":         {phase(ipalloc.CoolingDown, expand.NodeGone), []func(*Cluster, *corev1.Node){retains, unpublished, zone("a")}, expand.None},
		"of an earlier Node, not seen":    {nodeUID("earlier"), []func(*Cluster, *corev1.Node){retains, unpublished}, expand.NodeUnselected},
		"of this Node":                    {nodeUID("uid"), []func(*Cluster, *corev1.Node){retains, unpublished}, expand.None},
		"of an unknown Node":              {nodeUID(""), []func(*Cluster, *corev1.Node){retains, unpublished}, expand.None},
		"of an earlier Node, and listed":  {nodeUID("earlier"), []func(*Cluster, *corev1.Node){retains, listed}, expand.None},
		"of an earlier Node, and a pod uses it": {nodeUID("earlier"), []func(*Cluster, *corev1.Node){retains, unpublished, func(c *Cluster, _ *corev1.Node) {
			c.Pods.Set(ReadPod(fixtures.Pod("a", "a", "n", "10.1.0.1")), fixtures.Noon())
		}}, expand.None},
	} {
		t.Run(name, func(t *testing.T) {
			c, block := clusterOf(), fixtures.Block(cidr, "a", "n", 1)
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "uid", Labels: map[string]string{"zone": "b"}}}
			if test.block != nil {
				test.block(&block)
			}
			c.Ledger.Upsert(block)
			c.Pools.Delete("p")
			c.Pools.Set(inZone("a", "10.1.0.0/28"))
			c.Pools.Set(inZone("b", "10.2.0.0/28"))
			c.Ledger.UpsertCiliumNode(ciliumnode.NewView(fixtures.Joined("n", "10.1.0.1", "10.1.0.2")))
			for _, change := range test.change {
				change(c, node)
			}
			shares := c.Snapshot("n", node, fixtures.Noon()).Shares
			if len(shares) != 1 || len(shares[0].State.Blocks) != 1 {
				t.Fatalf("%d shares: %+v", len(shares), shares)
			}
			if got := shares[0].State.Blocks[0].Request; got != test.want {
				t.Errorf("the block is requested as %q, want %q", got, test.want)
			}
			checkTwins(t, c, node)
		})
	}
}

// A block no younger than the CiliumNode cools down until its agent has had time to report.
func TestCooldownOfEarlierBlock(t *testing.T) {
	for after, extended := range map[time.Duration]bool{-time.Second: true, 0: true, time.Second: false} {
		block := fixtures.At(fixtures.Block("10.0.0.0/30", "p", "n", 1), 2, ipalloc.CoolingDown)
		block.Created = fixtures.Noon().Add(after)
		c, cn := clusterOf(block), fixtures.CiliumNode("n", "1")
		cn.CreationTimestamp = metav1.NewTime(fixtures.Noon())
		c.Ledger.UpsertCiliumNode(ciliumnode.NewView(cn))
		got := c.Snapshot("n", nil, fixtures.Noon()).Shares[0].State.Blocks[0].CooldownUntil
		if got.Equal(fixtures.Noon().Add(c.Defaults.Policy.AckTimeout)) != extended {
			t.Errorf("created after %s, the block cools down until %s", after, got)
		}
	}
}

// A node moves off a pool as long as one of its blocks drains because the pool does not select it.
func TestMovingOff(t *testing.T) {
	l, version := ReadyLedger(), 0
	block := func(node, cidr string, phase ipalloc.Phase, why expand.Reason) crd.Block {
		version++
		b := fixtures.At(fixtures.Block(cidr, "p", node, 1), version, phase)
		b.UID, b.Reason = types.UID(cidr), why
		return b
	}
	for i, step := range []struct {
		set  crd.Block
		gone bool
		want bool
	}{
		{block("gives-back", "10.0.0.0/30", ipalloc.Draining, expand.Reclaim), false, false},
		{block("waits", "10.0.0.4/30", ipalloc.InService, expand.None), false, false},
		{block("has-moved", "10.0.0.8/30", ipalloc.CoolingDown, expand.NodeUnselected), false, false},
		{block("moves", "10.0.0.12/30", ipalloc.Draining, expand.NodeUnselected), false, true},
		{block("moves", "10.0.0.16/30", ipalloc.Draining, expand.NodeUnselected), false, true},
		{block("moves", "10.0.0.12/30", ipalloc.Draining, expand.NodeUnselected), true, true},
		{block("moves", "10.0.0.16/30", ipalloc.CoolingDown, expand.NodeUnselected), false, false},
	} {
		if step.gone {
			l.Remove(step.set)
		} else {
			l.Upsert(step.set)
		}
		n := 0
		for _, node := range l.Nodes() {
			if l.MovesOff(node, "p") {
				n++
			}
		}
		if got := l.MovingOff("p"); got != n || l.MovesOff("moves", "p") != step.want || (n == 1) != step.want {
			t.Errorf("step %d: %d nodes move off p, said to be %d", i, n, got)
		}
	}
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
			if got := c.Snapshot("n", node, fixtures.Noon()).otherMode; got != test.want {
				t.Errorf("the agent starts in %q, want %q", got, test.want)
			}
			others, n := c.OtherModes([]corev1.Node{*node})
			if n != len(others) || n == 1 != (test.want != "") || n == 1 && !slices.Equal(others[0].Nodes, []string{"n"}) {
				t.Errorf("%d nodes: %v", n, others)
			}
			for _, share := range c.Snapshot("n", node, fixtures.Noon()).Shares {
				held := share.State.ReclaimDelay.Reason == expand.WaitMode && share.State.Blocks[0].Delay.Reason == expand.WaitMode
				if held != (test.want != "") {
					t.Errorf("drains are held back: %t", held)
				}
			}
			checkTwins(t, c, node)
		})
	}
}

func inMode(mode string) *ciliumconfig.Config {
	return &ciliumconfig.Config{Data: map[string]string{"ipam": mode}}
}
