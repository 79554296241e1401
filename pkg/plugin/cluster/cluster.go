// Package cluster is one reading of a cluster in the operator's own terms, and the operator's
// decisions on it.
package cluster

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/audit"
	"github.com/cilium-pool/cilium-pool-operator/pkg/audit/check"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/scheduling"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/pkg/suggest"
)

// Cluster is a snapshot in the operator's own terms.
type Cluster struct {
	Now time.Time
	// Objects are the objects read.
	Objects *audit.Snapshot
	// CiliumNodes are complete, unlike the snapshot's: the ledger reads addresses taken by others
	// from them.
	CiliumNodes []*ciliumv2.CiliumNode
	// Client reads and writes in that cluster.
	Client client.Client
	// Operator is the operator's mode and settings, as the cluster shows them.
	Operator check.Operator

	// Cluster is the operator's state of the cluster.
	state.Cluster
	// Nodes and PodIPPools are by name.
	Nodes      map[string]*corev1.Node
	PodIPPools map[string]*v1alpha1.PodIPPool
	// Hypothetical: the pools differ from the cluster's.
	Hypothetical bool

	// runs are the podCIDRs that agents run with, by node, in kubernetes mode.
	runs map[string][]netip.Prefix
}

// New derives a cluster from the objects of one snapshot. ciliumNodes are its CiliumNodes as
// stored in the API server.
func New(s *audit.Snapshot, ciliumNodes []*ciliumv2.CiliumNode, operator check.Operator) *Cluster {
	settings := &operator.Settings
	c := &Cluster{
		Now: s.Time, Objects: s, CiliumNodes: ciliumNodes, Operator: operator,
		Nodes: map[string]*corev1.Node{}, PodIPPools: map[string]*v1alpha1.PodIPPool{},
		runs: map[string][]netip.Prefix{},
	}
	var views []*ciliumnode.View
	for _, o := range c.allocationObjects() {
		views = append(views, s.Mode.View(o))
	}
	c.Cluster = *s.Cluster(settings.Defaults, settings.AgentSettle, views)
	pressure := state.NewPressure()
	for _, name := range c.Pools.Names() {
		pool := c.Pools.Get(name)
		state.Press(pressure, pool, state.FamiliesOf(c.Ledger, pool))
	}
	c.Paused, c.Taken = settings.Paused, pressure.Taken
	c.AnyMode = settings.SkipModeCheck || settings.Shadow
	if len(settings.OfferFamilies) > 0 {
		c.Unscheduled = scheduling.NewUnscheduled()
	}
	c.IgnoreTaints, c.StartupTaints = state.SetOf(settings.IgnoreTaints), state.SetOf(settings.StartupTaints)
	c.ShortageTaint = settings.ShortageTaint
	for i := range s.Pools {
		c.PodIPPools[s.Pools[i].Name] = &s.Pools[i]
	}
	for i := range s.Nodes {
		c.Nodes[s.Nodes[i].Name] = &s.Nodes[i]
	}
	for _, cn := range s.CiliumNodes {
		if cn.BlockDemand != nil {
			c.runs[cn.Name] = cn.BlockDemand.Runs
		}
	}
	return c
}

// allocationObjects returns the objects that assign blocks to agents.
func (c *Cluster) allocationObjects() []client.Object {
	var out []client.Object
	if _, ok := c.Objects.Mode.AllocationObject().(*corev1.Node); ok {
		for i := range c.Objects.Nodes {
			out = append(out, &c.Objects.Nodes[i])
		}
		return out
	}
	for _, cn := range c.CiliumNodes {
		out = append(out, cn)
	}
	return out
}

// AllocationObject returns the kind of the objects that assign blocks to agents.
func (c *Cluster) AllocationObject() string {
	kind, _ := c.Objects.Mode.Resource()
	return kind.Kind
}

// NodeNames returns the names of all Nodes and CiliumNodes, and of all nodes in blocks.
func (c *Cluster) NodeNames() []string {
	names := map[string]bool{}
	for name := range c.Nodes {
		names[name] = true
	}
	for _, o := range c.allocationObjects() {
		names[o.GetName()] = true
	}
	for _, name := range c.Ledger.Nodes() {
		names[name] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// Blocks returns all blocks, sorted by address.
func (c *Cluster) Blocks() []crd.Block {
	var all []crd.Block
	for _, node := range c.Ledger.Nodes() {
		all = append(all, c.Ledger.NodeBlocks(node)...)
	}
	slices.SortFunc(all, func(a, b crd.Block) int { return a.CIDR.Compare(b.CIDR) })
	return all
}

// Users returns the addresses of a node in use, and by whom, from the agent's report, pods'
// statuses and the agent's own addresses.
func (c *Cluster) Users(node string) map[netip.Addr]string {
	users := map[netip.Addr]string{}
	if v := c.Ledger.CiliumNode(node); v != nil {
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

// UsableCount returns the number of addresses of a block that pods can have.
func (c *Cluster) UsableCount(b crd.Block) int {
	if view := c.Ledger.CiliumNode(b.Node); view != nil && view.BlockDemand != nil {
		return view.BlockDemand.Count(b.CIDR)
	}
	if pool := c.Pools.Get(b.Pool); pool != nil && !pool.Frozen() {
		return pool.UsableCount(b.CIDR)
	}
	return 0
}

// CountIn returns the number of addresses in users that lie in cidr.
func CountIn(cidr netip.Prefix, users map[netip.Addr]string) int {
	n := 0
	for a := range users {
		if cidr.Contains(a) {
			n++
		}
	}
	return n
}

// CheckNode fails for a name that belongs to no node.
func (c *Cluster) CheckNode(name string) error {
	if c.Nodes[name] == nil && c.Ledger.CiliumNode(name) == nil && len(c.Ledger.NodeBlocks(name)) == 0 {
		return fmt.Errorf("there is neither a Node nor a CiliumNode %s, and it holds no block%s", name, suggest.DidYouMean(name, c.NodeNames()))
	}
	return nil
}
