package pool

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumconfig"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/exclude"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/suggest"
)

// Reasons of the condition CoversClusterAddresses, beside ReasonInvalid.
const (
	ReasonExcluded   = "ExcludedFromPods"
	ReasonCoversNone = "CoversNone"
)

// excludedCondition reports the addresses of nodes and Services that a pool covers, and which of them lie
// in blocks that nodes hold, according to holder.
func excludedCondition(pool *crd.Pool, excluded, shared []exclude.Range, holder func(exclude.Range) string) *condition {
	if unreadable(pool) {
		return noSpec()
	}
	if len(excluded)+len(shared) == 0 {
		return falseFor(ReasonCoversNone, "the pool covers no address of a node or Service")
	}
	message := ""
	if len(excluded) > 0 {
		message = "the pool covers " + exclude.Words(excluded, holder)
		if pool.WholeBlocks {
			message += ". No node gets a block that contains one; of a block that a node holds already, its agent gives pods any address. "
		} else {
			message += ". No pod gets these addresses, and no node gets a block that contains one. "
		}
	}
	if len(shared) > 0 {
		message += "Objects ask for more than a quarter of the blocks of a CIDR: pods can get " + exclude.Words(shared, nil) + ", too. "
	}
	return trueFor(ReasonExcluded, message+"Use separate CIDRs for pods, nodes and Services")
}

// Reasons of a pool's condition CiliumPodIPPoolReady, beside ReasonInvalid and ReasonNotApplicable.
const (
	ReasonKept        = "Kept"
	ReasonHandMade    = "HandMade"
	ReasonMissing     = "Missing"
	ReasonOtherSize   = "OtherSize"
	ReasonOtherFamily = "OtherFamily"
	ReasonCIDRsUnused = "CIDRsUnused"
)

// ciliumPoolCondition reports whether, in multi-pool mode, a CiliumPodIPPool exists that fits
// the pool.
func (r *Reconciler) ciliumPoolCondition(pool *crd.Pool) *condition {
	if unreadable(pool) {
		return noSpec()
	}
	if !pool.ManyCiliumPools() {
		return trueFor(ReasonNotApplicable, "agents have no CiliumPodIPPools in this mode")
	}
	name := cmp.Or(pool.CiliumPool, crd.DefaultCiliumPool)
	ciliumPool := r.CiliumPools.Get(name)
	if ciliumPool == nil {
		return falseFor(ReasonMissing, "there is no CiliumPodIPPool "+name+": agents assign no address of the pool")
	}
	for _, f := range ipalloc.Families() {
		if _, serves := pool.Ranges(f); serves && ciliumPool.MaskSize[f] == 0 {
			return falseFor(ReasonOtherFamily, fmt.Sprintf("CiliumPodIPPool %s has no %s ranges: its selectors pick no pod for that family, and agents that announce it by BGP may crash. Give it some", name, f))
		}
	}
	for _, f := range ipalloc.Families() {
		ranges, serves := pool.Ranges(f)
		if serves && ciliumPool.MaskSize[f] != ranges.Bits {
			return falseFor(ReasonOtherSize, fmt.Sprintf("CiliumPodIPPool %s has maskSize %d for %s, and blocks here are of %d (%s): Cilium's BGP control plane announces none of them. Without it that is no harm", name, ciliumPool.MaskSize[f], f, ranges.Bits, f.SizeText(ranges.Bits)))
		}
	}
	if len(ciliumPool.Added) > 0 {
		return falseFor(ReasonCIDRsUnused, fmt.Sprintf("no node gets an address of %s, which were added to CiliumPodIPPool %s: the operator assigns the CIDRs of PodIPPools. Add them to this one, and remove them there", suggest.Few(ciliumPool.Added), name))
	}
	if !ciliumPool.Ours {
		return trueFor(ReasonHandMade, "CiliumPodIPPool "+name+" does not belong to the operator, which leaves it unchanged")
	}
	return trueFor(ReasonKept, "CiliumPodIPPool "+name+" is labeled as the operator's")
}

// isUnfit reports whether a reason calls for a change of the CiliumPodIPPool.
func isUnfit(reason string) bool {
	return reason == ReasonOtherSize || reason == ReasonOtherFamily || reason == ReasonCIDRsUnused
}

// Reasons of a pool's condition FamiliesServed.
const (
	ReasonAgentsWithout = "AgentsWithoutFamily"
	ReasonAgentsRunAll  = "AgentsRunFamilies"
)

// familiesCondition reports whether agents do not run one of the families of a pool.
func (r *Reconciler) familiesCondition(pool *crd.Pool) *condition {
	if pool == nil {
		return noSpec()
	}
	var parts []string
	for _, f := range ipalloc.Families() {
		if _, ok := pool.Ranges(f); !ok {
			continue
		}
		if nodes := r.Ledger.NotRunning(f, pool.Name); len(nodes) > 0 {
			parts = append(parts, fmt.Sprintf("the agents of %s do not run %s", nodesLine(nodes, len(nodes)), f))
		}
	}
	if len(parts) > 0 {
		return falseFor(ReasonAgentsWithout, strings.Join(parts, "; ")+
			". Nothing is claimed for them in that family. Switch it on in Cilium, or give these nodes a pool without it")
	}
	return trueFor(ReasonAgentsRunAll, "no agent of a node with a block lacks a family of the pool")
}

