package observe

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumconfig"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/clusterread"
	"github.com/cilium-pool/cilium-pool-operator/pkg/clusterview"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/list"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/plan"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// report is the page.
type report struct {
	Time time.Time `json:"time"`
	// Mode is the IPAM mode, and ModeBy its source.
	Mode   string         `json:"mode"`
	ModeBy string         `json:"modeBy"`
	Pools  []list.PoolRow `json:"pools"`
	// Nodes is the number of nodes with a range, and Routes the number of ranges.
	Nodes  int `json:"nodes"`
	Routes int `json:"routes"`
	// Held counts the addresses of nodes' ranges that pods can have, Used the ones in use.
	Held count `json:"held"`
	Used count `json:"used"`
	// NearlyFull are nodes with less than a tenth of their addresses free, the fullest first.
	NearlyFull []nodeUse `json:"nearlyFull"`
	// Served: this operator assigns the addresses already. Then there is no migration, and whatIf only
	// with pools of the user's own.
	Served    bool       `json:"served"`
	WhatIf    *whatIf    `json:"whatIf,omitempty"`
	Migration *migration `json:"migration,omitempty"`

	// use has all nodes.
	use []nodeUse
}

// count is a number of each family.
type count struct {
	IPv4 int `json:"ipv4"`
	IPv6 int `json:"ipv6"`
}

func (c *count) add(f ipalloc.Family, n int) {
	if f == ipalloc.IPv4 {
		c.IPv4 += n
	} else {
		c.IPv6 += n
	}
}

// of returns the number of a family.
func (c *count) of(f ipalloc.Family) int { return [2]int{c.IPv4, c.IPv6}[f] }

// nodeUse has the numbers of addresses of a family that a node holds and uses.
type nodeUse struct {
	Node   string `json:"node"`
	Family string `json:"family"`
	Used   int    `json:"used"`
	Held   int    `json:"held"`
}

func (u nodeUse) isNearlyFull() bool { return (u.Held-u.Used)*10 < u.Held }

// whatIf describes the blocks of nodes with this operator, for their present pods: in the mode that it runs
// in, in multi-pool mode if they run in it, else in crd mode.
type whatIf struct {
	// Pools are the PodIPPools, and Blocks the size of their blocks.
	Pools []ifPool `json:"pools"`
	// Routes is the number of blocks.
	Routes int   `json:"routes"`
	Held   count `json:"held"`
	// Replaced counts the addresses that the nodes with these blocks hold now.
	Replaced count `json:"replaced"`
	// used counts the ones of these in use.
	used count
	// Unserved are nodes that no pool selects, or that need more than its limits let them have.
	Unserved []string `json:"unserved"`
	// TooSmall are pools with fewer blocks than these.
	TooSmall []string `json:"tooSmall"`

	// blocks counts them by pool.
	blocks map[*crd.Pool][2]int
}

type ifPool struct {
	Name   string `json:"name"`
	Blocks string `json:"blocks"`
}

// migration is the extent of a move to crd mode: the agents of all nodes restart once, and each range becomes
// a block.
type migration struct {
	// TooLarge are ranges with more addresses than a block of crd mode may have.
	TooLarge []string `json:"tooLarge"`
}

// reportOf makes the page. Without pools, nodes that this operator does not serve would get blocks of 32
// addresses of the same ranges.
func reportOf(c *clusterview.Cluster, pools []v1alpha1.PodIPPool) (*report, error) {
	r := &report{
		Time: c.Now, Mode: c.Objects.Mode.String(), ModeBy: c.Operator.ModeSource, Pools: list.PoolRows(c), NearlyFull: []nodeUse{},
		Served: !c.Objects.Foreign && !c.Operator.Settings.Shadow,
	}
	if err := onTwoNodes(c.Objects.Blocks); err != nil {
		return nil, err
	}
	if !r.Served {
		r.Migration = &migration{TooLarge: []string{}}
	}
	if len(pools) == 0 && !r.Served {
		pools = inSmallBlocks(c.Objects)
	}
	replaced, err := with(c, pools, r.modeIf(c.Objects.Mode))
	if err != nil {
		return nil, err
	}
	if len(pools) > 0 || !r.Served {
		r.WhatIf = newWhatIf(replaced, pools)
	}
	for _, name := range c.NodeNames() {
		r.addNode(c, replaced, name)
	}
	slices.SortStableFunc(r.NearlyFull, func(a, b nodeUse) int { return cmp.Compare(a.Held-a.Used, b.Held-b.Used) })
	if r.WhatIf != nil {
		r.WhatIf.findTooSmall(replaced)
	}
	return r, nil
}

