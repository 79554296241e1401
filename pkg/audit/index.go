package audit

import (
	"cmp"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// index is a snapshot as plain values, joined.
type index struct {
	now     time.Time
	cluster *state.Cluster // the state of an operator

	poolByName map[string]*crd.Pool // with overlaps resolved; frozen where unsound
	specOf     map[string]*v1alpha1.PodIPPool
	unsound    map[string]error // why a spec contradicts itself

	blocks   []crd.Block                       // listed ones first, then by age; malformed ones too
	bad      map[string]error                  // why a block is malformed, by name
	byCIDR   map[netip.Prefix]*crd.Block       // the first of each CIDR
	space    *ipalloc.Space                    // the same
	conflict map[string]*ipalloc.ConflictError // blocks that overlap one before them, by name

	nodes     []*node // sorted by name
	byName    map[string]*node
	publishes map[netip.Addr][]*node
	lists     *ipalloc.Space // CIDRs assigned whole to agents, the first of each
	anyAgent  bool
	podWith   map[netip.Addr]Object // the checked pod with an address
}

// node is everything known under one name: a Node, a CiliumNode, or both.
type node struct {
	name     string
	obj      *corev1.Node // nil: there is none
	view     *CiliumNode  // nil: there is none
	blocks   []*crd.Block
	pods     []pod
	agents   []bool      // whether each agent's pod is Ready
	pools    []*crd.Pool // that serve it, best first
	optedOut bool
	// awaits is why it does not get its first block yet: its labels are not final; "": it may.
	awaits string
	// unserved describes the requests of its agent that no PodIPPool serves, and unservedPods its
	// pods' ones.
	unserved     []string
	unservedPods map[string]string
	// agentSeen: an agent runs on it, or has written its CiliumNode.
	agentSeen bool
	// paused: the operator does not change it. pausedShares are the families and Cilium pools that
	// the operator does not change on it.
	paused       bool
	pausedShares []state.ShareKey
	// moving: another IPAM serves its pods, or did, and its agent has not started in
	// crd mode yet.
	moving bool
	inUse  map[netip.Addr]string // address to who uses it
	// reported are addresses and podCIDRs with their worst finding reported already.
	reported map[netip.Prefix]bool
}

// pod is a pod that needs an address.
type pod struct {
	object Object
	ips    []netip.Addr
}

// readCluster builds the state of an operator, and takes the pools from there. Pools are read by
// their own spec alone: the operator's flags may be unknown, and must not cause false findings.
func (c *check) readCluster(s *Snapshot) {
	views := make([]*ciliumnode.View, 0, len(s.CiliumNodes))
	for i := range s.CiliumNodes {
		views = append(views, s.CiliumNodes[i].View)
	}
	c.cluster = s.Cluster(crd.Defaults{Policy: lenient(), Cooldown: c.Cooldown, NodeGoneCooldown: c.NodeGoneCooldown}, 0, views)
	c.cluster.Paused, c.cluster.AnyMode = c.Paused, c.AnyMode
	c.cluster.IgnoreTaints, c.cluster.StartupTaints = state.SetOf(c.IgnoreTaints), state.SetOf(c.StartupTaints)
	c.poolByName, c.unsound, c.specOf = map[string]*crd.Pool{}, map[string]error{}, map[string]*v1alpha1.PodIPPool{}
	for i := range s.Pools {
		name := s.Pools[i].Name
		c.poolByName[name], c.specOf[name] = c.cluster.Pools.Get(name), &s.Pools[i]
		if err := c.cluster.Pools.Invalid(name); err != nil {
			c.unsound[name] = err
		}
	}
}

// lenient returns a policy that fits every spec that does not contradict itself.
func lenient() expand.Policy {
	p := expand.DefaultPolicy()
	p.ExpandPercent, p.ReclaimPercent, p.MinFree, p.MaxAddresses = 100, 0, 0, expand.MostAddresses
	return p
}

func (x *index) readBlocks(s *Snapshot) {
	x.bad, x.conflict = map[string]error{}, map[string]*ipalloc.ConflictError{}
	x.byCIDR, x.space = map[netip.Prefix]*crd.Block{}, ipalloc.NewSpace()
	for i := range s.Blocks {
		b, err := crd.BlockFrom(&s.Blocks[i])
		if err != nil {
			x.bad[b.Name] = err
		}
		x.blocks = append(x.blocks, b)
	}
	listed := listedBlocks(s)
	slices.SortFunc(x.blocks, func(a, b crd.Block) int {
		return cmp.Or(listed(b)-listed(a), a.Created.Compare(b.Created), strings.Compare(a.Name, b.Name))
	})
	for i := range x.blocks {
		b := &x.blocks[i]
		if !b.CIDR.IsValid() {
			continue
		}
		owner := ipalloc.Owner{Pool: b.Pool, Node: b.Node, Phase: b.Phase}
		if conflict := conflictOf(x.space.Restore(ipalloc.Held{CIDR: b.CIDR, Owner: owner})); conflict != nil {
			x.conflict[b.Name] = conflict
		}
		if x.byCIDR[b.CIDR] == nil {
			x.byCIDR[b.CIDR] = b
		}
	}
}

func conflictOf(err error) *ipalloc.ConflictError {
	var conflict *ipalloc.ConflictError
	errors.As(err, &conflict)
	return conflict
}

// listedBlocks returns 1 for blocks that their CiliumNode lists in podCIDRs: of two overlapping
// blocks, the listed one was first (docs/contributing/architecture.md).
func listedBlocks(s *Snapshot) func(crd.Block) int {
	views := make(map[string]*CiliumNode, len(s.CiliumNodes))
	for i := range s.CiliumNodes {
		views[s.CiliumNodes[i].Name] = &s.CiliumNodes[i]
	}
	return func(b crd.Block) int {
		if cn := views[b.Node]; cn != nil && cn.Lists(b.CIDR) {
			return 1
		}
		return 0
	}
}

func (c *check) readNodes(s *Snapshot) {
	c.byName = map[string]*node{}
	of := func(name string) *node {
		if c.byName[name] == nil {
			c.byName[name] = &node{name: name, inUse: map[netip.Addr]string{}, reported: map[netip.Prefix]bool{}}
		}
		return c.byName[name]
	}
	for i := range s.Nodes {
		of(s.Nodes[i].Name).obj = &s.Nodes[i]
	}
	for i := range s.CiliumNodes {
		of(s.CiliumNodes[i].Name).view = &s.CiliumNodes[i]
	}
	for i := range c.blocks {
		if b := &c.blocks[i]; b.CIDR.IsValid() {
			n := of(b.Node)
			n.blocks = append(n.blocks, b)
		}
	}
	for i := range s.Agents {
		if a := &s.Agents[i]; a.Spec.NodeName != "" {
			n := of(a.Spec.NodeName)
			n.agents = append(n.agents, a.DeletionTimestamp == nil && isReady(a))
			c.anyAgent = true
		}
	}
	c.joinNodes()
}

// joinNodes joins the objects of each node.
func (c *check) joinNodes() {
	c.publishes, c.lists = map[netip.Addr][]*node{}, ipalloc.NewSpace()
	for _, name := range slices.Sorted(maps.Keys(c.byName)) {
		n := c.byName[name]
		c.nodes = append(c.nodes, n)
		c.observe(n)
		if n.view == nil {
			continue
		}
		for _, addr := range n.view.published() {
			c.publishes[addr] = append(c.publishes[addr], n)
		}
		if n.view.BlockAssignment != nil {
			for _, cidr := range n.view.Listed() {
				// acrossNodes reports CIDRs that two nodes list.
				_ = c.lists.Restore(ipalloc.Held{CIDR: cidr.Masked(), Owner: ipalloc.Owner{Node: name}})
			}
		}
	}
}

// observe records an operator's state of a node.
func (c *check) observe(n *node) {
	if n.obj != nil {
		n.optedOut = c.cluster.OptedOut(n.obj)
		if !n.optedOut {
			n.pools = c.cluster.Pools.Match(labels.Set(n.obj.Labels))
		}
	}
	is := c.cluster.Snapshot(n.name, n.obj, c.now)
	n.agentSeen = is.AgentSeen || len(n.agents) > 0
	n.unservedPods = is.UnservedPods()
	for i := range is.Unserved {
		if u := &is.Unserved[i]; len(u.Pods) == 0 {
			n.unserved = append(n.unserved, u.Says)
		}
	}
	n.moving, n.awaits = is.OtherIPAM || is.Adopting, is.Awaits
	for i := range is.Shares {
		if share := &is.Shares[i]; share.Paused != "" {
			n.pausedShares = append(n.pausedShares, share.Key(n.name))
		}
	}
	n.paused = len(n.pausedShares) == len(is.Shares)
	if len(is.Shares) == 0 {
		_, _, why := c.cluster.Policy(n.obj, ipalloc.IPv4, "")
		n.paused = why != ""
	}
}

// pausedFor reports whether the operator keeps one family of a node unchanged, for one Cilium pool.
func (n *node) pausedFor(f ipalloc.Family, ciliumPool string) bool {
	return slices.Contains(n.pausedShares, state.ShareKey{Node: n.name, CiliumPool: ciliumPool, Family: f})
}

// isPaused reports whether the operator keeps a block unchanged.
func (c *check) isPaused(n *node, b *crd.Block) bool {
	var view *ciliumnode.View
	if n.view != nil {
		view = n.view.View
	}
	return n.pausedFor(ipalloc.FamilyOf(b.CIDR.Addr()), c.cluster.CiliumPoolOf(*b, view))
}

// published returns the addresses in the pool, in any notation, each once, sorted.
func (cn *CiliumNode) published() []netip.Addr {
	all := append(slices.Collect(maps.Keys(cn.Pool)), cn.NonCanonical...)
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all)
}

