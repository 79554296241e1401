package adopt

import (
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumconfig"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// lookAt reports facts that users should know about a node before it moves.
func (p *planner) lookAt(n *node) {
	if n.From == None {
		if len(n.Used) > 0 && len(n.Published)+len(n.AssignedCIDRs) == 0 {
			p.block(n, NothingGiven, "Find out who gives them; only cluster-pool, kubernetes, multi-pool and crd mode can be left",
				"its pods have addresses, and neither podCIDRs nor pools.allocated nor spec.ipam.pool of its CiliumNode has any")
		}
		return
	}
	if len(n.NonCanonical) > 0 {
		p.block(n, OddKeys, "Write them in their canonical form in spec.ipam.pool", "spec.ipam.pool has %s in another form", some(n.NonCanonical))
	}
	if n.Paused != "" {
		p.block(n, NodePaused, "End the pause: the operator would publish nothing", "%s", n.Paused)
	}
	p.inUseOutside(n)
	p.inUseAtEdges(n)
	for _, f := range ipalloc.Families() {
		p.fits(n, f)
	}
	p.agent(n)
}

// inUseOutside warns of addresses in use outside the node's blocks: their pods are not restored
// when the agent starts in crd mode. Addresses in a CIDR that cannot be adopted are reported with
// it.
func (p *planner) inUseOutside(n *node) {
	var outside []netip.Addr
	for addr := range n.Used {
		if !n.covered(ipalloc.Single(addr)) && !ipalloc.Covered(ipalloc.Single(addr), n.AssignedCIDRs) && (n.From != CRD || !slices.Contains(n.Published, addr)) {
			outside = append(outside, addr)
		}
	}
	if len(outside) == 0 {
		return
	}
	slices.SortFunc(outside, netip.Addr.Compare)
	users := n.Used[outside[0]]
	for _, addr := range outside[1:min(len(outside), 5)] {
		users += ", " + n.Used[addr]
	}
	p.block(n, AddressOutside, "Move these pods to addresses of the node's own (delete them), then start",
		"%s (%s) in use, and in nothing that the node was given", some(outside), users)
}

// inUseAtEdges reports addresses in use that agents in multi-pool mode do not assign, and so do not
// restore: the first and the last of a CIDR of more than two (Cilium v1.20.1, pkg/ipam/pool.go).
func (p *planner) inUseAtEdges(n *node) {
	edge := func(a netip.Addr) bool {
		return slices.ContainsFunc(n.blocks, func(b Block) bool {
			return ipalloc.HostBits(b.CIDR) > 1 && b.CIDR.Contains(a) && (a == b.CIDR.Addr() || !b.CIDR.Contains(a.Next()))
		})
	}
	if !p.Whole {
		return
	}
	for _, a := range slices.SortedFunc(maps.Keys(n.Used), netip.Addr.Compare) {
		if edge(a) {
			p.block(n, EdgeAddress, "Delete that pod, then start", "%s has %s, the first or last address of a CIDR, which agents in multi-pool mode do not restore", n.Used[a], a)
		}
	}
}

// fits asks the operator's own decision whether the blocks are enough.
func (p *planner) fits(n *node, f ipalloc.Family) {
	state := expand.State{Node: n.Name, Family: f, Pods: n.Pods, Own: n.Own, Limits: n.Limits}
	addresses := 0
	assigned := []netip.Prefix(nil)
	for _, b := range sorted(n.blocks) {
		if ipalloc.FamilyOf(b.CIDR.Addr()) == f {
			block := p.listed(b)
			addresses += len(block.Usable)
			state.Blocks = append(state.Blocks, block)
			assigned = append(assigned, b.CIDR)
		}
	}
	if len(state.Blocks) == 0 {
		return
	}
	if p.Whole {
		state.BlockAssignment = &expand.BlockAssignment{Assigned: assigned}
	}
	i := slices.IndexFunc(n.Pools, func(pool *crd.Pool) bool { _, serves := pool.Ranges(f); return serves })
	if i < 0 {
		p.warn(n, NoPool, "Give a pool a nodeSelector that picks the node", "no pool serves it with %s: it keeps what it has, and cannot grow", f)
		return
	}
	ruling := n.Pools[i]
	policy := ruling.Policy
	if len(state.Blocks) > policy.MaxBlocks {
		p.warn(n, TooManyBlocks, "Raise expand.maxBlocksPerNode of pool "+ruling.Name,
			"it has %d %s blocks, and pool %s lets a node have %d: it keeps them, and cannot grow", len(state.Blocks), f, ruling.Name, policy.MaxBlocks)
	}
	if addresses > policy.MaxAddresses {
		p.warn(n, TooManyAddresses, "Raise --max-addresses-per-node of the operator",
			"its blocks have %d %s addresses, and a CiliumNode is given %d", addresses, f, policy.MaxAddresses)
	}
	plan, _ := expand.Decide(time.Time{}, policy, state, expand.Budget{}, expand.Memory{})
	if plan.Claim.Addresses == 0 && plan.Shortage == 0 {
		return
	}
	free := "unknown"
	if p.Free != nil {
		free = strconv.FormatUint(p.Free(ruling, f), 10)
	}
	p.warn(n, FreeSpace, "See that pool "+ruling.Name+" has free blocks",
		"it needs %d %s addresses and has %d: it gets another block as soon as it has moved (free in pool %s: %s)",
		plan.Demand, f, plan.Capacity, ruling.Name, free)
}

// listed returns a block with all that its pool lets pods have.
func (p *planner) listed(b Block) expand.Block {
	out := expand.Block{CIDR: b.CIDR, Listed: true}
	i := slices.IndexFunc(p.Pools, func(pool *crd.Pool) bool { return pool.Name == b.Pool })
	if i < 0 {
		return out
	}
	if p.Whole {
		out.Size = p.Pools[i].UsableCount(b.CIDR)
	} else {
		out.Usable = p.Pools[i].Usable(b.CIDR)
	}
	return out
}

// oldest is the oldest tested minor version of Cilium 1 (docs/contributing/release.md).
const oldest = 18

func (p *planner) agent(n *node) {
	if n.Agent == "" {
		p.warn(n, AgentMissing, "See to its agent first", "no agent is Ready on it")
		return
	}
	if minor, ok := MinorOf(n.Agent); !ok {
		p.warn(n, Version, "See docs/contributing/release.md for the tested versions", "the version of its agent is not known from image %s", n.Agent)
	} else if minor < oldest {
		p.warn(n, Version, "Upgrade Cilium first", "its agent is of Cilium 1.%d, which was not tried", minor)
	}
}

// MinorOf parses the minor version of an image such as quay.io/cilium/cilium:v1.20.1@sha256:...
func MinorOf(image string) (int, bool) {
	image, _, _ = strings.Cut(image, "@")
	_, tag, ok := strings.Cut(image[strings.LastIndexByte(image, '/')+1:], ":")
	parts := strings.Split(strings.TrimPrefix(tag, "v"), ".")
	if !ok || len(parts) < 2 || parts[0] != "1" {
		return 0, false
	}
	minor, err := strconv.Atoi(parts[1])
	return minor, err == nil
}

// settings compares the ConfigMap cilium-config with the needs of agents in the new mode
// (docs/modes.md). All settings can be changed along with the mode, except a cloud IPAM's.
func (p *planner) settings() {
	if p.Config == nil || p.Config.Data == nil {
		p.warn(nil, Settings, "Compare with docs/modes.md by hand", "ConfigMap cilium-config could not be read")
		return
	}
	switch mode := Source(p.Config.Data["ipam"]); mode {
	case ClusterPool, Kubernetes, MultiPool:
		p.rangesTooEarly(string(mode))
	case CRD:
		p.rangesMissing()
	case None:
		p.warn(nil, Settings, "Find out which IPAM mode agents run in", "cilium-config names no ipam")
	default:
		p.block(nil, Settings, "Only cluster-pool, kubernetes, multi-pool and crd mode can be left", "Cilium runs with ipam=%s", mode)
	}
	if p.Config.Data["enable-endpoint-routes"] != "true" && !p.Whole {
		p.warn(nil, Settings, "Set it together with ipam=crd; restart pods that an ingress NetworkPolicy is for once their node has moved",
			"enable-endpoint-routes is not true: in crd mode nodes would not reach their own pods. Once it is, pods that ran before are not held to ingress NetworkPolicies until they restart, where BPF host routing is off")
	}
	if p.Config.Data["enable-bpf-masquerade"] != "true" && (p.Config.Data["enable-ipv4-masquerade"] == "true" || p.Config.Data["enable-ipv6-masquerade"] == "true") {
		p.warn(nil, Settings, "Set it together with ipam, or switch masquerading off",
			"enable-bpf-masquerade is not true: in crd and multi-pool mode agents that masquerade with iptables do not start")
	}
	if p.Config.LosesRoutes() && !p.Whole {
		p.warn(nil, Settings, ciliumconfig.LosingRoutesFix, ciliumconfig.LosingRoutes)
	}
	p.masquerading()
}

func rangeKeys() [2]string { return [2]string{"ipv4-range", "ipv6-range"} }

func (p *planner) rangesTooEarly(mode string) {
	for _, key := range rangeKeys() {
		if v := p.Config.Data[key]; v != "" && v != "auto" {
			p.warn(nil, Settings, "Set it together with ipam=crd, not before", "%s is set: an agent that starts in %s mode assigns addresses of it", key, mode)
		}
	}
}

func (p *planner) rangesMissing() {
	for i, key := range rangeKeys() {
		enabled := p.Config.Data[[2]string{"enable-ipv4", "enable-ipv6"}[i]] == "true"
		if v := p.Config.Data[key]; enabled && (v == "" || v == "auto") {
			p.warn(nil, Settings, "Set it before agents restart (docs/modes.md has an unused range)",
				"%s is not set: in crd mode agents make one up, and what is in it cannot be reached from the node", key)
		}
	}
}

// masquerading warns of pools' ranges that would be masqueraded.
func (p *planner) masquerading() {
	for _, pool := range p.Pools {
		for _, m := range p.Config.Masqueraded(pool) {
			p.warn(nil, Settings, ciliumconfig.MasqueradedFix, "pool %s has %s", pool.Name, m)
		}
	}
}
