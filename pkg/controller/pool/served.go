package pool

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/pkg/suggest"
)

// servedNodes is how the nodes that a pool selects are served.
type servedNodes struct {
	// selected is the number of Nodes that the selector picks. If it picks none, unselected describes the labels
	// that come close.
	selected   int
	unselected string
	// nodesRead: the status depends on other labels than the pool's, which may change without an event of the pool.
	nodesRead bool
	// starving are the nodes that the pool selects, sorted, that report that their pods
	// wait and that no pool has a block for them.
	starving []string
	// next are the pools that nodes with a block of the pool turn to, best first; alone are
	// the nodes, sorted, that have no such pool.
	next  [2][]*crd.Pool
	alone [2][]string
	// withheld are the CiliumNodes that withhold blocks of the pool, most blocks first.
	withheld [2][]state.Withholder
}

// readServed reads how the Nodes that a pool selects are served.
func (r *Reconciler) readServed(ctx context.Context, pool *crd.Pool, families []state.FamilyUsage) (servedNodes, error) {
	var s servedNodes
	if pool == nil {
		return s, nil
	}
	nodes := &corev1.NodeList{}
	if err := r.Cache.List(ctx, nodes); err != nil {
		return s, fmt.Errorf("listing Nodes: %w", err)
	}
	s.selected = pool.CountSelected(nodes.Items)
	if s.selected == 0 && !pool.Selector.Empty() {
		s.unselected = pool.SelectsNone(nodes.Items)
		s.nodesRead = true
	}
	families = slices.DeleteFunc(slices.Clone(families), func(f state.FamilyUsage) bool { return f.Status.Blocks.Free > 0 })
	if len(families) > 0 && !pool.Deleting {
		r.readShort(&s, pool, families, nodes.Items)
	}
	return s, nil
}

// readShort reads how the nodes are served in the families in which the pool has no free block.
func (r *Reconciler) readShort(s *servedNodes, pool *crd.Pool, families []state.FamilyUsage, nodes []corev1.Node) {
	s.nodesRead = true
	holders := map[string]bool{}
	for b := range r.Ledger.PoolBlocks(pool.Name) {
		holders[b.Node] = true
	}
	pools := r.Pools.Serving(cmp.Or(pool.CiliumPool, crd.DefaultCiliumPool))
	for i := range nodes {
		node := &nodes[i]
		if !pool.Selects(labels.Set(node.Labels)) {
			continue
		}
		if state.Starves(node) {
			s.starving = append(s.starving, node.Name)
		}
		for _, f := range families {
			if holders[node.Name] {
				s.add(f.Family, node, pool, pools)
			}
		}
	}
	slices.Sort(s.starving)
	for _, f := range families {
		if cut, ok := pool.Cut(f.Family); ok {
			s.withheld[f.Family] = r.Ledger.Withholders(cut)
		}
	}
	for f := range s.next {
		slices.SortFunc(s.next[f], crd.ComparePools)
		slices.Sort(s.alone[f])
	}
}

// add records the pools that a node turns to where pool has no block.
func (s *servedNodes) add(f ipalloc.Family, node *corev1.Node, pool *crd.Pool, pools []*crd.Pool) {
	alone := true
	for _, p := range pools {
		_, assigns := p.Cut(f)
		if p.Name == pool.Name || !assigns || p.Paused || p.Deleting || !p.Selects(labels.Set(node.Labels)) {
			continue
		}
		alone = false
		if !slices.Contains(s.next[f], p) {
			s.next[f] = append(s.next[f], p)
		}
	}
	if alone {
		s.alone[f] = append(s.alone[f], node.Name)
	}
}

// otherPoolsWords describes the pools that nodes turn to; "" if no node has a block of the pool.
func (s *servedNodes) otherPoolsWords(f ipalloc.Family) string {
	next := s.next[f]
	alone := s.alone[f]
	if len(next)+len(alone) == 0 {
		return ""
	}
	if len(next) == 0 {
		return ". No other pool serves its nodes"
	}
	var names []string
	for _, p := range next {
		names = append(names, p.Name)
	}
	text := ". Nodes that need another block take one of pool " + suggest.FirstBy(" or ", state.NamedNodes, names) + ", if it has one"
	if len(alone) > 0 {
		text += fmt.Sprintf(", except %s, which no other pool serves", nodesLine(alone, len(alone)))
	}
	return text
}

// withheldWords describes the CiliumNodes that withhold blocks, with a leading blank; "": none.
func (s *servedNodes) withheldWords(f ipalloc.Family) string {
	var parts []string
	for _, w := range s.withheld[f][:min(len(s.withheld[f]), state.NamedNodes)] {
		parts = append(parts, fmt.Sprintf("CiliumNode %s withholds %d of its blocks", w.CiliumNode, w.Blocks))
	}
	if rest := len(s.withheld[f]) - state.NamedNodes; rest > 0 {
		parts = append(parts, fmt.Sprintf("%d more withhold others", rest))
	}
	if len(parts) == 0 {
		return ""
	}
	return ". " + strings.Join(parts, ", ") + ", by what it names outside the blocks of its node"
}

// starvingWords names a few of the nodes that starve; "": none. Their number changes all the time: kubectl cilium-pool
// status has it.
func (s *servedNodes) starvingWords() string {
	if len(s.starving) == 0 {
		return ""
	}
	nodes := strings.Join(s.starving[:min(len(s.starving), state.NamedNodes)], ", ")
	if len(s.starving) > state.NamedNodes {
		nodes += " and others"
	}
	return fmt.Sprintf("pods wait on %s, and no pool that selects these nodes has a free block", nodes)
}
