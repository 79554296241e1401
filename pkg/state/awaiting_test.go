package state

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// waitsFor returns IPv4 pools.
func waitsFor(names ...string) (pools [2][]*crd.Pool) {
	for _, name := range names {
		pools[ipalloc.IPv4] = append(pools[ipalloc.IPv4], &crd.Pool{Name: name})
	}
	return pools
}

// Freed blocks wake as many nodes as there are free blocks, starving nodes first, and each
// disappointed one makes place for the next.
func TestAwaiting(t *testing.T) {
	free, next := map[string]uint64{}, []string(nil)
	a := Awaiting{
		Free:    func(pool string, _ ipalloc.Family) uint64 { return free[pool] },
		Changed: func(nodes []string) { next = append(next, nodes...) },
	}
	// reconcile lets a node be reconciled, and take as many blocks of a.
	reconcile := func(node string, takes uint64) func() {
		return func() {
			a.Begin(node)
			if free["a"] -= takes; takes > 0 {
				a.Forget(node)
			}
			a.End(node)
		}
	}
	wake := func(pool string, f ipalloc.Family, n uint64) func() {
		return func() { free[pool] = n; next = a.Wake(f, []string{pool, "other"}) }
	}
	a.Set("reserve", true, false, waitsFor("a", "b"))
	for _, name := range []string{"x", "y", "z"} {
		a.Set(name, true, true, waitsFor("a"))
	}
	for _, step := range []struct {
		what string
		do   func()
		want []string
	}{
		{"a block of the other family", wake("a", ipalloc.IPv6, 1), nil},
		{"freed addresses that are no block", wake("a", ipalloc.IPv4, 0), nil},
		{"one block for four nodes", wake("a", ipalloc.IPv4, 1), []string{"x"}},
		{"another one", wake("a", ipalloc.IPv4, 2), []string{"y"}},
		{"x finds none that it can have", reconcile("x", 0), []string{"z"}},
		{"y takes one", reconcile("y", 1), nil},
		{"z finds none that it can have", reconcile("z", 0), []string{"reserve"}},
		{"so does the last: nobody is woken twice", reconcile("reserve", 0), nil},
		{"a block of another pool", wake("b", ipalloc.IPv4, 5), []string{"reserve"}},
		{"a block for x, which was first", wake("a", ipalloc.IPv4, 1), []string{"x"}},
		{"x takes it, and is gone", reconcile("x", 1), nil},
		{"blocks for all", wake("a", ipalloc.IPv4, 9), []string{"z"}},
		{"a block that is freed during its reconcile", func() {
			a.Begin("reserve")
			wake("b", ipalloc.IPv4, 6)()
			a.End("reserve")
		}, []string{"reserve"}},
	} {
		next = nil
		if step.do(); !slices.Equal(next, step.want) {
			t.Errorf("%s: woken are %v, want %v", step.what, next, step.want)
		}
	}
	if !a.Has("z") || a.Has("x") {
		t.Error("z waits, and x does not")
	}
}

// awaitingModel checks an Awaiting against all nodes, pools and blocks, one by one.
type awaitingModel struct {
	*testing.T
	*rand.Rand
	Awaiting
	free, freed map[string]int // blocks of each pool, and the last event that freed one
	events      int
	all         map[string]*modelNode
	log         []string
}

type modelNode struct {
	waits, starves      bool
	pools, wokenFor     []string
	queued, reconciling bool
	began               int
}

func (m *awaitingModel) pool() string { return []string{"a", "b", "c"}[m.IntN(3)] }

func (m *awaitingModel) subset(from ...string) []string {
	m.Shuffle(len(from), func(i, j int) { from[i], from[j] = from[j], from[i] })
	return from[:m.IntN(len(from)+1)]
}

// eligible returns the names of nodes that a free block of a pool could serve.
func (m *awaitingModel) eligible(pool string) (names []string) {
	for name, n := range m.all {
		if n.waits && !n.queued && !n.reconciling && slices.Contains(n.pools, pool) && n.began < m.freed[pool] {
			names = append(names, name)
		}
	}
	return names
}

// wokenNow checks nodes that are woken.
func (m *awaitingModel) wokenNow(names []string) {
	for _, name := range names {
		n := m.all[name]
		if n.queued || n.reconciling || !n.waits || n.began == m.events {
			m.Fatalf("%s is woken in vain: %+v\n%v", name, n, m.log)
		}
		n.queued, n.wokenFor = true, n.pools
	}
}

