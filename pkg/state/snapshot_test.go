package state

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unique"

	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// clusterOf returns a cluster with one pool and these blocks.
func clusterOf(blocks ...crd.Block) *Cluster {
	ledger := ReadyLedger(blocks...)
	c := &Cluster{
		Ledger: ledger, Pools: NewPools(fixtures.Defaults(), ledger), Pods: NewPods(), Agents: NewAgents(0),
		CiliumPools: NewCiliumPools(), Defaults: fixtures.Defaults(), StartupTaints: SetOf([]string{"labels-come"}),
	}
	c.Pools.Set(fixtures.PodIPPool("p", 1, "10.0.0.0/28"))
	return c
}

// checkTwins fails the test if the snapshot of node n depends on another Cilium pool, or on pods of the names of its own.
func checkTwins(t *testing.T, c *Cluster, node *corev1.Node) {
	t.Helper()
	alone := c.Snapshot("n", node, fixtures.Noon())
	check := func(beside string) {
		t.Helper()
		if got := c.Snapshot("n", node, fixtures.Noon()); !reflect.DeepEqual(alone, got) {
			t.Errorf("%s (-alone +beside):\n%s", beside, cmp.Diff(fmt.Sprintf("%+v", alone), fmt.Sprintf("%+v", got)))
		}
	}
	for i, pod := range c.Pods.byNode["n"] {
		pod.PodKey, pod.IPs = PodKey{"m", types.UID(fmt.Sprint("twin", i))}, fixtures.Addrs("10.99.0.1")
		pod.request = unique.Make(PoolRequest{pools: [2]string{"twin", "twin"}})
		c.Pods.Set(pod, fixtures.Noon())
		check("a pod of the name on another node")
		pod.Node = "n"
		c.Pods.Set(pod, fixtures.Noon())
		c.Pods.Delete(pod.PodKey, fixtures.Noon())
		check("an earlier pod of the name")
	}
	if c.Defaults.CiliumPools && alone.CiliumNode == nil { // it then has a share for each
		return
	}
	pool := fixtures.Edited(fixtures.DualStack(), func(s *v1alpha1.PodIPPoolSpec) {
		s.CiliumPoolName, s.IPv4.CIDRs[0].CIDR, s.IPv6.CIDRs[0].CIDR = "twin", "10.99.0.0/28", "fd99::/120"
	})
	pool.Name = "twin"
	c.Pools.Set(pool)
	c.Ledger.Upsert(fixtures.Block("10.99.0.0/30", "twin", "m", 1))
	check("another Cilium pool")
}

// A router's IPv6 address that no PodIPPool and no CIDR of the node contains is configured: the
// agent runs IPv6 though it reports none of it.
func TestSnapshotConfiguredRouter(t *testing.T) {
	for router, familyDisabled := range map[string]bool{"fd00::1": true, "2001:db8::23": false} {
		c, cn := clusterOf(), fixtures.IPv4Agent()
		c.Pools.Delete("p")
		c.Pools.Set(fixtures.DualStack())
		cn.Spec.Addresses = append(cn.Spec.Addresses, ciliumv2.NodeAddress{Type: "CiliumInternalIP", IP: router})
		cn.Status.IPAM.Used["10.0.0.1"] = ipamtypes.AllocationIP{Owner: "router"}
		c.Ledger.UpsertCiliumNode(ciliumnode.NewView(cn))
		s := c.Snapshot("n", fixtures.Node(), fixtures.Noon())
		if got := s.CiliumNode.FamilyDisabled(ipalloc.IPv6); got != familyDisabled {
			t.Errorf("%s: the agent does not run IPv6: %t, want %t", router, got, familyDisabled)
		}
		for _, share := range s.Shares {
			if want := familyDisabled && share.Family == ipalloc.IPv6; share.State.FamilyDisabled != want {
				t.Errorf("%s: decided as if %s did not run: %t", router, share.Family, share.State.FamilyDisabled)
			}
		}
	}
}