// Reasons of the condition Masqueraded, beside ReasonInvalid.
const (
	// ReasonOutsideNative: a range of the pool lies outside Cilium's native-routing CIDR.
	ReasonOutsideNative  = "OutsideNativeRouting"
	ReasonNotMasqueraded = "NotMasqueraded"
	ReasonNotRead        = "CiliumConfigNotRead"
)

// masqueradedCondition reports the ranges of a pool that agents masquerade.
func masqueradedCondition(pool *crd.Pool, cilium *ciliumconfig.Config) *condition {
	if unreadable(pool) {
		return noSpec()
	}
	if cilium == nil || !cilium.Known {
		return unknownFor(ReasonNotRead, "Cilium's configuration has not been read")
	}
	var parts []string
	for _, m := range cilium.Masqueraded(pool) {
		parts = append(parts, m.String())
	}
	if len(parts) == 0 {
		return falseFor(ReasonNotMasqueraded, "agents masquerade no connection to pods of this pool")
	}
	return trueFor(ReasonOutsideNative, strings.Join(parts, "; ")+". "+ciliumconfig.MasqueradedFix)
}

// Reasons of the condition ReservedBlocksHeld, beside ReasonInvalid and ReasonNotApplicable.
const (
	ReasonHeldBefore  = "HeldBeforeReserved"
	ReasonNoneSkipped = "NoneHeld"
)

// namedBlocks bounds the number of blocks that a message names.
const namedBlocks = 5

// reservedCondition reports the blocks that nodes held before a range was reserved. A
// reservation never moves them: it would take addresses from pods for the sake of
// others that may not be used yet, on many nodes at once.
func reservedCondition(pool *crd.Pool, overlapping []crd.Block) *condition {
	families := ipalloc.Families()
	if unreadable(pool) {
		return noSpec()
	}
	if !slices.ContainsFunc(families[:], func(f ipalloc.Family) bool { return len(pool.Skipped(f)) > 0 }) {
		return falseFor(ReasonNotApplicable, "no reserved range keeps a block of the pool from nodes")
	}
	blocks := slices.DeleteFunc(slices.Clone(overlapping), func(b crd.Block) bool { return b.Phase == ipalloc.CoolingDown || !pool.Skips(b.CIDR) })
	slices.SortFunc(blocks, func(a, b crd.Block) int { return a.CIDR.Compare(b.CIDR) })
	if len(blocks) == 0 {
		return falseFor(ReasonNoneSkipped, "no node holds a block that overlaps a reserved range")
	}
	var parts []string
	for _, b := range blocks[:min(len(blocks), namedBlocks)] {
		parts = append(parts, fmt.Sprintf("block %s of node %s overlaps reserved %s", b.CIDR, b.Node, reservedIn(pool, b.CIDR)))
	}
	message := strings.Join(parts, "; ")
	if rest := len(blocks) - namedBlocks; rest > 0 {
		message += fmt.Sprintf("; and %d more", rest)
	}
	if pool.WholeBlocks {
		return trueFor(ReasonHeldBefore, message+". Agents give pods any address of a block, reserved ones too. "+
			"A block leaves once its agent returns it, or with its Node: drain the Node")
	}
	return trueFor(ReasonHeldBefore, message+". Pods get no reserved address, but other nodes still route these blocks as a whole. "+
		"To move one off its node, which gets a replacement first: kubectl cilium-pool drain "+blocks[0].Name)
}

// reservedIn names the first reserved range that shares addresses with block.
func reservedIn(pool *crd.Pool, block netip.Prefix) string {
	for _, r := range pool.Reservations {
		if r.CIDR.Overlaps(block) {
			return r.String()
		}
	}
	return block.String()
}

// Reasons of a pool's condition MaintenanceWindowOpen, beside ReasonInvalid.
const (
	ReasonWindowOpen   = "Open"
	ReasonWindowClosed = "Closed"
)

// windowCondition reports whether a maintenance window of the pool is open.
func windowCondition(pool *crd.Pool, now time.Time) *condition {
	if pool == nil {
		return noSpec()
	}
	m := &pool.Maintenance
	if m.Windows == nil {
		return trueFor(ReasonNotApplicable, "no window is set: blocks may begin to leave their nodes at any time")
	}
	if m.Problem != nil {
		return falseFor(ReasonInvalid, problems(m.Problem)+
			". No block begins to leave its node until this is fixed; nodes get blocks all the same")
	}
	current := m.Windows.At(now)
	if current.Open { // for windows that follow each other, the end that is known moves with the time of the look
		return trueFor(ReasonWindowOpen, "a window is open: blocks may begin to leave their nodes")
	}
	if current.Until.IsZero() {
		return falseFor(ReasonWindowClosed, "no window opens in the next years: no block begins to leave its node")
	}
	return falseFor(ReasonWindowClosed, "no block begins to leave its node until the next window opens at "+current.Until.UTC().Format(time.RFC3339))
}

// untilWindow is the time until a window of the pool opens or closes; 0: unknown.
func untilWindow(pool *crd.Pool, now time.Time) time.Duration {
	if pool == nil {
		return 0
	}
	if current := pool.Maintenance.Windows.At(now); !current.Until.IsZero() {
		return max(current.Until.Sub(now), time.Millisecond)
	}
	return 0
}