func (m *awaitingModel) freeBlock() {
	pool := m.pool()
	m.events++
	m.free[pool], m.freed[pool] = m.free[pool]+1, m.events
	names := m.Wake(ipalloc.IPv4, []string{pool})
	m.log = append(m.log, fmt.Sprintf("%s freed: %v", pool, names))
	m.wokenNow(names)
	starving := func(name string) bool { return m.all[name].starves }
	if len(names) > m.free[pool] || slices.ContainsFunc(m.eligible(pool), starving) && !slices.ContainsFunc(names, starving) && len(names) > 0 {
		m.Fatalf("%d free blocks of %s wake %v, others: %v\n%v", m.free[pool], pool, names, m.eligible(pool), m.log)
	}
}

// reconcile begins or ends a reconcile of a node, as others do meanwhile.
func (m *awaitingModel) reconcile(name string, outcome int) {
	n := m.all[name]
	m.log = append(m.log, fmt.Sprintf("%s reconciles: %t, then %d", name, !n.reconciling, outcome))
	if !n.reconciling {
		m.Begin(name)
		n.queued, n.reconciling, n.began = false, true, m.events
		return
	}
	switch outcome {
	case 0: // an error
	case 1: // it is gone, or has enough
		n.waits = false
		m.Forget(name)
	default:
		for _, pool := range n.pools {
			if n.waits && m.free[pool] > 0 && outcome == 2 {
				m.free[pool]--
				break
			}
		}
		n.waits, n.starves, n.pools = m.IntN(3) > 0, m.IntN(2) == 0, m.subset("a", "b", "c")
		m.Set(name, n.waits, n.starves, waitsFor(n.pools...))
	}
	n.reconciling, n.wokenFor = false, nil
	m.End(name)
}

// check fails if blocks are free for a node that is not woken, beyond the blocks that woken nodes
// may take.
func (m *awaitingModel) check() {
	for pool, free := range m.free {
		woken := 0
		for _, n := range m.all {
			if slices.Contains(n.wokenFor, pool) {
				woken++
			}
		}
		if lost := m.eligible(pool); len(lost) > 0 && woken < free {
			m.Fatalf("%d blocks of %s are free, %d nodes are woken for them, and %v are not\n%v", free, pool, woken, lost, m.log)
		}
	}
}

// With any behaviour of woken nodes, no node is lost: as long as blocks of a pool are free, and
// nodes have not looked since one was freed, as many nodes are woken. In the end the line is empty.
func TestAwaitingLosesNoNode(t *testing.T) {
	for seed := range uint64(300) {
		m := &awaitingModel{T: t, Rand: rand.New(rand.NewPCG(seed, 0)), free: map[string]int{}, freed: map[string]int{}, all: map[string]*modelNode{}}
		m.Free = func(pool string, _ ipalloc.Family) uint64 { return uint64(m.free[pool]) }
		m.Changed = m.wokenNow
		for i := range 1 + m.IntN(9) {
			m.all[fmt.Sprintf("n%d", i)] = &modelNode{}
		}
		names := slices.Sorted(maps.Keys(m.all))
		for range 300 {
			switch m.IntN(6) {
			case 0, 1:
				m.freeBlock()
			case 2:
				pool := m.pool()
				m.free[pool] = max(0, m.free[pool]-1)
			default:
				m.reconcile(names[m.IntN(len(names))], m.IntN(5))
			}
			m.check()
		}
		looks := 0
		for again := true; again; looks++ {
			again = false
			for _, name := range names {
				for n := m.all[name]; n.queued || n.reconciling; again = true {
					m.reconcile(name, 0)
				}
			}
			m.check()
		}
		if looks > len(names)+2 {
			t.Fatalf("%d nodes look %d times without any event", len(names), looks)
		}
		for _, name := range names {
			m.reconcile(name, 1)
			m.reconcile(name, 1)
		}
		if len(m.nodes)+len(m.Awaiting.freed)+len(m.woken) > 0 {
			t.Fatalf("left are nodes %v, and pools %v and %v", m.nodes, m.Awaiting.freed, m.woken)
		}
	}
}
