package plugin

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/audit"
	"github.com/cilium-pool/cilium-pool-operator/pkg/audit/auditcmd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/exclude"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// cluster is a snapshot in the operator's own terms.
type cluster struct {
	now      time.Time
	snapshot *audit.Snapshot
	// ciliumNodes are whole, unlike those of the snapshot: the ledger learns from them
	// what others have taken.
	ciliumNodes []*ciliumv2.CiliumNode
	// operator is what is known of it.
	operator auditcmd.Operator

	// Cluster is what the operator would know.
	state.Cluster
	nodes  map[string]*corev1.Node
	views  map[string]*ciliumnode.View
	poolOf map[string]*v1alpha1.PodIPPool
	// histories are those of pools, by name; some may have none.
	histories map[string]*v1alpha1.PodIPPoolHistory
	// supposed says that the pools are not those of the cluster.
	supposed bool
}

func newCluster(s *audit.Snapshot, ciliumNodes []*ciliumv2.CiliumNode, operator auditcmd.Operator) *cluster {
	settings := &operator.Settings
	settings.Defaults.WholeBlocks, settings.Defaults.CiliumPools = s.Mode.WholeBlocks(), s.Mode.ManyPools()
	c := &cluster{
		now: s.Time, snapshot: s, ciliumNodes: ciliumNodes, operator: operator,
		Cluster: state.Cluster{
			Ledger: state.NewLedger(), Pods: state.NewPods(), Agents: state.NewAgents(settings.AgentSettle), CiliumPools: state.NewCiliumPools(),
			Defaults: settings.Defaults, Paused: settings.Paused,
			IgnoreTaints: setOf(settings.IgnoreTaints), StartupTaints: setOf(settings.StartupTaints),
		},
		nodes: map[string]*corev1.Node{}, views: map[string]*ciliumnode.View{}, poolOf: map[string]*v1alpha1.PodIPPool{},
		histories: map[string]*v1alpha1.PodIPPoolHistory{},
	}
	c.Pools = state.NewPools(settings.Defaults, c.Ledger)
	for i := range s.Blocks {
		// A malformed block with a CIDR is held all the same.
		b, _ := crd.BlockFrom(&s.Blocks[i])
		if b.CIDR.IsValid() {
			c.Ledger.Upsert(b)
		}
	}
	for _, o := range c.carriers() {
		c.Ledger.UpsertCiliumNode(s.Mode.ToStored(o))
	}
	s.Excluded().Each(func(by exclude.Claimant, cidrs []netip.Prefix) { c.Ledger.Exclude(by, cidrs) })
	c.Ledger.SetReady()
	for i := range s.Pools {
		c.poolOf[s.Pools[i].Name] = &s.Pools[i]
		c.Pools.Set(&s.Pools[i])
	}
	for i := range s.Histories {
		h := &s.Histories[i]
		if pool := c.poolOf[h.Name]; pool != nil && crd.IsHistoryOf(h, pool) {
			c.histories[h.Name] = h
		}
	}
	for i := range s.Nodes {
		c.nodes[s.Nodes[i].Name] = &s.Nodes[i]
	}
	for i := range s.CiliumNodes {
		c.views[s.CiliumNodes[i].Name] = s.CiliumNodes[i].View
	}
	for i := range s.Agents {
		c.Agents.Set(state.ReadAgent(&s.Agents[i]), readySince(&s.Agents[i]))
	}
	c.readPods()
	return c
}

// carriers are the objects that assign agents their blocks.
func (c *cluster) carriers() []client.Object {
	var out []client.Object
	if _, ok := c.snapshot.Mode.AllocationObject().(*corev1.Node); ok {
		for i := range c.snapshot.Nodes {
			out = append(out, &c.snapshot.Nodes[i])
		}
		return out
	}
	for _, cn := range c.ciliumNodes {
		out = append(out, cn)
	}
	return out
}

// allocationObject is what those objects are called.
func (c *cluster) allocationObject() string {
	kind, _ := c.snapshot.Mode.Resource()
	return kind.Kind
}

// readPods takes all pods to be old enough for their addresses to be known. Where
// agents are given whole blocks, only new pods without an address count.
func (c *cluster) readPods() {
	read := state.ReadPod
	if c.snapshot.Mode.ManyPools() {
		read = state.ReadPodWithRequest
	}
	for i := range c.snapshot.Namespaces {
		c.Pods.SetNamespace(c.snapshot.Namespaces[i].Name, state.PoolRequestOf(&c.snapshot.Namespaces[i].ObjectMeta))
	}
	for _, v := range c.snapshot.CiliumPools {
		c.CiliumPools.Set(v)
	}
	for i := range c.snapshot.Pods {
		p := c.snapshot.Pods[i]
		p.UID = types.UID(p.Namespace + "/" + p.Name) // snapshots leave UIDs out
		var seen time.Time
		if c.snapshot.Mode.WholeBlocks() {
			seen = p.CreationTimestamp.Time
		}
		c.Pods.Set(read(&p), seen)
	}
}

// readySince is since when a pod has been Ready, by the cluster's own clock.
func readySince(p *corev1.Pod) time.Time {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

// nodeNames are all names that are a Node's, a CiliumNode's or a block's.
func (c *cluster) nodeNames() []string {
	names := map[string]bool{}
	for name := range c.nodes {
		names[name] = true
	}
	for name := range c.views {
		names[name] = true
	}
	for _, name := range c.Ledger.Nodes() {
		names[name] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// blocks are all blocks, sorted by address.
func (c *cluster) blocks() []crd.Block {
	var all []crd.Block
	for _, node := range c.Ledger.Nodes() {
		all = append(all, c.Ledger.NodeBlocks(node)...)
	}
	slices.SortFunc(all, func(a, b crd.Block) int { return a.CIDR.Compare(b.CIDR) })
	return all
}

// users are the addresses of a node in use, and by whom: the agent's report,
// pods' status and the agent's own.
func (c *cluster) users(node string) map[netip.Addr]string {
	users := map[netip.Addr]string{}
	if v := c.views[node]; v != nil {
		for _, a := range v.Own {
			users[a] = "the agent"
		}
		maps.Copy(users, v.Used)
	}
	for _, p := range c.Pods.On(node) {
		for _, a := range p.IPs {
			users[a] = p.Name
		}
	}
	return users
}

// usable are how many addresses of a block pods can have.
func (c *cluster) usable(b crd.Block) int {
	if view := c.views[b.Node]; view != nil && view.BlockDemand != nil {
		return view.BlockDemand.Count(b.CIDR)
	}
	if pool := c.Pools.Get(b.Pool); pool != nil && !pool.Frozen() {
		return pool.UsableCount(b.CIDR)
	}
	return 0
}

func usedIn(cidr netip.Prefix, users map[netip.Addr]string) int {
	n := 0
	for a := range users {
		if cidr.Contains(a) {
			n++
		}
	}
	return n
}
