package informer

import (
	"net/netip"
	"slices"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// change are the wake-ups of one kind of change, in their order.
type change []wakeUp

// wakeUp adds the keys of a subject to a queue, after a delay.
type wakeUp struct {
	queue Queue
	keys  keysOf
	delay delay
}

// keysOf returns the keys of a subject in a queue.
type keysOf func(subject, *Feed) []string

// The changes of an object. A node that is queued at once queues the unscheduled pods as well: see
// QueueNode.
var (
	operatorBegun = change{
		{NodeQueue, subject.allNodes, atOnce}, {RouteQueue, subject.allRoutes, atOnce},
		{CiliumPoolQueue, subject.allCiliumPools, atOnce}, {KeeperQueue, subject.keeper, after(assignDelay)},
	}
	operatorElected = change{ // a standby has queued none
		{NodeQueue, subject.allNodes, atOnce}, {PoolQueue, subject.allPools, atOnce}, {PinQueue, subject.allPins, atOnce},
		{CiliumPoolQueue, subject.allCiliumPools, atOnce}, {KeeperQueue, subject.keeper, after(assignDelay)},
		{BlockQueue, subject.allBlocks, atOnce}, {RouteQueue, subject.allRoutes, atOnce},
		{PublishedQueue, subject.publishedBlocks, atOnce}, {PublishedQueue, subject.withdrawnBlocks, after(withdrawnDelay)},
		{UnscheduledQueue, subject.unscheduled, after(reassignDelay)},
	}
	configChanged   = change{{NodeQueue, subject.allNodes, atOnce}, {PoolQueue, subject.allPools, atOnce}}
	poolSpecChanged = change{
		{NodeQueue, subject.allNodes, atOnce}, {PoolQueue, subject.allPools, atOnce}, {PinQueue, subject.allPins, atOnce},
		{CiliumPoolQueue, subject.allCiliumPools, atOnce}, {KeeperQueue, subject.keeper, after(assignDelay)},
	}
	poolDeleted = change{{PoolQueue, subject.itself, atOnce}}
	// Our own status writes come back here: without the delay they would trigger the next write at once
	// while blocks come and go.
	poolStatusChanged = change{{PoolQueue, subject.itself, statusDelay}}

	blockChanged = change{
		{NodeQueue, subject.excludedHolders, atOnce}, {NodeQueue, subject.ofNodes, atOnce}, {RouteQueue, subject.ofNodes, after(routeDelay)},
		{PublishedQueue, subject.publishedBlocks, atOnce}, {PublishedQueue, subject.withdrawnBlocks, after(withdrawnDelay)},
		{PoolQueue, subject.ofPools, statusDelay}, {PoolQueue, subject.touched, statusDelay}, {BlockQueue, subject.itself, atOnce},
		{NodeQueue, subject.pinOwners, atOnce}, {PinQueue, subject.pins, atOnce},
		{NodeQueue, subject.overlapHolders, atOnce}, {BlockQueue, subject.overlaps, atOnce},
	}
	ciliumNodeChanged = change{
		{NodeQueue, subject.excludedHolders, atOnce}, {NodeQueue, subject.ofNodes, atOnce}, {RouteQueue, subject.coolingNodes, after(routeDelay)},
		{PublishedQueue, subject.publishedBlocks, atOnce}, {PublishedQueue, subject.withdrawnBlocks, after(withdrawnDelay)},
	}
	nodeChanged = change{
		{RouteQueue, subject.ofSameHostname, after(routeDelay)}, {RouteQueue, subject.ofNodes, after(routeDelay)},
		{NodeQueue, subject.excludedHolders, atOnce}, {NodeQueue, subject.ofNodes, atOnce},
		{PinQueue, subject.pinsOfNodes, atOnce}, {PoolQueue, subject.ofPools, statusDelay},
	}
	spaceFreed   = change{{KeeperQueue, subject.keeper, after(assignDelay)}, {UnscheduledQueue, subject.anyUnscheduled, after(reassignDelay)}}
	spaceChanged = change{ // freed, or taken in other ways than by a claim
		{NodeQueue, subject.pinOwners, atOnce}, {PinQueue, subject.pins, atOnce},
		{NodeQueue, subject.ofNodes, after(wakeDelay)}, {PoolQueue, subject.ofPools, statusDelay},
	}
	usageChanged     = change{{PoolQueue, subject.ofPools, after(usedDelay)}}
	exclusionChanged = change{{NodeQueue, subject.excludedHolders, atOnce}}
	contestChanged   = change{{NodeQueue, subject.holders, atOnce}}

	pinChanged      = change{{PinQueue, subject.itself, atOnce}, {KeeperQueue, subject.keeper, after(assignDelay)}}
	pinOwnerChanged = change{{NodeQueue, subject.ofNodes, atOnce}, {CiliumPoolQueue, subject.poolOfOwner, atOnce}}
	pinDeleted      = change{{KeeperQueue, subject.keeper, after(assignDelay)}}

	agentChanged     = change{{NodeQueue, subject.ofNodes, atOnce}}
	podChanged       = change{{NodeQueue, subject.ofNodes, atOnce}}
	ownerPodChanged  = change{{KeeperQueue, subject.keeper, after(assignDelay)}}
	namespaceChanged = change{{NodeQueue, subject.ofNodes, atOnce}, {KeeperQueue, subject.keeper, after(assignDelay)}}
	podUnscheduled   = change{{UnscheduledQueue, subject.unscheduled, after(assignDelay)}}
	podScheduled     = change{{UnscheduledQueue, subject.unscheduled, after(reassignDelay)}}

	ciliumPoolsServed = change{
		{CiliumPoolQueue, subject.allCiliumPools, atOnce}, {KeeperQueue, subject.keeper, after(assignDelay)}, {PoolQueue, subject.allPools, atOnce},
	}
	ciliumPoolChanged         = change{{CiliumPoolQueue, subject.itself, atOnce}, {PoolQueue, subject.ofPools, statusDelay}}
	ciliumPoolMarksChanged    = change{{CiliumPoolQueue, subject.ownerPools, atOnce}}
	ciliumPoolSelectorChanged = change{{NodeQueue, subject.allNodes, atOnce}}
	ownerPoolChanged          = change{{CiliumPoolQueue, subject.itself, atOnce}} // it depends on the one of the old name
	ownerPoolSelectorChanged  = change{{NodeQueue, subject.ofNodes, atOnce}}

	routesServed         = change{{RouteQueue, subject.allRoutes, atOnce}}
	routeChanged         = change{{RouteQueue, subject.ofNodes, after(routeDelay)}, {RouteQueue, subject.ofSameHostname, after(routeDelay)}}
	routeTemplateChanged = change{{RouteQueue, subject.allRoutes, atOnce}}
)

// subject is the object of a change that has been recorded: its keys, or the values to find them by.
type subject struct {
	name         string         // of the object
	nodes, pools []string       // of the object, by name
	owner        string         // of a pin; "": a node's
	sameHostname []string       // the other nodes with the hostname of the node
	cidrs        []netip.Prefix // of the object
	excluded     []netip.Prefix // addresses that have become excluded, or are no longer
}

// wake runs the wake-ups of a change, on the leader.
func (f *Feed) wake(c change, s subject) {
	if !f.leads() {
		return
	}
	for _, w := range c {
		for _, key := range w.keys(s, f) {
			wait := w.delay(f, key)
			if w.queue == NodeQueue && wait == 0 {
				f.QueueNode(key)
			} else {
				f.add(w.queue, key, wait)
			}
		}
	}
}

// delay returns the delay of a key.
type delay func(f *Feed, key string) time.Duration

func atOnce(*Feed, string) time.Duration { return 0 }

func after(d time.Duration) delay { return func(*Feed, string) time.Duration { return d } }

// statusDelay lets more changes of a pool come together before its status is written.
func statusDelay(f *Feed, pool string) time.Duration { return sizeDelay(f.Ledger.Size(pool)) }

func sizeDelay(blocks int) time.Duration {
	return min(maxStatusDelay, minStatusDelay+time.Duration(blocks)*time.Second/blocksPerSecond)
}

func (s subject) itself(*Feed) []string         { return []string{s.name} }
func (s subject) ofNodes(*Feed) []string        { return s.nodes }
func (s subject) ofPools(*Feed) []string        { return s.pools }
func (s subject) ofSameHostname(*Feed) []string { return s.sameHostname }

func (subject) allNodes(f *Feed) []string {
	return slices.Concat(f.nodeNames(), f.Ledger.Nodes(), f.Ledger.CiliumNodes())
}

func (subject) allPools(f *Feed) []string  { return f.Pools.Names() }
func (subject) allBlocks(f *Feed) []string { return blockNames(f.Ledger.CIDRs()) }
func (subject) allPins(f *Feed) []string   { return blockNames(f.Ledger.Pins.All()) }

func blockNames(cidrs []netip.Prefix) []string {
	names := make([]string, 0, len(cidrs))
	for _, cidr := range cidrs {
		names = append(names, crd.BlockName(cidr))
	}
	return names
}

// holders returns the nodes of blocks.
func holders(blocks []ipalloc.Held) []string {
	var nodes []string
	for _, block := range blocks {
		nodes = append(nodes, block.Owner.Node)
	}
	return nodes
}

// excludedHolders and holders return the nodes that hold an address of excluded, and of cidrs.
func (s subject) excludedHolders(f *Feed) []string { return holdersIn(f, s.excluded) }
func (s subject) holders(f *Feed) []string         { return holdersIn(f, s.cidrs) }

func holdersIn(f *Feed, cidrs []netip.Prefix) []string {
	var nodes []string
	for _, cidr := range cidrs {
		nodes = append(nodes, holders(f.Ledger.HeldIn(cidr))...)
	}
	return nodes
}

// touched returns the pools with addresses of cidrs.
func (s subject) touched(f *Feed) []string { return f.Pools.Touching(s.cidrs) }

// overlapHolders and overlaps return the nodes and names of other blocks with the same addresses.
func (s subject) overlapHolders(f *Feed) []string { return holders(s.others(f)) }

func (s subject) overlaps(f *Feed) []string {
	var cidrs []netip.Prefix
	for _, block := range s.others(f) {
		cidrs = append(cidrs, block.CIDR)
	}
	return blockNames(cidrs)
}

func (s subject) others(f *Feed) []ipalloc.Held {
	var blocks []ipalloc.Held
	for _, cidr := range s.cidrs {
		blocks = append(blocks, f.Ledger.Overlaps(cidr)...)
	}
	return blocks
}

// pins and pinOwners return the pins that share addresses with cidrs, and their nodes.
func (s subject) pins(f *Feed) []string {
	var cidrs []netip.Prefix
	for _, cidr := range s.cidrs {
		for _, pin := range f.Ledger.Pins.In(cidr) {
			cidrs = append(cidrs, pin.CIDR)
		}
	}
	return blockNames(cidrs)
}

func (s subject) pinOwners(f *Feed) []string {
	var nodes []string
	for _, cidr := range s.cidrs {
		for _, pin := range f.Ledger.Pins.In(cidr) {
			nodes = append(nodes, f.nodesOf(pin.Owner.Node)...)
		}
	}
	return nodes
}

func (s subject) pinsOfNodes(f *Feed) []string {
	var cidrs []netip.Prefix
	for _, node := range s.nodes {
		cidrs = append(cidrs, f.Ledger.Pins.Of(node)...)
	}
	return blockNames(cidrs)
}

// nodesOf returns the nodes that a pin is for: one, or those of its owner's pods.
func (f *Feed) nodesOf(of string) []string {
	if crd.IsOwner(of) {
		return f.Pods.NodesOf(of)
	}
	return []string{of}
}

// publishedBlocks returns the blocks that a CiliumNode lists although their condition Published is not
// True, and withdrawnBlocks the blocks with that condition that no CiliumNode lists.
func (s subject) publishedBlocks(f *Feed) []string { return s.blocksTo(f, true) }
func (s subject) withdrawnBlocks(f *Feed) []string { return s.blocksTo(f, false) }

func (s subject) blocksTo(f *Feed, publish bool) []string {
	var names []string
	for _, node := range s.nodes {
		cn := f.Ledger.CiliumNode(node)
		for _, b := range f.Ledger.NodeBlocks(node) {
			if b.Phase == ipalloc.InService && b.Published != publish && cn.ListsInAnyPool(b.CIDR) == publish {
				names = append(names, b.Name)
			}
		}
	}
	return names
}

// coolingNodes returns the nodes with a block that cools down: its route stays as long as its
// CiliumNode lists it.
func (s subject) coolingNodes(f *Feed) []string {
	if f.Routes == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(s.nodes), func(node string) bool {
		return !slices.ContainsFunc(f.Ledger.NodeBlocks(node), func(b crd.Block) bool { return b.Phase == ipalloc.CoolingDown })
	})
}

