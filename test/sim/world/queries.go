package world

import (
	"iter"
	"maps"
	"net/netip"
	"slices"
	"time"

	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	ciliumv2alpha1 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2alpha1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/agent/multipool"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant/whole"
)

// queries read the API server's objects. They know neither processes nor agents.
type queries struct {
	cfg Config
	api *API
}

// ciliumPools are the Cilium pools that users may let PodIPPools serve.
func (q *queries) ciliumPools() []string {
	names := map[string]bool{crd.DefaultCiliumPool: true}
	if q.cfg.Asking != nil {
		for _, pool := range q.cfg.Asking.Served {
			names[crd.CiliumPoolObjectName(pool)] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

func (q *queries) ciliumPool(name string) *ciliumv2alpha1.CiliumPodIPPool {
	obj, _ := q.api.Get(KindCiliumPool, name).(*ciliumv2alpha1.CiliumPodIPPool)
	return obj
}

// isListed reports whether a node lists a CIDR of a Cilium pool.
func (q *queries) isListed(pool string) bool {
	return slices.ContainsFunc(q.allListed(), func(l whole.Entry) bool { return l.Pool == pool })
}

// allListed returns the lists of all agents.
func (q *queries) allListed() (out []whole.Entry) {
	for _, cn := range list[ciliumv2.CiliumNode](q.api, KindCiliumNode) {
		out = append(out, listedIn(cn)...)
	}
	return out
}

// isServed reports whether a PodIPPool serves a Cilium pool.
func (q *queries) isServed(pool string) bool {
	return slices.ContainsFunc(q.pools(), func(p *v1alpha1.PodIPPool) bool { return crd.CiliumPoolObjectName(p) == pool })
}

// servesFamily reports whether a PodIPPool has ranges of a family for a Cilium pool, or a node
// lists a CIDR of them.
func (q *queries) servesFamily(ciliumPool string, f ipalloc.Family) bool {
	for _, pool := range q.pools() {
		if cidrs, _ := ranges(pool, f == ipalloc.IPv4); crd.CiliumPoolObjectName(pool) == ciliumPool && len(cidrs) > 0 {
			return true
		}
	}
	return slices.ContainsFunc(q.allListed(), func(l whole.Entry) bool { return l.Pool == ciliumPool && ipalloc.FamilyOf(l.CIDR.Addr()) == f })
}

// clusterHas returns the cluster's own addresses, as far as operators read them.
func (q *queries) clusterHas() []netip.Prefix {
	if q.cfg.Cluster == nil {
		return nil
	}
	var out []netip.Prefix
	for _, kind := range []Kind{KindNode, q.carrier(), KindServiceCIDR} {
		for _, key := range q.api.Keys(kind) {
			out = append(out, nonPodCIDRs(q.api.Get(kind, key))...)
		}
	}
	return out
}

func (q *queries) clusters(cidr netip.Prefix) bool {
	return slices.ContainsFunc(q.clusterHas(), cidr.Overlaps)
}

// fixed reports whether Nodes assign one block to agents before they start.
func (q *queries) fixed() bool { return q.cfg.Settings.Mode == ciliumnode.Kubernetes }

// carrier returns the kind of object that assigns blocks to agents.
func (q *queries) carrier() Kind {
	if q.fixed() {
		return KindNode
	}
	return KindCiliumNode
}

func (q *queries) labelsOf(node string) labels.Set {
	if obj := q.api.Get(KindNode, node); obj != nil {
		return obj.GetLabels()
	}
	return nil
}

func (q *queries) selects(pool *v1alpha1.PodIPPool, node string) bool {
	return selects(pool, q.labelsOf(node))
}

// isHeld reports whether blocks of a pool never begin to drain, even on request.
func (q *queries) isHeld(pool string) bool {
	obj, ok := q.api.Get(KindPool, pool).(*v1alpha1.PodIPPool)
	return ok && q.cfg.Maintenance.shut(obj)
}

// returning reports whether a node is on its way back.
func (q *queries) returning(name string) bool {
	node := q.api.Get(KindNode, name)
	return node != nil && node.GetAnnotations()[v1alpha1.ReturningAnnotation] != ""
}

// Assigned returns the CIDRs that are assigned to a node's agent.
func (q *queries) Assigned(node string) []netip.Prefix {
	if q.fixed() {
		return podCIDRsOf(q.api.Get(KindNode, node))
	}
	if cn := q.CiliumNode(node); cn != nil {
		return q.listOf(cn)
	}
	return nil
}

// quietFor is the time without a write after which operators count as at rest: longer than any of
// their waits.
func (q *queries) quietFor() time.Duration {
	quiet := 12 * time.Minute
	if q.cfg.Maintenance != nil {
		quiet += q.cfg.Maintenance.Longest
	}
	if q.whole() && q.cfg.Settings.ParkBlocks { // it infers which blocks an agent has closed
		quiet += time.Hour
	}
	return quiet
}

// restWithin bounds the number of actions until rest: whoever waits for a turn asks again and
// again.
func (q *queries) restWithin() int {
	return 20000 * int(q.quietFor()/(12*time.Minute))
}

// families returns the families of the world's addresses.
func (q *queries) families() []ipalloc.Family {
	var out []ipalloc.Family
	for _, f := range q.cfg.Families {
		out = append(out, familyOf(f))
	}
	return out
}

// onAnyGrid reports whether a pool that is not being deleted could have cut a CIDR for a node.
func (q *queries) onAnyGrid(node string, l whole.Entry) bool {
	c := l.CIDR
	for _, pool := range q.pools() {
		cidrs, bits := ranges(pool, c.Addr().Is4())
		if pool.DeletionTimestamp == nil && q.selects(pool, node) && crd.CiliumPoolObjectName(pool) == l.Pool && bits == c.Bits() && slices.ContainsFunc(cidrs, func(r v1alpha1.PoolCIDR) bool {
			return netip.MustParsePrefix(r.CIDR).Contains(c.Addr())
		}) {
			return true
		}
	}
	return false
}

// foreign reports whether a pool entry lies in no block of the node.
func (q *queries) foreign(node, key string) bool {
	cn := q.CiliumNode(node)
	addr, err := netip.ParseAddr(key)
	_, published := q.poolOf(cn)[key]
	return err == nil && published && !q.inBlockOf(node, addr)
}

// blockWith returns the block of a node that contains an address, or nil.
func (q *queries) blockWith(node string, addr netip.Addr) *v1alpha1.PodIPBlock {
	for _, b := range q.Blocks() {
		if b.Spec.NodeName == node && cidrOf(b).Contains(addr) {
			return b
		}
	}
	return nil
}

func (q *queries) inBlockOf(node string, addr netip.Addr) bool { return q.blockWith(node, addr) != nil }

func (q *queries) overlapped(name string, cidr netip.Prefix) bool {
	return slices.ContainsFunc(q.Blocks(), func(b *v1alpha1.PodIPBlock) bool { return b.Name != name && cidrOf(b).Overlaps(cidr) })
}

func (q *queries) reserved(addr netip.Addr) bool {
	return slices.ContainsFunc(q.pools(), func(pool *v1alpha1.PodIPPool) bool {
		return slices.ContainsFunc(pool.Spec.Reserved, func(r v1alpha1.ReservedCIDR) bool { return netip.MustParsePrefix(r.CIDR).Contains(addr) })
	})
}

// ciliumPoolOf returns the Cilium pool that a block is for; "": none.
func (q *queries) ciliumPoolOf(b *v1alpha1.PodIPBlock) string {
	if pool, ok := q.api.Get(KindPool, b.Spec.PoolName).(*v1alpha1.PodIPPool); ok {
		return crd.CiliumPoolObjectName(pool)
	}
	return ""
}

// isOurs reports whether an address belongs to a pool or a block.
func (q *queries) isOurs(addr netip.Addr) bool {
	inPool := func(pool *v1alpha1.PodIPPool) bool {
		cidrs, _ := ranges(pool, addr.Is4())
		return slices.ContainsFunc(cidrs, func(c v1alpha1.PoolCIDR) bool { return netip.MustParsePrefix(c.CIDR).Contains(addr) })
	}
	return slices.ContainsFunc(q.pools(), inPool) ||
		slices.ContainsFunc(q.Blocks(), func(b *v1alpha1.PodIPBlock) bool { return cidrOf(b).Contains(addr) })
}

// whole reports whether agents are assigned whole blocks, in spec.ipam.pools.
func (q *queries) whole() bool { return q.multiPool() || q.delegated() }

// delegated reports whether this project's node agents assign addresses, of whole blocks.
func (q *queries) delegated() bool { return q.cfg.Settings.Mode == ciliumnode.DelegatedPlugin }

// multiPool reports whether Cilium's agents ask for whole blocks, and return them.
func (q *queries) multiPool() bool { return q.cfg.Settings.Mode == ciliumnode.MultiPool }

// listOf returns the CIDRs that other nodes use for routing, which name a node's blocks:
// podCIDRs or, where agents are assigned whole blocks, the list of the default pool.
func (q *queries) listOf(cn *ciliumv2.CiliumNode) []netip.Prefix {
	if q.whole() {
		return allocatedIn(cn)
	}
	var out []netip.Prefix
	for _, p := range cn.Spec.IPAM.PodCIDRs {
		out = append(out, p.Prefix)
	}
	return out
}

// poolOf returns the addresses that an agent may assign to pods: of these Cilium pools, or of any.
func (q *queries) poolOf(cn *ciliumv2.CiliumNode, of ...string) ipamtypes.AllocationMap {
	if !q.whole() {
		return cn.Spec.IPAM.Pool // in kubernetes mode there is none
	}
	out := ipamtypes.AllocationMap{}
	for _, l := range listedIn(cn) {
		if len(of) == 0 || slices.Contains(of, l.Pool) {
			addAll(out, l.CIDR)
		}
	}
	return out
}

// addAll adds the addresses of a CIDR that pods may have.
func addAll(to ipamtypes.AllocationMap, cidr netip.Prefix) {
	for _, addr := range multipool.Inner(cidr) {
		to[addr.String()] = ipamtypes.AllocationIP{}
	}
}

// everPaused reports whether a pool was ever paused.
func (q *queries) everPaused() bool {
	return slices.ContainsFunc(q.api.history[KindPool], func(v Version) bool {
		pool, ok := v.New.(*v1alpha1.PodIPPool)
		return ok && isPaused(pool)
	})
}

// Blocks returns all blocks, which must not be modified.
func (q *queries) Blocks() []*v1alpha1.PodIPBlock { return list[v1alpha1.PodIPBlock](q.api, KindBlock) }

func (q *queries) pools() []*v1alpha1.PodIPPool { return list[v1alpha1.PodIPPool](q.api, KindPool) }

// list returns all objects of a kind, sorted by key. They must not be modified.
func list[T any](a *API, kind Kind) []*T {
	var out []*T
	for _, key := range a.Keys(kind) {
		out = append(out, any(a.Get(kind, key)).(*T))
	}
	return out
}

// API returns the API server, for reading.
func (q *queries) API() *API { return q.api }

// pick returns one of n, the same for the same arguments.
func (q *queries) pick(who string, turn uint64, n int) int {
	if q.cfg.Seed == 0 || n == 1 {
		return 0
	}
	h := q.cfg.Seed ^ turn*0x9e3779b97f4a7c15
	for i := range len(who) {
		h = (h ^ uint64(who[i])) * 0x100000001b3
	}
	h ^= h >> 31
	h *= 0xbf58476d1ce4e5b9
	h ^= h >> 29
	return int(h % uint64(n))
}

// must is for the world's own writes, which cannot fail.
func (q *queries) must(_ client.Object, err error) { q.mustNot(err) }

func (q *queries) mustNot(err error) {
	if err != nil {
		panic(err)
	}
}

// lists reports whether a block is assigned to its node.
func (q *queries) lists(b *v1alpha1.PodIPBlock) bool {
	return slices.ContainsFunc(q.Assigned(b.Spec.NodeName), func(p netip.Prefix) bool { return p.String() == b.Spec.CIDR })
}

// Block returns a block, or nil.
func (q *queries) Block(name string) *v1alpha1.PodIPBlock {
	b, _ := q.api.Get(KindBlock, name).(*v1alpha1.PodIPBlock)
	return b
}

// CiliumNode returns a CiliumNode, or nil.
func (q *queries) CiliumNode(name string) *ciliumv2.CiliumNode {
	cn, _ := q.api.Get(KindCiliumNode, name).(*ciliumv2.CiliumNode)
	return cn
}

func cidrOf(b *v1alpha1.PodIPBlock) netip.Prefix { return netip.MustParsePrefix(b.Spec.CIDR) }

// addresses yields the keys of a map that are addresses.
func addresses[M ~map[string]V, V any](m M) iter.Seq2[netip.Addr, V] {
	return func(yield func(netip.Addr, V) bool) {
		for key, value := range m {
			if addr, err := netip.ParseAddr(key); err == nil && !yield(addr, value) {
				return
			}
		}
	}
}