// modeIf returns the mode of whatIf.
func (r *report) modeIf(now ciliumnode.Mode) ciliumnode.Mode {
	if r.Served || now == ciliumnode.MultiPool {
		return now
	}
	return ciliumnode.CRD
}

func newWhatIf(replaced *clusterview.Cluster, pools []v1alpha1.PodIPPool) *whatIf {
	w := &whatIf{Pools: []ifPool{}, Unserved: []string{}, TooSmall: []string{}, blocks: map[*crd.Pool][2]int{}}
	for _, p := range pools {
		w.Pools = append(w.Pools, ifPool{p.Name, replaced.State.Pools.Get(p.Name).SizeText(ipalloc.IPv4, ipalloc.IPv6)})
	}
	return w
}

// onTwoNodes fails if two nodes have a CIDR: each would count as if it had all of it.
func onTwoNodes(blocks []v1alpha1.PodIPBlock) error {
	nodes := map[string]string{}
	for i := range blocks {
		b := &blocks[i].Spec
		if node, ok := nodes[b.CIDR]; ok && node != b.NodeName {
			return fmt.Errorf("%s is assigned to both %s and %s: kubectl cilium-pool check --mode observe lists all such ranges. Take it from one of the nodes first", b.CIDR, node, b.NodeName)
		}
		nodes[b.CIDR] = b.NodeName
	}
	return nil
}

func (r *report) addNode(c, replaced *clusterview.Cluster, name string) {
	var total, used [2]int
	shares := map[string][2]share{}
	users := c.Users(name)
	blocks := c.State.Ledger.NodeBlocks(name)
	for _, b := range blocks {
		f := ipalloc.FamilyOf(b.CIDR.Addr())
		usable := c.UsableCount(b)
		inUse := clusterview.CountIn(b.CIDR, users)
		total[f] += usable
		used[f] += inUse
		ciliumPool := ""
		if replaced.Objects.Mode.ManyPools() {
			ciliumPool = b.CiliumPool
		}
		sum := shares[ciliumPool]
		sum[f].total += usable
		sum[f].used += inUse
		shares[ciliumPool] = sum
		if r.Migration != nil && ipalloc.TooLarge(b.CIDR, false) {
			r.Migration.TooLarge = append(r.Migration.TooLarge, fmt.Sprintf("%s of node %s", b.CIDR, name))
		}
	}
	if len(blocks) == 0 {
		return
	}
	r.Nodes++
	r.Routes += len(blocks)
	for _, f := range ipalloc.Families() {
		if total[f] == 0 {
			continue
		}
		r.Held.add(f, total[f])
		r.Used.add(f, used[f])
		use := nodeUse{name, f.String(), used[f], total[f]}
		r.use = append(r.use, use)
		if use.isNearlyFull() {
			r.NearlyFull = append(r.NearlyFull, use)
		}
		if r.WhatIf == nil {
			continue
		}
		for _, ciliumPool := range slices.Sorted(maps.Keys(shares)) {
			if s := shares[ciliumPool][f]; s.total > 0 && r.WhatIf.add(replaced, name, f, ciliumPool, s.used) {
				r.WhatIf.Replaced.add(f, s.total)
				r.WhatIf.used.add(f, s.used)
			}
		}
	}
}

// share counts the addresses of a node that it holds, and uses, of one Cilium pool.
type share struct{ total, used int }

// add counts the blocks of a node for its used addresses of a Cilium pool. It reports whether a pool serves the
// node.
func (w *whatIf) add(replaced *clusterview.Cluster, name string, f ipalloc.Family, ciliumPool string, used int) bool {
	var served []*crd.Pool
	if node := replaced.Nodes[name]; node != nil {
		served = replaced.State.Pools.Match(labels.Set(node.Labels))
	}
	for _, pool := range served {
		if _, ok := pool.Ranges(f); !ok || pool.Frozen() || pool.CiliumPool != ciliumPool {
			continue
		}
		n := blocksFor(replaced, pool, name, f, used)
		if n*pool.AddressesPerBlock(f) < used {
			w.Unserved = append(w.Unserved, fmt.Sprintf("%s (%s: expand.maxBlocksPerNode of pool %s)", name, f, pool.Name))
			return false
		}
		w.Routes += n
		w.Held.add(f, n*pool.AddressesPerBlock(f))
		sum := w.blocks[pool]
		sum[f] += n
		w.blocks[pool] = sum
		return true
	}
	suffix := ""
	if ciliumPool != "" {
		suffix = " of Cilium's pool " + ciliumPool
	}
	w.Unserved = append(w.Unserved, fmt.Sprintf("%s (%s%s)", name, f, suffix))
	return false
}

