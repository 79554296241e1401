package pool

import (
	"fmt"
	"math"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// agentOwn is how many addresses an agent uses itself: router and health endpoint.
const agentOwn = 2

// Room returns how many more nodes fit into the free blocks of one family of a pool.
func Room(pool *crd.Pool, f ipalloc.Family, free int64) int64 { return free / blocksPerNode(pool, f) }

// blocksPerNode is how many blocks the operator claims for a new node, for the
// addresses of its agent and what its policy keeps free.
func blocksPerNode(pool *crd.Pool, f ipalloc.Family) int64 {
	ranges, ok := pool.Ranges(f)
	if !ok {
		return 1
	}
	empty := expand.State{Family: f}
	for i := range agentOwn {
		empty.Pods = append(empty.Pods, expand.Pod{Name: fmt.Sprint(i)})
	}
	plan, _ := expand.Decide(time.Time{}, pool.Policy, empty, expand.Memory{})
	blocks := math.Ceil(float64(plan.Claim.Addresses) / usableSize(pool, f, ranges.Bits))
	return max(1, min(int64(blocks), int64(plan.Claim.Blocks)))
}

// setRoom writes the smallest room of the pool's families into a status, and into metrics.
func (m *Metrics) setRoom(obj *v1alpha1.PodIPPool, pool *crd.Pool, u poolUsage) {
	obj.Status.RoomNodes = nil
	for _, fu := range u.families {
		room := Room(pool, fu.family, fu.status.Blocks.Free)
		m.room.WithLabelValues(obj.Name, fu.family.String()).Set(float64(room))
		if s := &obj.Status; s.RoomNodes == nil || room < *s.RoomNodes {
			s.RoomNodes = &room
		}
	}
}