// A node under a startup taint waits, unless it has addresses or had them when its
// CiliumNode was deleted. A caller that does not know the deleted one, such as an audit,
// assumes that the node waits.
func TestSnapshotAwaitsLabels(t *testing.T) {
	owned := func(version string) *ciliumv2.CiliumNode {
		cn := fixtures.Publishing(fixtures.CiliumNode("n", ""), "192.0.2.7")
		cn.ResourceVersion = version
		cn.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n", UID: "node-uid"}}
		return cn
	}
	earlier := fixtures.At(fixtures.Block("10.0.0.0/30", "p", "n", 1), 2, ipalloc.CoolingDown)
	earlier.Reason = expand.NodeGone
	for name, test := range map[string]struct {
		blocks  []crd.Block
		spoil   func(*Cluster, *corev1.Node)
		waits   bool
		overdue bool
	}{
		"nothing is known of it":            {waits: true},
		"its labels cannot change its pool": {spoil: func(c *Cluster, _ *corev1.Node) { c.Pools.Delete("z") }},
		"for four minutes": {waits: true, spoil: func(_ *Cluster, node *corev1.Node) {
			node.CreationTimestamp = metav1.NewTime(fixtures.Noon().Add(-4 * time.Minute))
		}},
		"for too long": {overdue: true, spoil: func(_ *Cluster, node *corev1.Node) {
			node.CreationTimestamp = metav1.NewTime(fixtures.Noon().Add(-5 * time.Minute))
		}},
		"an empty CiliumNode": {waits: true, spoil: func(c *Cluster, _ *corev1.Node) {
			c.Ledger.UpsertCiliumNode(ciliumnode.NewView(fixtures.CiliumNode("n", "1")))
		}},
		"a CiliumNode with an address": {spoil: func(c *Cluster, _ *corev1.Node) {
			c.Ledger.UpsertCiliumNode(ciliumnode.NewView(owned("1")))
		}},
		"a deleted CiliumNode with an address": {spoil: func(c *Cluster, _ *corev1.Node) {
			c.Ledger.UpsertCiliumNode(ciliumnode.NewView(owned("1")))
			c.Ledger.RemoveCiliumNode(ciliumnode.NewView(owned("2")))
		}},
		"a deleted CiliumNode of an earlier Node": {waits: true, spoil: func(c *Cluster, node *corev1.Node) {
			c.Ledger.UpsertCiliumNode(ciliumnode.NewView(owned("1")))
			c.Ledger.RemoveCiliumNode(ciliumnode.NewView(owned("2")))
			node.UID = "another"
		}},
		"a block of an earlier Node": {waits: true, blocks: []crd.Block{earlier}},
		"one that a pod uses": {blocks: []crd.Block{earlier}, spoil: func(c *Cluster, _ *corev1.Node) {
			c.Pods.Set(ReadPod(fixtures.Pod("a", "a", "n", "10.0.0.1")), fixtures.Noon())
		}},
		"a block":        {blocks: []crd.Block{fixtures.Block("10.0.0.0/30", "p", "n", 1)}},
		"without Cilium": {spoil: func(c *Cluster, _ *corev1.Node) { c.IgnoreTaints = SetOf([]string{"labels-come"}) }},
		"with Linux":     {waits: true, spoil: func(_ *Cluster, node *corev1.Node) { node.Labels = map[string]string{corev1.LabelOSStable: "linux"} }},
		"with Windows":   {spoil: func(_ *Cluster, node *corev1.Node) { node.Labels = map[string]string{corev1.LabelOSStable: "windows"} }},
	} {
		t.Run(name, func(t *testing.T) {
			c, node := clusterOf(test.blocks...), fixtures.Node()
			node.Spec.Taints = []corev1.Taint{{Key: "labels-come"}}
			c.Pools.Set(fixtures.ZonedPool())
			if test.spoil != nil {
				test.spoil(c, node)
			}
			s := c.Snapshot("n", node, fixtures.Noon())
			if got := s.Standing.Kind == AwaitsLabels && strings.Contains(s.Standing.Cause, "labels-come"); got != test.waits {
				t.Errorf("its standing is %+v, waits: %t", s.Standing, test.waits)
			}
			if got := strings.Contains(s.Standing.Overdue, "labels-come"); got != test.overdue {
				t.Errorf("overdue %q, want: %t", s.Standing.Overdue, test.overdue)
			}
			for i := range s.Shares {
				if s.Shares[i].Standing.Because() != s.Standing.Cause {
					t.Errorf("held as %q, awaits %q", s.Shares[i].Standing.Because(), s.Standing.Cause)
				}
			}
			checkTwins(t, c, node)
		})
	}
}