// blocksFor returns the number of blocks of a pool that a node needs for its used addresses: in multi-pool mode,
// for the agent's request.
func blocksFor(replaced *clusterview.Cluster, pool *crd.Pool, name string, f ipalloc.Family, used int) int {
	if replaced.Objects.Mode != ciliumnode.MultiPool {
		return int(state.BlocksFor(pool, f, used))
	}
	reserves := replaced.Objects.CiliumConfig.PreAllocation(replaced.Nodes[name].Labels)
	request := expand.RequestFor(used, reserves[cmp.Or(pool.CiliumPool, crd.DefaultCiliumPool)])
	perBlock := max(1, pool.AddressesPerBlock(f))
	return min((request+perBlock-1)/perBlock, pool.Policy.MaxBlocks)
}

// findTooSmall finds the pools without room for the blocks.
func (w *whatIf) findTooSmall(replaced *clusterview.Cluster) {
	for pool, n := range w.blocks {
		for _, f := range ipalloc.Families() {
			var total uint64
			if cut, ok := pool.Cut(f); ok {
				total = replaced.State.Ledger.Free(cut)
			}
			if total < uint64(n[f]) {
				w.TooSmall = append(w.TooSmall, fmt.Sprintf("%s (%s: %d of %d)", pool.Name, f, total, n[f]))
			}
		}
	}
	slices.Sort(w.TooSmall)
}

// with returns the cluster as it would be with these pools, in a mode, and no block yet.
func with(c *clusterview.Cluster, pools []v1alpha1.PodIPPool, mode ciliumnode.Mode) (*clusterview.Cluster, error) {
	s := *c.Objects
	s.Mode = mode
	s.Pools = pools
	s.Blocks = nil
	s.CiliumNodes = nil
	operator := c.Operator
	operator.Mode = mode
	operator.Settings.Mode = mode
	operator.Settings.Defaults.WholeBlocks = mode.WholeBlocks()
	operator.Settings.Defaults.CiliumPools = mode.ManyPools()
	for i := range pools {
		if err := plan.CheckPool(&pools[i], operator.Settings.Defaults); err != nil {
			return nil, err
		}
	}
	return clusterview.New(&s, operator), nil
}

// inSmallBlocks returns pools with the same ranges for all nodes, in blocks of 32 addresses; in multi-pool
// mode, smaller blocks stay.
func inSmallBlocks(s *clusterread.Objects) []v1alpha1.PodIPPool {
	var out []v1alpha1.PodIPPool
	for i := range s.Pools {
		p := *s.Pools[i].DeepCopy()
		if p.Name == s.CiliumConfig.Setting(nil, ciliumconfig.DefaultPoolSetting) {
			p.Spec.CiliumPoolName = ""
		}
		multi := s.Mode == ciliumnode.MultiPool
		if p.Spec.CiliumPoolName != "" && !multi { // pods choose it, in multi-pool mode alone
			continue
		}
		for _, r := range crd.RangesIn(&p.Spec) {
			bits := r.Family.Bits() - 5
			if multi {
				bits = max(bits, int(*r.BlockSize))
			}
			*r.BlockSize, *r.CIDRs = int32(bits), fit(*r.CIDRs, bits)
		}
		if r := p.Spec.IPv4; r != nil && len(r.CIDRs) == 0 {
			p.Spec.IPv4 = nil
		}
		if r := p.Spec.IPv6; r != nil && len(r.CIDRs) == 0 {
			p.Spec.IPv6 = nil
		}
		if p.Spec.IPv4 != nil || p.Spec.IPv6 != nil {
			out = append(out, p)
		}
	}
	return out
}

// fit returns the CIDRs that hold a block of a size.
func fit(cidrs []v1alpha1.PoolCIDR, bits int) []v1alpha1.PoolCIDR {
	var out []v1alpha1.PoolCIDR
	for _, c := range cidrs {
		if p, err := netip.ParsePrefix(c.CIDR); err == nil && p.Bits() <= bits {
			out = append(out, v1alpha1.PoolCIDR{CIDR: c.CIDR})
		}
	}
	return out
}
