package state

import (
	"fmt"
	"iter"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// Cooldowns are the blocks that cool down and come back to their pool.
type Cooldowns struct {
	// Blocks is their number.
	Blocks int
	// First is when the first cooldown ends; zero if there is none.
	First time.Time
}

// CooldownsOf returns the cooldowns among the blocks of a pool that nodes can get again.
func CooldownsOf(pool *crd.Pool, f ipalloc.Family, blocks iter.Seq[crd.Block]) Cooldowns {
	var c Cooldowns
	for b := range blocks {
		if b.Phase != ipalloc.CoolingDown || ipalloc.FamilyOf(b.CIDR.Addr()) != f || !pool.Assigns(b.CIDR) {
			continue
		}
		c.Blocks++
		if ends := b.Since.Add(cooldownIn(pool, b)); c.First.IsZero() || ends.Before(c.First) {
			c.First = ends
		}
	}
	return c
}

// String describes the number of cooling blocks, and the time when the first is free again.
func (c Cooldowns) String() string {
	const free = "free again at %s at the earliest"
	at := c.First.UTC().Format(time.RFC3339)
	switch c.Blocks {
	case 0:
		return "no block cools down"
	case 1:
		return fmt.Sprintf("one block cools down, and is "+free, at)
	}
	return fmt.Sprintf("%d blocks cool down, and the first is "+free, c.Blocks, at)
}

func cooldownIn(pool *crd.Pool, b crd.Block) time.Duration {
	if b.Reason == expand.NodeGone {
		return pool.NodeGoneCooldown
	}
	return pool.Cooldown
}
