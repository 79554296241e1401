package scheduling

import (
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// Offering is a cluster with Nodes that offer addresses to the scheduler.
type Offering struct {
	State state.Cluster
	// Unscheduled are the pods to assign. State.Unscheduled is the same value.
	Unscheduled *Unscheduled
}

// Assignment determines which nodes should have room for the unscheduled pods that lack
// addresses.
type Assignment struct {
	SpreadResult
	// Candidates are the nodes that Expected refers to, sorted by Cilium pools and name.
	Candidates []Candidate
	// Needs are the needs of nodes.
	Needs map[NodeCiliumPool]NodeNeeds
	// Pods is the number of waiting pods.
	Pods int
	// FirstBlocks are the nodes that wait for their first block, by name.
	FirstBlocks []FirstBlock
	// Scarce are the pools of each family that pods or these nodes wait for and that have
	// no free block.
	Scarce [2]map[string]bool
	// RequeueAt is when to assign again even without a change; zero: never.
	RequeueAt time.Time
}

func (a *Assignment) sooner(t time.Time) {
	if a.RequeueAt.IsZero() || t.Before(a.RequeueAt) {
		a.RequeueAt = t
	}
}

// Assign assigns the unscheduled pods to nodes at now, and finds blocks for the nodes that have
// none. It records the free addresses of nodes: an address that stays unused although pods wait is
// of no use to them.
func (c *Offering) Assign(nodes []corev1.Node, now time.Time) Assignment {
	turnover := c.State.Ledger.Turnover() // first: blocks that move from here on may be seen twice or not at all
	kinds, next := c.Unscheduled.waiting(now)
	out := Assignment{RequeueAt: next, Needs: map[NodeCiliumPool]NodeNeeds{}}
	sorted := make([]*corev1.Node, len(nodes))
	for i := range nodes {
		sorted[i] = &nodes[i]
	}
	slices.SortFunc(sorted, func(a, b *corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	for len(kinds) > 0 { // pods of the same Cilium pools together
		n := 1
		for n < len(kinds) && kinds[n].ciliumPools == kinds[0].ciliumPools {
			n++
		}
		c.assign(&out, kinds[:n], sorted, now)
		kinds = kinds[n:]
	}
	c.Unscheduled.keepFree(out.Candidates)
	out.FirstBlocks = c.firstBlocks(&out, sorted, now)
	c.recall(&out, nodes, turnover, now)
	return out
}

// assign assigns pods that request addresses of the same Cilium pools.
func (c *Offering) assign(out *Assignment, kinds []waitingKind, nodes []*corev1.Node, now time.Time) {
	pods := make([]PodGroup, len(kinds))
	free := FreeBlocks{{}, {}}
	ciliumPools := kinds[0].ciliumPools
	var candidates []Candidate
	var bound [][2]int // requests of each candidate's bound pods
	for i, k := range kinds {
		pods[i] = PodGroup{Pods: k.pods, Requests: k.Addresses()}
		out.Pods += k.pods
	}
	for _, node := range nodes {
		started := c.WithoutStartupTaints(node)
		var suited []int
		for i := range kinds {
			if kinds[i].Suits(started) {
				suited = append(suited, i)
			}
		}
		if len(suited) == 0 {
			continue
		}
		candidate, requested, offers := c.candidate(node, ciliumPools, free, now)
		if !offers {
			continue
		}
		noted := c.Unscheduled.noteFree(&candidate, now)
		for _, i := range suited {
			if kinds[i].long && candidate.HasFree(pods[i].Requests) {
				unused := noted.unused(pods[i].Requests)
				if !now.Before(unused) {
					continue
				}
				out.sooner(unused)
			}
			pods[i].Suits = append(pods[i].Suits, len(candidates))
		}
		candidates = append(candidates, candidate)
		bound = append(bound, requested)
	}
	s := Spread(pods, candidates, free)
	for i, n := range s.Expected {
		if n == [2]int{} {
			continue
		}
		for f := range n {
			key := NodeCiliumPool{candidates[i].Node, ciliumPools[f]}
			needs := out.Needs[key]
			needs.Expected[f] += n[f]
			needs.Requested[f] = bound[i][f]
			out.Needs[key] = needs
		}
	}
	out.Candidates = append(out.Candidates, candidates...)
	out.Expected = append(out.Expected, s.Expected...)
	out.Missing = append(out.Missing, s.Missing...)
	out.Offered += s.Offered
	out.Growing += s.Growing
	out.Short += s.Short
}

// candidate returns the room of a Node for unscheduled pods that request addresses of Cilium pools,
// by family, the requests of its bound pods, and whether it offers any. It adds to free the pools that the Node claims from.
func (c *Offering) candidate(node *corev1.Node, ciliumPools [2]string, free FreeBlocks, now time.Time) (candidate Candidate, requested [2]int, offers bool) {
	s := c.State.Snapshot(node.Name, node, now)
	if s.CiliumNode == nil || s.Standing.IsMoving() {
		return candidate, requested, false
	}
	candidate.Node = s.Name
	candidate.CiliumPools = ciliumPools
	candidate.Pods = math.MaxInt
	candidate.Returns = s.CiliumNode.BlockAssignment != nil
	if most := state.MaxPods(node); most > 0 {
		candidate.Pods = most - len(s.Pods)
	}
	for i := range s.Shares {
		if share := &s.Shares[i]; share.CiliumPool == ciliumPools[share.Family] && share.State.RunsFamily() {
			offers = true
			c.addRoom(&candidate, share, free, now)
			addClaims(&candidate.Room[share.Family], candidate.PerBlock[share.Family], s.Claims[share.Family])
		}
	}
	for f, pool := range ciliumPools {
		requested[f] = state.RequestedBy(s.Pods, pool)[f]
	}
	return candidate, requested, offers
}

// addClaims adds to a room the blocks that its node is claiming: they are free no more, and
// not among its blocks yet.
func addClaims(room *expand.Room, perBlock, claims int) {
	for range min(claims, room.Blocks) {
		n := min(perBlock, room.Addresses)
		room.Back += n
		room.Addresses -= n
		room.Blocks--
	}
}

// addRoom adds a node's room of one family to a candidate.
func (c *Offering) addRoom(candidate *Candidate, share *state.Share, free FreeBlocks, now time.Time) {
	f := share.Family
	candidate.Room[f] = expand.RoomOf(now, share.Policy, share.State)
	if !share.Standing.MayChange() || len(share.Pools) == 0 {
		candidate.Room[f] = expand.Room{Free: candidate.Room[f].Free}
	}
	for _, pool := range share.Pools {
		cut, assigns := pool.Cut(f)
		if !assigns || pool.Paused {
			continue
		}
		candidate.Pools[f] = append(candidate.Pools[f], pool.Name)
		if _, known := free[f][pool.Name]; !known {
			free[f][pool.Name] = c.State.Ledger.Free(cut)
		}
		if candidate.PerBlock[f] == 0 {
			candidate.PerBlock[f] = pool.AddressesPerBlock(f)
		}
	}
}