// Pods that another CNI plugin serves are no demand, nor are pods that wait where no agent has been
// seen: a node without Cilium gets at most the addresses that an agent needs to start.
func TestSnapshotWithoutForeignPods(t *testing.T) {
	agent := func(c *Cluster) { c.Agents.Set(ReadAgent(fixtures.AgentPod("agent", "c", false)), fixtures.Noon()) }
	for name, test := range map[string]struct {
		spoil func(*Cluster)
		ips   []string
		want  int
	}{
		"from elsewhere":                        {ips: []string{"172.16.4.1"}},
		"from elsewhere, beside an agent":       {ips: []string{"172.16.4.1"}, spoil: agent},
		"of a pool":                             {ips: []string{"10.0.0.9"}, want: 1},
		"of a pool, and from elsewhere in IPv6": {ips: []string{"10.0.0.9", "fd00::1"}, want: 1},
		"of a block of no pool": {ips: []string{"10.9.0.1"}, want: 1, spoil: func(c *Cluster) {
			c.Ledger.Upsert(fixtures.Block("10.9.0.0/30", "gone", "n", 1))
		}},
		"of another node's block": {ips: []string{"10.9.0.1"}, want: 1, spoil: func(c *Cluster) {
			c.Ledger.Upsert(fixtures.Block("10.9.0.0/30", "gone", "m", 1))
		}},
		"of the CiliumNode": {ips: []string{"192.0.2.7"}, want: 1, spoil: func(c *Cluster) {
			c.Ledger.UpsertCiliumNode(ciliumnode.NewView(fixtures.Publishing(fixtures.CiliumNode("n", "1"), "192.0.2.7")))
		}},
		"of its podCIDRs": {ips: []string{"192.0.2.7"}, want: 1, spoil: func(c *Cluster) {
			c.Ledger.UpsertCiliumNode(ciliumnode.NewView(fixtures.CiliumNode("n", "1", "192.0.2.0/24")))
		}},
		"none yet":                  {},
		"none yet, beside an agent": {spoil: agent, want: 1},
	} {
		t.Run(name, func(t *testing.T) {
			c := clusterOf()
			c.Pods.Set(ReadPod(fixtures.Pod("a", "a", "n", test.ips...)), fixtures.Noon())
			if test.spoil != nil {
				test.spoil(c)
			}
			if got := c.Snapshot("n", fixtures.Node(), fixtures.Noon()).Shares[0].State.Pods; len(got) != test.want {
				t.Errorf("%d pods count, want %d", len(got), test.want)
			}
			checkTwins(t, c, fixtures.Node())
		})
	}
}

// A pod that may set the labels needs an address first.
func TestEndsWait(t *testing.T) {
	for name, test := range map[string]struct {
		spoil func(*corev1.Pod)
		ends  bool
	}{
		"it tolerates the taint and waits": {ends: true},
		"it does not tolerate it":          {spoil: func(p *corev1.Pod) { p.Spec.Tolerations = nil }},
		"it has an address":                {spoil: func(p *corev1.Pod) { p.Status.PodIPs = []corev1.PodIP{{IP: "192.0.2.1"}} }},
		"it is on the host network":        {spoil: func(p *corev1.Pod) { p.Spec.HostNetwork = true }},
		"it has ended":                     {spoil: func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }},
		"it is of a DaemonSet": {spoil: func(p *corev1.Pod) {
			yes := true
			p.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Name: "logs", Controller: &yes}}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			c, node, pod := clusterOf(), fixtures.Node(), corev1.Pod{}
			c.Pools.Set(fixtures.ZonedPool())
			node.Spec.Taints = []corev1.Taint{{Key: "labels-come", Effect: corev1.TaintEffectNoSchedule}}
			pod.Spec.NodeName, pod.Spec.Tolerations = "n", []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
			if test.spoil != nil {
				test.spoil(&pod)
			}
			if ends := c.EndsWait(node, []corev1.Pod{pod}); ends != test.ends {
				t.Errorf("it ends the wait: %t", ends)
			}
			if s := c.Snapshot("n", node, fixtures.Noon()); s.Standing.Kind != AwaitsLabels || s.Shares[0].Standing.MayClaim() {
				t.Errorf("its standing is %+v", s.Standing)
			}
			if s := c.SnapshotWithFinalLabels("n", node, fixtures.Noon()); s.Standing.Kind != Served || !s.Shares[0].Standing.MayClaim() {
				t.Errorf("with final labels its standing is %+v", s.Standing)
			}
			checkTwins(t, c, node)
		})
	}
}