func (subject) allRoutes(f *Feed) []string {
	if f.Routes == nil {
		return nil
	}
	return append(f.Ledger.Nodes(), f.Routes.Nodes()...)
}

// allCiliumPools returns the Cilium pools that exist or should exist.
func (s subject) allCiliumPools(f *Feed) []string {
	if f.CiliumPools == nil {
		return nil
	}
	var names []string
	for _, pool := range f.CiliumPools.Missing(nil) {
		names = append(names, pool.Name)
	}
	return slices.Concat(names, f.Pools.CiliumPools(), s.ownerPools(f))
}

// ownerPools returns the Cilium pools of single owners.
func (subject) ownerPools(f *Feed) []string {
	pools := f.Ledger.Pins.Owners()
	for i, owner := range pools {
		pools[i] = f.CiliumPools.OfOwner(owner, f.Ledger)
	}
	return pools
}

// poolOfOwner returns the Cilium pool of the owner that a pin is for, if it is for one.
func (s subject) poolOfOwner(f *Feed) []string {
	if s.owner == "" || f.CiliumPools == nil {
		return nil
	}
	return []string{f.CiliumPools.OfOwner(s.owner, f.Ledger)}
}

// keeper returns the request for all pods if a pool keeps addresses for pods, or has done so.
func (subject) keeper(f *Feed) []string {
	if f.Mode.ManyPools() && (len(f.Pools.WithPodAddresses()) > 0 || f.Ledger.Pins.HasOwners()) {
		return []string{allPods}
	}
	return nil
}

func (subject) unscheduled(*Feed) []string { return []string{allPods} }

// anyUnscheduled returns the request for all pods if the scheduler finds no addresses for some.
func (subject) anyUnscheduled(f *Feed) []string {
	if f.Unscheduled == nil || !f.Unscheduled.Any() {
		return nil
	}
	return []string{allPods}
}
