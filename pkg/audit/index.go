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

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/exclude"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// index is a snapshot as plain values, joined.
type index struct {
	now time.Time

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
	podWith   map[netip.Addr]Object // which of the pods checked has an address
	excluded  *exclude.Set          // the addresses of nodes and Services
}

// node is everything known by one name, be it a Node, a CiliumNode, or both.
type node struct {
	name     string
	obj      *corev1.Node // nil: there is none
	view     *CiliumNode  // nil: there is none
	blocks   []*crd.Block
	pods     []pod
	agents   []bool      // whether each agent's pod is Ready
	pools    []*crd.Pool // that serve it, best first
	optedOut bool
	// awaitsLabels: it does not get its first block yet, as a taint says that its
	// labels are not final.
	awaitsLabels bool
	paused       bool
	// moving: another IPAM serves its pods, or did, and its agent has not started in
	// crd mode yet.
	moving bool
	inUse  map[netip.Addr]string // address to who uses it
	// reported are addresses and podCIDRs whose worst finding is reported already.
	reported map[netip.Prefix]bool
}

// pod is a pod that needs an address.
type pod struct {
	object Object
	ips    []netip.Addr
}

// readPools reads pools by their own spec alone: the operator's flags are not known
// here, and must not cause false findings.
func (x *index) readPools(s *Snapshot) {
	x.poolByName, x.unsound = map[string]*crd.Pool{}, map[string]error{}
	x.specOf = map[string]*v1alpha1.PodIPPool{}
	for i := range s.Pools {
		obj := &s.Pools[i]
		defaults := crd.Defaults{Policy: lenient(), WholeBlocks: s.Mode.WholeBlocks(), CiliumPools: s.Mode.ManyPools()}
		pool, err := crd.PoolFrom(obj, defaults)
		if err != nil {
			pool = crd.FrozenPool(obj, defaults)
		}
		if err = cmp.Or(err, pool.PolicyProblem); err != nil {
			x.unsound[obj.Name] = err
		}
		x.poolByName[obj.Name], x.specOf[obj.Name] = pool, obj
	}
}

// lenient is a policy that fits every spec which does not contradict itself.
func lenient() expand.Policy {
	p := expand.DefaultPolicy()
	p.ExpandPercent, p.ReclaimPercent, p.MinFree, p.MaxAddresses = 100, 0, 0, 1<<20
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

// listedBlocks marks blocks that their CiliumNode lists in podCIDRs with 1: of two
// that overlap the listed one was first (docs/architecture.md).
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

func (x *index) resolvePools() {
	holds := func(pool string, within netip.Prefix) bool {
		if o, ok := x.space.Owner(within); ok && o.Pool == pool {
			return true
		}
		return slices.ContainsFunc(x.space.Overlapping(within), func(h ipalloc.Held) bool { return h.Owner.Pool == pool })
	}
	for _, p := range crd.ResolveOverlaps(slices.Collect(maps.Values(x.poolByName)), holds) {
		x.poolByName[p.Name] = p
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
	pools := slices.Collect(maps.Values(c.poolByName))
	c.publishes, c.lists = map[netip.Addr][]*node{}, ipalloc.NewSpace()
	for _, name := range slices.Sorted(maps.Keys(c.byName)) {
		n := c.byName[name]
		c.nodes = append(c.nodes, n)
		if n.obj != nil {
			n.optedOut = c.isOptedOut(n.obj)
		}
		if n.obj != nil && !n.optedOut {
			n.pools = crd.Rank(pools, labels.Set(n.obj.Labels))
		}
		n.paused = c.Paused || n.isPaused()
		n.awaitsLabels = c.isAwaitingLabels(n)
		if n.view == nil {
			continue
		}
		n.moving = n.isMoving()
		for _, addr := range n.view.published() {
			c.publishes[addr] = append(c.publishes[addr], n)
		}
		if n.view.BlockDemand != nil {
			for _, cidr := range n.view.Listed() {
				// acrossNodes reports what two nodes list.
				_ = c.lists.Restore(ipalloc.Held{CIDR: cidr.Masked(), Owner: ipalloc.Owner{Node: name}})
			}
		}
	}
}

// isOptedOut reports whether the Node declares that Cilium does not run on it.
func (c *check) isOptedOut(obj *corev1.Node) bool {
	return obj.Labels[v1alpha1.OptOutLabel] == "true" || slices.ContainsFunc(obj.Spec.Taints, func(t corev1.Taint) bool {
		return slices.Contains(c.IgnoreTaints, t.Key)
	})
}

// isAwaitingLabels reports whether the operator delays the first block of a node.
func (c *check) isAwaitingLabels(n *node) bool {
	if n.obj == nil || len(n.blocks) > 0 || n.view != nil && n.view.givesAny() {
		return false
	}
	return slices.ContainsFunc(n.obj.Spec.Taints, func(t corev1.Taint) bool { return slices.Contains(c.StartupTaints, t.Key) })
}

// isPaused reports whether a pause annotation or a paused pool freezes the node.
func (n *node) isPaused() bool {
	if n.obj != nil && n.obj.Annotations[v1alpha1.PausedAnnotation] == "true" {
		return true
	}
	for _, f := range ipalloc.Families() {
		if ranked := crd.ForFamily(n.pools, f, ""); len(ranked) > 0 && ranked[0].Paused {
			return true
		}
	}
	return false
}

func (n *node) isMoving() bool {
	if len(n.view.Used) > 0 || n.view.BlockDemand != nil {
		return false
	}
	held, adopted := []netip.Prefix(nil), false
	for _, b := range n.blocks {
		held, adopted = append(held, b.CIDR), adopted || b.AdoptedFrom != ""
	}
	return adopted || len(n.view.Unadopted(held)) > 0
}

// published are the addresses in the pool, in whatever form, each once, sorted.
func (cn *CiliumNode) published() []netip.Addr {
	all := append(slices.Collect(maps.Keys(cn.Pool)), cn.NonCanonical...)
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all)
}

func (cn *CiliumNode) publishes(a netip.Addr) bool {
	if cn.BlockDemand != nil {
		return cn.gives(a)
	}
	return cn.Publishes(a) || slices.Contains(cn.NonCanonical, a)
}

// publisher is another node whose agent may give out an address, or nil.
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

// readPods keeps the pods that need an address, sorted, and notes on each node
// what is in use. Of pods that share an address the last by name is noted.
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

// agent describes the state of the node's agent, if that may be the cause.
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

// holder is the block that an address lies in: the node's own where several do,
// else the first created. Nil: none.
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

// inPools names the pool whose CIDRs hold an address, or "".
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
