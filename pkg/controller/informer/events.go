package informer

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// wakeUp adds keys of an event to a queue, after a delay.
type wakeUp struct {
	queue Queue
	keys  func(event, *Feed) []string
	delay delay
}

// The wake-ups of each change of an object, in their order. A node that is queued at once queues the
// unscheduled pods as well: see QueueNode.
var (
	operatorBegun = []wakeUp{
		{NodeQueue, event.allNodes, atOnce}, {RouteQueue, event.allRoutes, atOnce},
		{CiliumPoolQueue, event.allCiliumPools, atOnce}, {KeeperQueue, event.keeper, after(assignDelay)},
	}
	operatorElected = []wakeUp{ // a standby has queued none
		{NodeQueue, event.allNodes, atOnce}, {PoolQueue, event.allPools, atOnce}, {PinQueue, event.allPins, atOnce},
		{CiliumPoolQueue, event.allCiliumPools, atOnce}, {KeeperQueue, event.keeper, after(assignDelay)},
		{BlockQueue, event.allBlocks, atOnce}, {RouteQueue, event.allRoutes, atOnce},
		{PublishedQueue, event.publishedBlocks, atOnce}, {PublishedQueue, event.withdrawnBlocks, after(withdrawnDelay)},
		{UnscheduledQueue, event.unscheduled, after(reassignDelay)},
	}
	configChanged   = []wakeUp{{NodeQueue, event.allNodes, atOnce}, {PoolQueue, event.allPools, atOnce}}
	poolSpecChanged = []wakeUp{
		{NodeQueue, event.allNodes, atOnce}, {PoolQueue, event.allPools, atOnce}, {PinQueue, event.allPins, atOnce},
		{CiliumPoolQueue, event.allCiliumPools, atOnce}, {KeeperQueue, event.keeper, after(assignDelay)},
	}
	poolDeleted = []wakeUp{{PoolQueue, event.itself, atOnce}}
	// Our own status writes come back here: without the delay they would trigger the next write at once
	// while blocks come and go.
	poolStatusChanged = []wakeUp{{PoolQueue, event.itself, statusDelay}}

	blockChanged = []wakeUp{
		{NodeQueue, event.excludedHolders, atOnce}, {NodeQueue, event.ofNodes, atOnce}, {RouteQueue, event.ofNodes, after(routeDelay)},
		{PublishedQueue, event.publishedBlocks, atOnce}, {PublishedQueue, event.withdrawnBlocks, after(withdrawnDelay)},
		{PoolQueue, event.ofPools, statusDelay}, {BlockQueue, event.itself, atOnce},
		{NodeQueue, event.pinOwners, atOnce}, {PinQueue, event.pins, atOnce},
		{NodeQueue, event.overlapHolders, atOnce}, {BlockQueue, event.overlaps, atOnce},
	}
	ciliumNodeChanged = []wakeUp{
		{NodeQueue, event.excludedHolders, atOnce}, {NodeQueue, event.ofNodes, atOnce}, {RouteQueue, event.coolingNodes, after(routeDelay)},
		{PublishedQueue, event.publishedBlocks, atOnce}, {PublishedQueue, event.withdrawnBlocks, after(withdrawnDelay)},
	}
	nodeChanged = []wakeUp{
		{RouteQueue, event.ofHostname, after(routeDelay)}, {RouteQueue, event.ofNodes, after(routeDelay)},
		{NodeQueue, event.excludedHolders, atOnce}, {NodeQueue, event.ofNodes, atOnce},
		{PinQueue, event.pinsOfNodes, atOnce}, {PoolQueue, event.ofPools, statusDelay},
	}
	spaceFreed   = []wakeUp{{KeeperQueue, event.keeper, after(assignDelay)}}
	spaceChanged = []wakeUp{ // freed, or taken in other ways than by a claim
		{NodeQueue, event.pinOwners, atOnce}, {PinQueue, event.pins, atOnce},
		{NodeQueue, event.ofNodes, after(wakeDelay)}, {PoolQueue, event.ofPools, statusDelay},
	}
	usageChanged     = []wakeUp{{PoolQueue, event.ofPools, after(usedDelay)}}
	exclusionChanged = []wakeUp{{NodeQueue, event.excludedHolders, atOnce}}

	pinChanged      = []wakeUp{{PinQueue, event.itself, atOnce}, {KeeperQueue, event.keeper, after(assignDelay)}}
	pinOwnerChanged = []wakeUp{{NodeQueue, event.ofNodes, atOnce}, {CiliumPoolQueue, event.poolOfPod, atOnce}}
	pinDeleted      = []wakeUp{{KeeperQueue, event.keeper, after(assignDelay)}}

	agentChanged     = []wakeUp{{NodeQueue, event.ofNodes, atOnce}}
	podChanged       = []wakeUp{{NodeQueue, event.ofNodes, atOnce}}
	namedPodChanged  = []wakeUp{{KeeperQueue, event.keeper, after(assignDelay)}}
	namespaceChanged = []wakeUp{{NodeQueue, event.ofNodes, atOnce}, {KeeperQueue, event.keeper, after(assignDelay)}}
	podUnscheduled   = []wakeUp{{UnscheduledQueue, event.unscheduled, after(assignDelay)}}
	podScheduled     = []wakeUp{{UnscheduledQueue, event.unscheduled, after(reassignDelay)}}

	ciliumPoolsServed = []wakeUp{
		{CiliumPoolQueue, event.allCiliumPools, atOnce}, {KeeperQueue, event.keeper, after(assignDelay)}, {PoolQueue, event.allPools, atOnce},
	}
	ciliumPoolChanged         = []wakeUp{{CiliumPoolQueue, event.itself, atOnce}, {PoolQueue, event.ofPools, statusDelay}}
	ciliumPoolMarksChanged    = []wakeUp{{CiliumPoolQueue, event.podPools, atOnce}}
	ciliumPoolSelectorChanged = []wakeUp{{NodeQueue, event.allNodes, atOnce}}
	podPoolChanged            = []wakeUp{{CiliumPoolQueue, event.itself, atOnce}} // it depends on the one of the old name
	podPoolSelectorChanged    = []wakeUp{{NodeQueue, event.ofNodes, atOnce}}

	routesServed         = []wakeUp{{RouteQueue, event.allRoutes, atOnce}}
	routeChanged         = []wakeUp{{RouteQueue, event.ofNodes, after(routeDelay)}, {RouteQueue, event.ofHostname, after(routeDelay)}}
	routeTemplateChanged = []wakeUp{{RouteQueue, event.allRoutes, atOnce}}
)