// A release entry of a family that has no pool and no block is still decided on, or it
// would stay forever.
func TestSnapshotOfAnEntryAlone(t *testing.T) {
	for name, test := range map[string]struct {
		entry  string
		shares int
	}{"IPv6, which no pool has": {"fd00::1", 2}, "IPv4, which the pool has": {"10.0.0.1", 1}} {
		c, cn := clusterOf(), fixtures.CiliumNode("n", "1")
		cn.Status.IPAM.ReleaseIPs = map[string]ipamtypes.IPReleaseStatus{test.entry: ipamtypes.IPReleaseStatus(expand.DoNotRelease)}
		c.Ledger.UpsertCiliumNode(ciliumnode.NewView(cn))
		if got := c.Snapshot("n", fixtures.Node(), fixtures.Noon()).Shares; len(got) != test.shares || len(got[len(got)-1].State.Release) != 1 {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// An agent that has not started in the operator's mode has its report still to come.
func TestSnapshotAdopting(t *testing.T) {
	adopted := fixtures.Block("10.0.0.0/30", "p", "n", 1)
	adopted.AdoptedFrom = "cluster-pool"
	for name, test := range map[string]struct {
		mode ciliumnode.Mode
		want bool
	}{"crd": {ciliumnode.CRD, true}, "multi-pool": {ciliumnode.MultiPool, true}, "observed": {ciliumnode.ClusterPool, false}} {
		c := clusterOf(adopted)
		c.Ledger.UpsertCiliumNode(test.mode.View(fixtures.CiliumNode("n", "1", "10.0.0.0/30")))
		if got := c.Snapshot("n", fixtures.Node(), fixtures.Noon()); got.Shares[0].State.Adopting != test.want || (got.Standing.Kind == Adopting) != test.want {
			t.Errorf("%s: its standing is %+v", name, got.Standing)
		}
	}
}

// Pods wait for an address of the other family if their agent runs it, none is free, and no
// pool has a block of it.
func TestOtherFamilyFull(t *testing.T) {
	for name, test := range map[string]struct {
		ipv4  string // the pool's range
		pods  []string
		spoil func(*Cluster, *ciliumv2.CiliumNode)
		want  bool // for IPv6
	}{
		"neither address nor block is left": {ipv4: "10.0.0.0/30", pods: []string{"10.0.0.1", "10.0.0.2"}, want: true},
		"an address is":                     {ipv4: "10.0.0.0/30", pods: []string{"10.0.0.1"}},
		"a block is":                        {ipv4: "10.0.0.0/29", pods: []string{"10.0.0.1", "10.0.0.2"}},
		"no block is ever parked": {ipv4: "10.0.0.0/30", pods: []string{"10.0.0.1", "10.0.0.2"}, spoil: func(c *Cluster, _ *ciliumv2.CiliumNode) {
			c.ParkBlocks = false
		}},
		"the agent does not run it": {ipv4: "10.0.0.0/30", pods: []string{"10.0.0.1", "10.0.0.2"}, spoil: func(_ *Cluster, cn *ciliumv2.CiliumNode) {
			cn.Spec.IPAM.Pools.Requested[0].Needed.IPv4Addrs = 0
		}},
		"the agent has not reported": {ipv4: "10.0.0.0/30", pods: []string{"10.0.0.1", "10.0.0.2"}, spoil: func(_ *Cluster, cn *ciliumv2.CiliumNode) {
			cn.Spec.IPAM.Pools.Requested = nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			c := clusterOf(fixtures.Block("10.0.0.0/30", "p", "n", 1), fixtures.Block("fd00::/126", "p", "n", 2))
			c.ParkBlocks, c.Defaults.CiliumPools = true, true
			pool, cn := fixtures.DualStack(), fixtures.Pooled(4, "10.0.0.0/30", "fd00::/126")
			pool.Generation, pool.Spec.IPv4.CIDRs[0].CIDR = 2, test.ipv4
			cn.Spec.IPAM.Pools.Requested[0].Needed.IPv6Addrs = 4
			if test.spoil != nil {
				test.spoil(c, cn)
			}
			c.Pools.Set(pool)
			c.Ledger.UpsertCiliumNode(ciliumnode.MultiPool.View(cn))
			for _, ip := range test.pods {
				c.Pods.Set(ReadPodWithRequest(fixtures.Pod(ip, ip, "n", ip)), fixtures.Noon())
			}
			s := c.Snapshot("n", fixtures.Node(), fixtures.Noon())
			if len(s.Shares) != 2 {
				t.Fatalf("%d families", len(s.Shares))
			}
			for i := range s.Shares {
				if got, want := s.Shares[i].State.BlockAssignment.OtherFamilyFull, test.want && s.Shares[i].Family == ipalloc.IPv6; got != want {
					t.Errorf("%s: %t, want %t", s.Shares[i].Family, got, want)
				}
			}
			checkTwins(t, c, fixtures.Node())
		})
	}
}

// A node has a share of the default pool, and of the Cilium pools that its agent or its pods
// request or that it lists, but not of all others that PodIPPools serve there.
func TestSnapshotShares(t *testing.T) {
	for name, test := range map[string]struct {
		requested []string // by its agent; nil: it has no CiliumNode
		pod       string   // the pool that a pod requests
		want      []string
	}{
		"no CiliumNode yet":   {want: []string{"", "blue", "green", "red"}},
		"the default pool":    {requested: []string{"default"}, want: []string{""}},
		"its agent requests":  {requested: []string{"default", "blue"}, want: []string{"", "blue"}},
		"a pod requests":      {requested: []string{"default"}, pod: "red", want: []string{"", "red"}},
		"nothing serves that": {requested: []string{"default", "pink"}, pod: "grey", want: []string{""}},
	} {
		t.Run(name, func(t *testing.T) {
			c := clusterOf()
			c.Defaults.CiliumPools = true
			c.Pools = NewPools(c.Defaults, c.Ledger)
			c.Pools.Set(fixtures.PodIPPool("p", 1, "10.0.0.0/28"))
			for i, color := range []string{"green", "blue", "red"} {
				pool := fixtures.PodIPPool(color+"s", 1, fmt.Sprintf("10.%d.0.0/28", i+1))
				pool.Spec.CiliumPoolName = color
				c.Pools.Set(pool)
			}
			if test.requested != nil {
				cn := fixtures.CiliumNode("n", "1")
				for _, pool := range test.requested {
					cn.Spec.IPAM.Pools.Requested = append(cn.Spec.IPAM.Pools.Requested, ipamtypes.IPAMPoolRequest{Pool: pool, Needed: ipamtypes.IPAMPoolDemand{IPv4Addrs: 1}})
				}
				c.Ledger.UpsertCiliumNode(ciliumnode.MultiPool.View(cn))
			}
			if test.pod != "" {
				pod := fixtures.Pod("a", "a", "n")
				pod.Annotations = map[string]string{poolAnnotation: test.pod}
				c.Pods.Set(ReadPodWithRequest(pod), fixtures.Noon())
			}
			var got []string
			for _, share := range c.Snapshot("n", fixtures.Node(), fixtures.Noon()).Shares {
				got = append(got, share.CiliumPool)
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("shares of %q, want %q", got, test.want)
			}
			checkTwins(t, c, fixtures.Node())
		})
	}
}
