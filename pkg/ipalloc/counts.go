package ipalloc

// Counts are the numbers of a pool's blocks and nodes.
type Counts struct {
	// Blocks by Family.
	Blocks [2]PhaseCounts
	// Nodes is the number of nodes that hold a block of the pool, of either family and in any
	// phase.
	Nodes int
}

// PhaseCounts are numbers of blocks by Phase.
type PhaseCounts struct {
	InService, Draining, CoolingDown uint64
}

// Counts counts the blocks of a pool. No index helps: it visits every block of every pool.
func (s *Space) Counts(pool string) Counts {
	var c Counts
	nodes := map[string]struct{}{}
	for f := range s.tries {
		t := &s.tries[f]
		t.overlaps(prefix{}, byBlock, func(n *node, place uint8) bool {
			if o := t.owners.at(*t.ownerAt(n, place)); o.Pool == pool {
				c.Blocks[f].add(o.Phase)
				nodes[o.Node] = struct{}{}
			}
			return true
		})
	}
	c.Nodes = len(nodes)
	return c
}

func (c *PhaseCounts) add(p Phase) {
	switch p {
	case InService:
		c.InService++
	case Draining:
		c.Draining++
	case CoolingDown:
		c.CoolingDown++
	}
}