// event has the keys of a change that has been recorded, or the values to find them by.
type event struct {
	name         string         // of the object
	nodes, pools []string       // of the object, by name
	pod          string         // of a pin; "": a node's
	hostname     []string       // the other nodes with the hostname of the node
	cidrs        []netip.Prefix // of the object
	excluded     []netip.Prefix // addresses that have become excluded, or are no longer
}

// queue runs the wake-ups of a change, on the leader.
func (f *Feed) queue(changed []wakeUp, e event) {
	if !f.leads() {
		return
	}
	for _, w := range changed {
		for _, key := range w.keys(e, f) {
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

func (e event) itself(*Feed) []string     { return []string{e.name} }
func (e event) ofNodes(*Feed) []string    { return e.nodes }
func (e event) ofPools(*Feed) []string    { return e.pools }
func (e event) ofHostname(*Feed) []string { return e.hostname }

func (event) allNodes(f *Feed) []string {
	return slices.Concat(f.nodeNames(), f.Ledger.Nodes(), f.Ledger.CiliumNodes())
}

func (event) allPools(f *Feed) []string  { return f.Pools.Names() }
func (event) allBlocks(f *Feed) []string { return blockNames(f.Ledger.CIDRs()) }
func (event) allPins(f *Feed) []string   { return blockNames(f.Ledger.Pins.All()) }

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

// excludedHolders returns the nodes that hold an address of excluded.
func (e event) excludedHolders(f *Feed) []string {
	var nodes []string
	for _, cidr := range e.excluded {
		nodes = append(nodes, holders(f.Ledger.HeldIn(cidr))...)
	}
	return nodes
}

// overlapHolders and overlaps return the nodes and names of other blocks with the same addresses.
func (e event) overlapHolders(f *Feed) []string { return holders(e.others(f)) }

func (e event) overlaps(f *Feed) []string {
	var cidrs []netip.Prefix
	for _, block := range e.others(f) {
		cidrs = append(cidrs, block.CIDR)
	}
	return blockNames(cidrs)
}

func (e event) others(f *Feed) []ipalloc.Held {
	var blocks []ipalloc.Held
	for _, cidr := range e.cidrs {
		blocks = append(blocks, f.Ledger.Overlaps(cidr)...)
	}
	return blocks
}

// pins and pinOwners return the pins that share addresses with cidrs, and their nodes.
func (e event) pins(f *Feed) []string {
	var cidrs []netip.Prefix
	for _, cidr := range e.cidrs {
		for _, pin := range f.Ledger.Pins.In(cidr) {
			cidrs = append(cidrs, pin.CIDR)
		}
	}
	return blockNames(cidrs)
}

func (e event) pinOwners(f *Feed) []string {
	var nodes []string
	for _, cidr := range e.cidrs {
		for _, pin := range f.Ledger.Pins.In(cidr) {
			nodes = append(nodes, f.nodeOf(pin.Owner.Node))
		}
	}
	return nodes
}

func (e event) pinsOfNodes(f *Feed) []string {
	var cidrs []netip.Prefix
	for _, node := range e.nodes {
		cidrs = append(cidrs, f.Ledger.Pins.Of(node)...)
	}
	return blockNames(cidrs)
}

// nodeOf returns the node of a pin's owner, which is a node or a pod.
func (f *Feed) nodeOf(owner string) string {
	if strings.Contains(owner, "/") {
		return f.Pods.NodeOf(owner)
	}
	return owner
}

// publishedBlocks returns the blocks of nodes with a CiliumNode that has them although their conditions
// do not say so, and withdrawnBlocks the reverse.
func (e event) publishedBlocks(f *Feed) []string { return e.blocksTo(f, true) }
func (e event) withdrawnBlocks(f *Feed) []string { return e.blocksTo(f, false) }

func (e event) blocksTo(f *Feed, publish bool) []string {
	var names []string
	for _, node := range e.nodes {
		cn := f.Ledger.CiliumNode(node)
		for _, b := range f.Ledger.NodeBlocks(node) {
			if b.Phase == ipalloc.InService && b.Published != publish && cn.HasBlock(b.CIDR) == publish {
				names = append(names, b.Name)
			}
		}
	}
	return names
}

// coolingNodes returns the nodes with a block that cools down: its route stays as long as its
// CiliumNode lists it.
func (e event) coolingNodes(f *Feed) []string {
	if f.Routes == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(e.nodes), func(node string) bool {
		return !slices.ContainsFunc(f.Ledger.NodeBlocks(node), func(b crd.Block) bool { return b.Phase == ipalloc.CoolingDown })
	})
}

func (event) allRoutes(f *Feed) []string {
	if f.Routes == nil {
		return nil
	}
	return append(f.Ledger.Nodes(), f.Routes.Nodes()...)
}

// allCiliumPools returns the Cilium pools that exist or should exist.
func (e event) allCiliumPools(f *Feed) []string {
	if f.CiliumPools == nil {
		return nil
	}
	var names []string
	for _, pool := range f.CiliumPools.Missing(nil) {
		names = append(names, pool.Name)
	}
	return slices.Concat(names, f.Pools.CiliumPools(), e.podPools(f))
}

// podPools returns the Cilium pools of single pods.
func (event) podPools(f *Feed) []string {
	pods := f.Ledger.Pins.Pods()
	for i, pod := range pods {
		pods[i] = f.CiliumPools.OfPod(pod, f.Ledger)
	}
	return pods
}

// poolOfPod returns the Cilium pool of the pod that a pin is for, if it is for one.
func (e event) poolOfPod(f *Feed) []string {
	if e.pod == "" || f.CiliumPools == nil {
		return nil
	}
	return []string{f.CiliumPools.OfPod(e.pod, f.Ledger)}
}

// keeper returns the request for all pods if a pool keeps addresses for pods, or has done so.
func (event) keeper(f *Feed) []string {
	if f.Mode.ManyPools() && (len(f.Pools.WithPodAddresses()) > 0 || f.Ledger.Pins.HasPods()) {
		return []string{allPods}
	}
	return nil
}

func (event) unscheduled(*Feed) []string { return []string{allPods} }
