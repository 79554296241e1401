// Package pacing spreads reclaims and drains over time.
package pacing

import (
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// turnWait is the minimum time that a node waits for a turn.
const turnWait = 10 * time.Second

// Pacing spreads reclaims and drains over the cluster and over each pool, so that a
// scale-down is not a storm of writes. It is safe for concurrent use.
type Pacing struct {
	// Changed, if set, is called with the nodes that should ask again whether they may
	// move.
	Changed func(nodes []string)

	mu      sync.Mutex
	cluster *rate.Limiter
	perPool float64
	pools   map[string]*rate.Limiter
	hours   map[string]*rate.Limiter
	// turns are the drains that were allowed to begin, with the pool that allowed each.
	turns map[state.ShareKey]map[netip.Prefix]string
	// moves are the nodes that may move off a pool, by pool, and waiting are the nodes that may not
	// yet.
	moves, waiting map[string]map[string]bool
}

// New returns a Pacing that allows this many reclaims per minute, in bursts of up to a
// tenth of that. 0 means no limit.
func New(clusterPerMinute, poolPerMinute int) *Pacing {
	return &Pacing{
		cluster: perMinute(float64(clusterPerMinute)),
		perPool: float64(poolPerMinute),
		pools:   map[string]*rate.Limiter{}, hours: map[string]*rate.Limiter{},
		turns: map[state.ShareKey]map[netip.Prefix]string{},
		moves: map[string]map[string]bool{}, waiting: map[string]map[string]bool{},
	}
}

func perMinute(n float64) *rate.Limiter {
	if n == 0 {
		return rate.NewLimiter(rate.Inf, 1)
	}
	return rate.NewLimiter(rate.Limit(n/60), max(1, int(n/10)))
}

// unlimited stands for no limit.
const unlimited = 1 << 20

// Budget returns the number of reclaims that a node may start now under its ruling pool. If the
// pool has used up its hour, it also returns the wait.
func (p *Pacing) Budget(pool *crd.Pool, now time.Time) (n int, wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n = min(tokens(p.cluster, now), tokens(p.pool(pool.Name), now))
	if hour := p.hour(pool, now); hour != nil {
		if n = min(n, tokens(hour, now)); tokens(hour, now) == 0 {
			wait = untilNext(hour, now)
		}
	}
	return n, wait
}

// Take uses up n reclaims, and reports whether that many were left.
func (p *Pacing) Take(pool *crd.Pool, n int, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	limiters := p.limiters(pool, now)
	for _, l := range limiters {
		if tokens(l, now) < n {
			return false
		}
	}
	for _, l := range limiters {
		l.AllowN(now, n)
	}
	return true
}

// Return returns n reclaims that were taken but did not begin because a write failed.
func (p *Pacing) Return(pool *crd.Pool, n int, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.limiters(pool, now) {
		l.AllowN(now, -n)
	}
}

func (p *Pacing) limiters(pool *crd.Pool, now time.Time) []*rate.Limiter {
	limiters := []*rate.Limiter{p.cluster, p.pool(pool.Name)}
	if hour := p.hour(pool, now); hour != nil {
		limiters = append(limiters, hour)
	}
	return limiters
}

// Turn allows a drain to begin, or returns the wait. A drain that has been allowed needs no further
// turn while it keeps its turn.
func (p *Pacing) Turn(w state.ShareKey, block netip.Prefix, pool *crd.Pool, now time.Time) (wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	hour := p.hour(pool, now)
	switch {
	case hour == nil || p.turns[w][block] != "":
		return 0
	case !hour.AllowN(now, 1):
		return untilNext(hour, now)
	}
	if p.turns[w] == nil {
		p.turns[w] = map[netip.Prefix]string{}
	}
	p.turns[w][block] = pool.Name
	return 0
}

// ReturnTurn returns the turn of a drain that has not begun and is no longer requested.
func (p *Pacing) ReturnTurn(w state.ShareKey, block netip.Prefix, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if hour := p.hours[p.turns[w][block]]; hour != nil {
		hour.AllowN(now, -1)
	}
	delete(p.turns[w], block)
}

// KeepTurns drops the turns of all blocks except these.
func (p *Pacing) KeepTurns(w state.ShareKey, blocks []netip.Prefix) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for block := range p.turns[w] {
		if !slices.Contains(blocks, block) {
			delete(p.turns[w], block)
		}
	}
	if len(p.turns[w]) == 0 {
		delete(p.turns, w)
	}
}

// Moves are the moves that have begun, whichever process allowed them.
type Moves interface {
	// MovingOff returns the number of nodes that move off a pool, and MovesOff whether a node does.
	MovingOff(pool string) int
	MovesOff(node, pool string) bool
}