func (cn *CiliumNode) publishes(a netip.Addr) bool {
	if cn.BlockAssignment != nil {
		return cn.gives(a)
	}
	return cn.Publishes(a) || slices.Contains(cn.NonCanonical, a)
}

// publisher returns another node with an agent that may allocate an address, or nil.
func (x *index) publisher(n *node, a netip.Addr) *node {
	if by := x.publishes[a]; len(by) > 0 {
		return by[0]
	}
	for _, h := range x.lists.Overlapping(single(a)) {
		if h.Owner.Node != n.name {
			return x.byName[h.Owner.Node]
		}
	}
	return nil
}

// readPods keeps the pods that need an address, sorted, and records on each node the addresses in
// use. If pods share an address, the last by name is recorded.
func (c *check) readPods(s *Snapshot) {
	for i := range s.Pods {
		p := &s.Pods[i]
		n := c.byName[p.Spec.NodeName]
		if n == nil || p.Spec.HostNetwork || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			continue
		}
		is := pod{object: Object{Kind: "Pod", Namespace: p.Namespace, Name: p.Name}}
		for _, ip := range p.Status.PodIPs {
			if addr, err := netip.ParseAddr(ip.IP); err == nil {
				is.ips = append(is.ips, addr.Unmap())
			}
		}
		n.pods = append(n.pods, is)
	}
	for _, n := range c.nodes {
		slices.SortFunc(n.pods, func(a, b pod) int { return strings.Compare(a.object.String(), b.object.String()) })
		if n.view != nil {
			maps.Copy(n.inUse, n.view.Used)
		}
		for _, p := range n.pods {
			for _, a := range p.ips {
				if c.servedElsewhere(n, a) {
					continue
				}
				n.inUse[a] = p.object.Namespace + "/" + p.object.Name
			}
		}
	}
}

func isReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// agent describes the state of the node's agent if that may be the cause.
func (n *node) agent() string {
	switch {
	case len(n.agents) == 0:
		return "no pod of its agent was found"
	case len(n.agents) > 1:
		return "there are two pods of its agent"
	case !n.agents[0]:
		return "its agent is not Ready"
	}
	return "its agent is Ready"
}

// holder returns the block that contains an address: the node's own if there are several, or
// else the oldest. Nil: none.
func (x *index) holder(n *node, a netip.Addr) *crd.Block {
	var found *crd.Block
	for _, h := range x.space.Overlapping(single(a)) {
		b := x.byCIDR[h.CIDR]
		switch {
		case b.Node == n.name:
			return b
		case found == nil || b.Created.Before(found.Created):
			found = b
		}
	}
	return found
}

// inPools returns the pool with a CIDR that contains an address; "": none.
func (x *index) inPools(a netip.Addr) string {
	for _, name := range slices.Sorted(maps.Keys(x.poolByName)) {
		if whole, ok := x.poolByName[name].Whole(ipalloc.FamilyOf(a)); ok {
			if slices.ContainsFunc(whole.Ranges, func(r netip.Prefix) bool { return r.Contains(a) }) {
				return name
			}
		}
	}
	return ""
}
