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

// Cluster is a cluster with Nodes that offer addresses to the scheduler.
type Cluster struct {
	state.Cluster
	// Unscheduled is that of state.Cluster.
	Unscheduled *Unscheduled
}

// Assignment determines which nodes should have room for the unscheduled pods that lack
// addresses.
type Assignment struct {
	Spreading
	// Candidates are the nodes that Expected refers to, sorted by name.
	Candidates []Candidate
	// Needs are the needs of nodes, by name.
	Needs map[string]NodeNeeds
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
func (c *Cluster) Assign(nodes []corev1.Node, now time.Time) Assignment {
	turnover := c.Ledger.Turnover() // first: blocks that move from here on may be seen twice or not at all
	kinds, again := c.Unscheduled.waiting(now)
	out, pods, free := Assignment{RequeueAt: again}, make([]Group, len(kinds)), FreeBlocks{{}, {}}
	var bound [][2]int // requests of each candidate's bound pods
	for i, k := range kinds {
		pods[i] = Group{Pods: k.pods, Requests: k.Addresses()}
		out.Pods += k.pods
	}
	sorted := make([]*corev1.Node, len(nodes))
	for i := range nodes {
		sorted[i] = &nodes[i]
	}
	slices.SortFunc(sorted, func(a, b *corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	for _, node := range sorted {
		arrived := c.Arrived(node)
		var suited []int
		for i := range kinds {
			if kinds[i].Suits(arrived) {
				suited = append(suited, i)
			}
		}
		if len(suited) == 0 {
			continue
		}
		candidate, requested, offers := c.candidate(node, free, now)
		if !offers {
			continue
		}
		unused := c.Unscheduled.noteFree(node.Name, [2]int{candidate.Room[0].Free, candidate.Room[1].Free}, now).Add(unusedFor)
		for _, i := range suited {
			if kinds[i].long && candidate.HasFree(pods[i].Requests) {
				if !now.Before(unused) {
					continue
				}
				out.sooner(unused)
			}
			pods[i].Suits = append(pods[i].Suits, len(out.Candidates))
		}
		out.Candidates = append(out.Candidates, candidate)
		bound = append(bound, requested)
	}
	c.Unscheduled.keepFree(out.Candidates)
	out.Spreading = Spread(pods, out.Candidates, free)
	out.Needs = map[string]NodeNeeds{}
	for i, n := range out.Expected {
		if n != [2]int{} {
			out.Needs[out.Candidates[i].Node] = NodeNeeds{Expected: n, Requested: bound[i]}
		}
	}
	out.FirstBlocks = c.firstBlocks(&out, sorted, now)
	c.recall(&out, nodes, turnover, now)
	return out
}

// candidate returns the room of a Node for unscheduled pods, the requests of its bound pods, and
// whether it offers any addresses. It adds to free the pools that the Node claims from.
func (c *Cluster) candidate(node *corev1.Node, free FreeBlocks, now time.Time) (is Candidate, requested [2]int, offers bool) {
	s := c.Snapshot(node.Name, node, now)
	if s.CiliumNode == nil || s.OtherIPAM || s.Adopting {
		return is, requested, false
	}
	is.Node, is.Pods = s.Name, math.MaxInt
	if most := state.MaxPods(node); most > 0 {
		is.Pods = most - len(s.Pods)
	}
	for i := range s.Shares {
		if share := &s.Shares[i]; !share.State.FamilyDisabled {
			offers = true
			c.addRoom(&is, share, free, now)
			addClaims(&is.Room[share.Family], is.PerBlock[share.Family], s.Claims[share.Family])
		}
	}
	return is, state.RequestedBy(s.Pods), offers
}

// addClaims adds to a room the blocks that its node is claiming: they are free no more, and
// not among its blocks yet.
func addClaims(room *expand.Room, perBlock, claims int) {
	for range min(claims, room.Blocks) {
		n := min(perBlock, room.Addresses)
		room.Back, room.Addresses, room.Blocks = room.Back+n, room.Addresses-n, room.Blocks-1
	}
}

// addRoom adds a node's room of one family to a candidate.
func (c *Cluster) addRoom(is *Candidate, share *state.Share, free FreeBlocks, now time.Time) {
	f := share.Family
	is.Room[f] = expand.RoomOf(now, share.Policy, share.State)
	if share.Paused != "" || len(share.Pools) == 0 {
		is.Room[f] = expand.Room{Free: is.Room[f].Free}
	}
	for _, pool := range share.Pools {
		cut, assigns := pool.Cut(f)
		if !assigns || pool.Paused {
			continue
		}
		is.Pools[f] = append(is.Pools[f], pool.Name)
		if _, known := free[f][pool.Name]; !known {
			free[f][pool.Name] = c.Ledger.Free(cut)
		}
		if is.PerBlock[f] == 0 {
			is.PerBlock[f] = pool.AddressesPerBlock(f)
		}
	}
}