// Move allows a node to move off a pool that no longer selects it, and reports whether it
// may.
func (p *Pacing) Move(node string, pool *crd.Pool, begun Moves) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	moves := p.moves[pool.Name]
	if !moves[node] && !begun.MovesOff(node, pool.Name) && !roomFor(pool, moves, begun) {
		return false
	}
	if moves == nil {
		moves = map[string]bool{}
		p.moves[pool.Name] = moves
	}
	moves[node] = true
	return true
}

// roomFor reports whether one more node may move off a pool. While the pool has no room,
// each node that waits asks again and again, so this case takes no walk.
func roomFor(pool *crd.Pool, moves map[string]bool, begun Moves) bool {
	moving := begun.MovingOff(pool.Name)
	if max(moving, len(moves)) >= pool.MaxUnselected {
		return false
	}
	for node := range moves {
		if !begun.MovesOff(node, pool.Name) {
			moving++
		}
	}
	return moving < pool.MaxUnselected
}

// KeepMoves ends the moves of a node off all pools except pools in may that it may move off now. It
// registers the node as waiting for the others in may.
func (p *Pacing) KeepMoves(node string, may map[string]bool) {
	p.mu.Lock()
	next := p.endMoves(node, may)
	for pool, moves := range may {
		if moves {
			continue
		}
		if p.waiting[pool] == nil {
			p.waiting[pool] = map[string]bool{}
		}
		p.waiting[pool][node] = true
	}
	p.mu.Unlock()
	p.wake(next)
}

// endMoves drops the records about the moves of a node, except moves off kept pools, and returns a
// waiting node for each place that this frees. The caller holds p.mu.
func (p *Pacing) endMoves(node string, kept map[string]bool) (next []string) {
	for _, waiting := range p.waiting {
		delete(waiting, node)
	}
	for pool, nodes := range p.moves {
		if !nodes[node] || kept[pool] {
			continue
		}
		delete(nodes, node)
		if first, some := firstOf(p.waiting[pool]); some {
			next = append(next, first)
			delete(p.waiting[pool], first) // it asks again
		}
	}
	return next
}

// firstOf returns the first node by name, and whether there is one.
func firstOf(nodes map[string]bool) (first string, some bool) {
	for node := range nodes {
		if !some || node < first {
			first, some = node, true
		}
	}
	return first, some
}

// wake makes nodes ask again. The caller does not hold p.mu.
func (p *Pacing) wake(nodes []string) {
	if len(nodes) > 0 && p.Changed != nil {
		slices.Sort(nodes)
		p.Changed(nodes)
	}
}

// ForgetNode drops the state of a deleted node.
func (p *Pacing) ForgetNode(node string) {
	p.mu.Lock()
	maps.DeleteFunc(p.turns, func(w state.ShareKey, _ map[netip.Prefix]string) bool { return w.Node == node })
	next := p.endMoves(node, nil)
	p.mu.Unlock()
	p.wake(next)
}

// ForgetPool drops the state of a deleted pool.
func (p *Pacing) ForgetPool(pool string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.pools, pool)
	delete(p.hours, pool)
	delete(p.moves, pool)
	delete(p.waiting, pool)
}

func (p *Pacing) pool(name string) *rate.Limiter {
	if p.pools[name] == nil {
		p.pools[name] = perMinute(p.perPool)
	}
	return p.pools[name]
}

// hour returns the limiter of drains that begin in a pool per hour, with a minute's worth
// as burst; nil: there is no limit.
func (p *Pacing) hour(pool *crd.Pool, now time.Time) *rate.Limiter {
	n := pool.Maintenance.BlocksPerHour
	if n == 0 {
		delete(p.hours, pool.Name)
		return nil
	}
	limit, burst := rate.Limit(float64(n)/3600), max(1, n/60)
	l := p.hours[pool.Name]
	switch {
	case l == nil:
		l = rate.NewLimiter(limit, burst)
		p.hours[pool.Name] = l
	case l.Limit() != limit:
		l.SetLimitAt(now, limit)
		l.SetBurstAt(now, burst)
	}
	return l
}

// untilNext returns the time until an exhausted limiter allows one more.
func untilNext(l *rate.Limiter, now time.Time) time.Duration {
	missing := 1 - l.TokensAt(now)
	return max(turnWait, time.Duration(missing/float64(l.Limit())*float64(time.Second)))
}

func tokens(l *rate.Limiter, now time.Time) int {
	if l.Limit() == rate.Inf {
		return unlimited
	}
	return int(l.TokensAt(now))
}
