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
	"github.com/cilium-pool/cilium-pool-operator/pkg/clusterread"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// index is a snapshot as plain values, joined.
type index struct {
	settings Settings
	snapshot *clusterread.Objects
	now      time.Time
	cluster  *state.Cluster // the state of an operator
	// kind is that of the objects that assign blocks to agents, list the field in them.
	kind, listField string

	allBlocks []crd.Block                           // listed ones first, then by age; malformed ones too
	bad       map[string]error                      // why a block is malformed, by name
	byCIDR    map[netip.Prefix]*crd.Block           // the first of each CIDR
	space     *ipalloc.Space                        // the same
	conflict  map[*crd.Block]*ipalloc.ConflictError // of blocks that overlap one before them

	nodes          []*node // sorted by name
	byName         map[string]*node
	nodesByAddress map[netip.Addr][]*node
	wholeCIDRs     *ipalloc.Space // CIDRs assigned whole to agents, the first of each
	anyAgent       bool
	// waiting are the pools with nodes that wait for a block of a full one, by name.
	waiting map[string]*waiting
}

// waiting counts the nodes that a pool rules and that wait for a block, and the addresses that their pods wait for.
type waiting struct {
	nodes, addresses int
	reported         bool // by the finding about the pool
}

// node is everything known under one name: a Node, a CiliumNode, or both.
type node struct {
	name     string
	obj      *corev1.Node // nil: there is none
	view     *ciliumNode  // nil: there is none
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
	unservedPods map[string]state.UnservedPod
	// waitsFor are the full pools that rule it and have no block for its pods.
	waitsFor []string
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

// ciliumNode is a CiliumNode with what an audit derives from it.
type ciliumNode clusterread.CiliumNode

// pod is a pod that needs an address.
type pod struct {
	object Object
	ips    []netip.Addr
}

func newIndex(s *clusterread.Objects, set Settings) *index {
	kind, _ := s.Mode.Resource()
	x := &index{settings: set, snapshot: s, now: s.Time, kind: kind.Kind, listField: s.Mode.ListField(), waiting: map[string]*waiting{}}
	x.readCluster()
	x.readNodes()
	x.readBlocks()
	x.joinNodes()
	x.readPods()
	return x
}

// readCluster builds the state of an operator. It reads pools by their own spec alone: the
// operator's flags may be unknown, and must not cause false findings.
func (x *index) readCluster() {
	views := make([]*ciliumnode.View, 0, len(x.snapshot.CiliumNodes))
	for i := range x.snapshot.CiliumNodes {
		views = append(views, x.snapshot.CiliumNodes[i].View)
	}
	set := x.settings.Settings
	set.Defaults = crd.Defaults{Policy: lenient(), Cooldown: set.Defaults.Cooldown, NodeGoneCooldown: set.Defaults.NodeGoneCooldown}
	set.Paused = set.Paused || set.Shadow
	set.AgentSettle = 0
	x.cluster = x.snapshot.State(set, views)
}

// lenient returns a policy that fits every spec that does not contradict itself.
func lenient() expand.Policy {
	p := expand.DefaultPolicy()
	p.ExpandPercent = 100
	p.ReclaimPercent = 0
	p.MinFree = 0
	p.MaxAddresses = expand.MostAddresses
	return p
}

// readNodes reads Nodes, CiliumNodes and agents.
func (x *index) readNodes() {
	s := x.snapshot
	x.byName = map[string]*node{}
	for i := range s.Nodes {
		x.nodeOf(s.Nodes[i].Name).obj = &s.Nodes[i]
	}
	for i := range s.CiliumNodes {
		x.nodeOf(s.CiliumNodes[i].Name).view = (*ciliumNode)(&s.CiliumNodes[i])
	}
	for i := range s.Agents {
		if a := &s.Agents[i]; a.Spec.NodeName != "" {
			n := x.nodeOf(a.Spec.NodeName)
			n.agents = append(n.agents, a.DeletionTimestamp == nil && state.IsReady(a))
			x.anyAgent = true
		}
	}
}

func (x *index) nodeOf(name string) *node {
	if x.byName[name] == nil {
		x.byName[name] = &node{name: name, inUse: map[netip.Addr]string{}, reported: map[netip.Prefix]bool{}}
	}
	return x.byName[name]
}

// readBlocks reads blocks. Of two overlapping blocks, the one that its CiliumNode lists was first (docs/contributing/architecture.md).
func (x *index) readBlocks() {
	x.bad = map[string]error{}
	x.conflict = map[*crd.Block]*ipalloc.ConflictError{}
	x.byCIDR = map[netip.Prefix]*crd.Block{}
	x.space = ipalloc.NewSpace()
	for i := range x.snapshot.Blocks {
		b, err := crd.BlockFrom(&x.snapshot.Blocks[i])
		if err != nil {
			x.bad[b.Name] = err
		}
		x.allBlocks = append(x.allBlocks, b)
	}
	unlisted := func(b crd.Block) int {
		if n := x.byName[b.Node]; n != nil && n.view != nil && n.view.ListsInAnyPool(b.CIDR) {
			return 0
		}
		return 1
	}
	slices.SortFunc(x.allBlocks, func(a, b crd.Block) int {
		return cmp.Or(unlisted(a)-unlisted(b), a.Created.Compare(b.Created), strings.Compare(a.Name, b.Name))
	})
	for i := range x.allBlocks {
		b := &x.allBlocks[i]
		if !b.CIDR.IsValid() {
			continue
		}
		n := x.nodeOf(b.Node)
		n.blocks = append(n.blocks, b)
		owner := ipalloc.Owner{Pool: b.Pool, Node: b.Node, Phase: b.Phase}
		if conflict := conflictOf(x.space.Restore(ipalloc.Held{CIDR: b.CIDR, Owner: owner})); conflict != nil {
			x.conflict[b] = conflict
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

// joinNodes joins the objects of each node.
func (x *index) joinNodes() {
	x.nodesByAddress = map[netip.Addr][]*node{}
	x.wholeCIDRs = ipalloc.NewSpace()
	for _, name := range slices.Sorted(maps.Keys(x.byName)) {
		n := x.byName[name]
		x.nodes = append(x.nodes, n)
		x.readNodeState(n)
		if n.view == nil {
			continue
		}
		for _, addr := range n.view.published() {
			x.nodesByAddress[addr] = append(x.nodesByAddress[addr], n)
		}
		if n.view.BlockAssignment != nil {
			for _, cidr := range n.view.ListedInAnyPool() {
				// acrossNodes reports CIDRs that two nodes list.
				_ = x.wholeCIDRs.Restore(ipalloc.Held{CIDR: cidr.Masked(), Owner: ipalloc.Owner{Node: name}})
			}
		}
	}
}

// readNodeState records an operator's state of a node.
func (x *index) readNodeState(n *node) {
	if n.obj != nil {
		n.optedOut = x.cluster.OptedOut(n.obj)
		if !n.optedOut {
			n.pools = x.cluster.Pools.Match(labels.Set(n.obj.Labels))
		}
	}
	current := x.cluster.Snapshot(n.name, n.obj, x.now)
	n.agentSeen = current.AgentSeen || len(n.agents) > 0
	n.unservedPods = current.UnservedPods()
	for i := range current.Unserved {
		if u := &current.Unserved[i]; len(u.Pods) == 0 {
			n.unserved = append(n.unserved, u.Message)
		}
	}
	n.moving = current.Standing.IsMoving()
	if current.Standing.Kind == state.AwaitsLabels {
		n.awaits = current.Standing.Cause
	}
	for i := range current.Shares {
		if share := &current.Shares[i]; !share.Standing.MayChange() {
			n.pausedShares = append(n.pausedShares, share.Key(n.name))
		}
	}
	x.readWaiting(n, current.Shares)
	n.paused = len(n.pausedShares) == len(current.Shares)
	if len(current.Shares) == 0 {
		_, _, problem := x.cluster.Policy(n.obj, ipalloc.IPv4, "")
		n.paused = problem != ""
	}
}

// readWaiting counts a node that waits for a block of a full pool.
func (x *index) readWaiting(n *node, shares []state.Share) {
	if n.obj == nil || !state.Starves(n.obj) {
		return
	}
	for i := range shares {
		pool := shares[i].Ruling()
		_, balance := shares[i].Balance(x.now)
		if balance.Missing == 0 || pool == "" {
			continue
		}
		if x.waiting[pool] == nil {
			x.waiting[pool] = &waiting{}
		}
		if !slices.Contains(n.waitsFor, pool) {
			n.waitsFor = append(n.waitsFor, pool)
			x.waiting[pool].nodes++
		}
		x.waiting[pool].addresses += balance.Missing
	}
}

// pausedFor reports whether the operator keeps one family of a node unchanged, for one Cilium pool.
func (n *node) pausedFor(f ipalloc.Family, ciliumPool string) bool {
	return slices.Contains(n.pausedShares, state.ShareKey{Node: n.name, CiliumPool: ciliumPool, Family: f})
}

// published returns the addresses in the pool, in any notation, each once, sorted.
func (cn *ciliumNode) published() []netip.Addr {
	if cn.Addresses == nil {
		return nil
	}
	addrs := append(slices.Collect(maps.Keys(cn.Addresses.Pool)), cn.Addresses.NonCanonical...)
	slices.SortFunc(addrs, netip.Addr.Compare)
	return slices.Compact(addrs)
}

func (cn *ciliumNode) mayUse(a netip.Addr) bool {
	if cn.BlockAssignment != nil {
		return cn.allocatesFrom(a)
	}
	return cn.Publishes(a) || slices.Contains(cn.Addresses.NonCanonical, a)
}

// publisher returns another node with an agent that may allocate an address, or nil.
func (x *index) publisher(n *node, a netip.Addr) *node {
	if nodes := x.nodesByAddress[a]; len(nodes) > 0 {
		return nodes[0]
	}
	for _, h := range x.wholeCIDRs.Overlapping(ipalloc.Single(a)) {
		if h.Owner.Node != n.name {
			return x.byName[h.Owner.Node]
		}
	}
	return nil
}

// readPods keeps the pods that need an address, sorted, and records on each node the addresses in
// use. If pods share an address, the last by name is recorded.
func (x *index) readPods() {
	for i := range x.snapshot.Pods {
		p := &x.snapshot.Pods[i]
		n := x.byName[p.Spec.NodeName]
		read := state.ReadPod(p)
		if n == nil || !read.NeedsAddress {
			continue
		}
		n.pods = append(n.pods, pod{Object{Kind: "Pod", Namespace: p.Namespace, Name: p.Name}, read.IPs})
	}
	for _, n := range x.nodes {
		slices.SortFunc(n.pods, func(a, b pod) int { return strings.Compare(a.object.String(), b.object.String()) })
		if n.view != nil {
			maps.Copy(n.inUse, n.view.Used)
		}
		for _, p := range n.pods {
			for _, a := range p.ips {
				if x.servedElsewhere(n, a) {
					continue
				}
				n.inUse[a] = p.object.Namespace + "/" + p.object.Name
			}
		}
	}
}

// agent describes the state of the node's agent if that may be the cause.
func (n *node) agent() string {
	if len(n.agents) == 0 {
		return "no pod of its agent was found"
	}
	if len(n.agents) > 1 {
		return "there are two pods of its agent"
	}
	if !n.agents[0] {
		return "its agent is not Ready"
	}
	return "its agent is Ready"
}

// holder returns the block that contains an address: the node's own if there are several, or
// else the oldest. Nil: none.
func (x *index) holder(n *node, a netip.Addr) *crd.Block {
	var found *crd.Block
	for _, h := range x.space.Overlapping(ipalloc.Single(a)) {
		b := x.byCIDR[h.CIDR]
		if b.Node == n.name {
			return b
		}
		if found == nil || b.Created.Before(found.Created) {
			found = b
		}
	}
	return found
}

// servedElsewhere reports whether a pod of a node has its address from another CNI plugin.
func (x *index) servedElsewhere(n *node, a netip.Addr) bool {
	return !n.agentSeen && len(x.poolsWith(a)) == 0
}

// poolsWith returns the pools with a CIDR that contains an address, sorted.
func (x *index) poolsWith(a netip.Addr) []string {
	return x.cluster.Pools.Touching([]netip.Prefix{ipalloc.Single(a)})
}

// heldElsewhere returns a block of another node that overlaps cidr.
func (x *index) heldElsewhere(n *node, cidr netip.Prefix) *crd.Block {
	if b := x.byCIDR[cidr]; b != nil && b.Node != n.name {
		return b
	}
	for _, h := range x.space.Overlapping(cidr) {
		if h.Owner.Node != n.name {
			return x.byCIDR[h.CIDR]
		}
	}
	return nil
}

// assigner returns the object that assigns a node's blocks: its CiliumNode, or the Node.
func (x *index) assigner(name string) Object { return Object{Kind: x.kind, Name: name} }

// ago returns the time since t, in whole seconds.
func (x *index) ago(t time.Time) time.Duration { return x.now.Sub(t).Round(time.Second) }

// isOld reports whether t is so long ago that the operator should have acted since.
func (x *index) isOld(t time.Time) bool { return x.now.Sub(t) >= x.settings.StuckAfter }
