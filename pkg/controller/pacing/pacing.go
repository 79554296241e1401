// Package pacing spreads reclaims and drains over time.
package pacing

import (
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

const (
	// turnWait is the minimum time that a node waits for a ticket.
	turnWait = 10 * time.Second
	// moveWait is the time until a node asks again for a place among the nodes that move off a
	// pool, unless another one has moved and makes it ask.
	moveWait = time.Minute
	// placeWait is the time that a node keeps its place before its move begins, if others wait.
	placeWait = 10 * time.Minute
	// unlimited stands for no limit.
	unlimited = 1 << 20
)

// Pacing hands out tickets, so that a scale-down is not a storm of writes. A block needs one to
// begin a reclaim or a requested drain, and a node needs a place to move off a pool that no longer
// selects it. It is safe for concurrent use.
type Pacing struct {
	// Changed, if set, is called with the nodes that should ask again whether they may
	// move.
	Changed func(nodes []string)

	mu      sync.Mutex
	cluster *rate.Limiter
	perPool int
	pools   map[string]*poolTickets
	// tickets are the limiters behind each ticket, by node and block. A drain keeps its ticket
	// until it begins, or until GiveBack returns it.
	tickets map[string]map[netip.Prefix][]*rate.Limiter
}

// poolTickets are the limits of one pool.
type poolTickets struct {
	// minute limits reclaims, hour all drains, with a minute's worth as burst. A nil hour is no limit.
	minute, hour *rate.Limiter
	// moving are the nodes that may move off the pool, with the end of placeWait.
	moving map[string]time.Time
	// waiting are the nodes that may not move off the pool yet.
	waiting map[string]bool
}

// Moves are the moves that have begun, whichever process allowed them.
type Moves interface {
	// MovingOff returns the number of nodes that move off a pool, and MovesOff whether a node does.
	MovingOff(pool string) int
	MovesOff(node, pool string) bool
}

// New returns a Pacing that allows this many reclaims per minute, in bursts of up to a
// tenth of that. 0 means no limit.
func New(clusterPerMinute, poolPerMinute int) *Pacing {
	return &Pacing{
		cluster: perMinute(clusterPerMinute), perPool: poolPerMinute,
		pools: map[string]*poolTickets{}, tickets: map[string]map[netip.Prefix][]*rate.Limiter{},
	}
}

func perMinute(n int) *rate.Limiter {
	if n == 0 {
		return rate.NewLimiter(rate.Inf, 1)
	}
	return rate.NewLimiter(rate.Limit(float64(n)/60), max(1, n/10))
}

// DrainBudgets returns which requested drains each share of a node may begin now, and takes tickets for them: see
// ReserveReclaims for its reclaims. Settle comes first. poolOf returns the pool of a block, or nil.
func (p *Pacing) DrainBudgets(node string, shares []state.Share, begun Moves, poolOf func(netip.Prefix) *crd.Pool, now time.Time) []expand.Budget {
	p.mu.Lock()
	budgets := make([]expand.Budget, len(shares))
	moves := map[string]bool{} // by pool, whether the node may move off it
	for i := range shares {
		share := &shares[i]
		budget := &budgets[i]
		for j := range share.State.Blocks {
			b := &share.State.Blocks[j]
			if !share.Standing.MayChange() || b.Request == expand.None || b.Delay.Reason != "" { // a held drain takes no other's place
				continue
			}
			if pool := poolOf(b.CIDR); pool != nil {
				p.pace(node, b, pool, budget, moves, begun, now)
			}
		}
	}
	next := p.endMoves(node, moves)
	p.mu.Unlock()
	p.wake(next)
	return budgets
}

// pace holds a requested drain back until its node has a place to move, and until its turn.
func (p *Pacing) pace(node string, b *expand.Block, pool *crd.Pool, budget *expand.Budget, moves map[string]bool, begun Moves, now time.Time) {
	if b.Request == expand.NodeUnselected && b.Phase != ipalloc.CoolingDown && !p.placeFor(node, pool, moves, begun, now) {
		if b.Phase == ipalloc.Draining { // as it is idle, until its turn comes
			budget.Unrequest(b.CIDR)
		} else {
			budget.Postpone(b.CIDR, expand.Obstacle{Reason: expand.WaitNodes, Until: now.Add(moveWait)})
		}
		return
	}
	if !state.MayWait(b) {
		return
	}
	if delay := p.turn(node, b.CIDR, pool, now); delay.Reason != "" {
		budget.Postpone(b.CIDR, delay)
	}
}

// Settle ends the tickets of a node for drains that have begun, and returns those for drains that
// have not and are no longer requested.
func (p *Pacing) Settle(node string, shares []state.Share, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for cidr, limiters := range p.tickets[node] {
		keeps := false
		for i := range shares {
			j := slices.IndexFunc(shares[i].State.Blocks, func(b expand.Block) bool { return b.CIDR == cidr })
			if j < 0 {
				continue
			}
			b := &shares[i].State.Blocks[j]
			keeps = !shares[i].Standing.MayChange() || state.MayWait(b)
			if !keeps && b.Phase == ipalloc.InService {
				giveBack(limiters, 1, now)
			}
		}
		if !keeps {
			p.drop(node, cidr)
		}
	}
}

func take(limiters []*rate.Limiter, n int, now time.Time) {
	if n == 0 { // it would round the limiters' times
		return
	}
	for _, l := range limiters {
		l.AllowN(now, n)
	}
}

func giveBack(limiters []*rate.Limiter, n int, now time.Time) { take(limiters, -n, now) }

func (p *Pacing) drop(node string, block netip.Prefix) {
	if delete(p.tickets[node], block); len(p.tickets[node]) == 0 {
		delete(p.tickets, node)
	}
}

func (p *Pacing) add(node string, block netip.Prefix, limiters []*rate.Limiter) {
	if p.tickets[node] == nil {
		p.tickets[node] = map[netip.Prefix][]*rate.Limiter{}
	}
	p.tickets[node][block] = limiters
}

// turn hands a ticket to a requested drain that has none, or returns its delay until there is one.
func (p *Pacing) turn(node string, block netip.Prefix, pool *crd.Pool, now time.Time) expand.Obstacle {
	hour := p.pool(pool, now).hour
	if hour == nil || p.tickets[node][block] != nil {
		return expand.Obstacle{}
	}
	if !hour.AllowN(now, 1) {
		return expand.Obstacle{Reason: expand.WaitTurn, Until: now.Add(untilNext(hour, now))}
	}
	p.add(node, block, []*rate.Limiter{hour})
	return expand.Obstacle{}
}

// PeekReclaims returns the number of reclaims that a node may start now under its ruling pool. If the
// pool has used up its hour, it also returns the wait.
func (p *Pacing) PeekReclaims(pool *crd.Pool, now time.Time) (n int, wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.peekReclaims(pool, now)
}

func (p *Pacing) peekReclaims(pool *crd.Pool, now time.Time) (n int, wait time.Duration) {
	n = unlimited
	for _, limiter := range p.reclaimLimiters(pool, now) {
		n = min(n, tokens(limiter, now))
	}
	if hour := p.pool(pool, now).hour; hour != nil && tokens(hour, now) == 0 {
		wait = untilNext(hour, now)
	}
	return n, wait
}

// ReserveReclaims takes tickets for the reclaims that a share of a node may start, and no more than most. If its ruling
// pool has used up its hour, it also returns the delay. The share decides at once, and SpendReclaims returns the
// tickets that it does not use: until then no other one has them.
func (p *Pacing) ReserveReclaims(share *state.Share, most int, now time.Time) (int, expand.Obstacle) {
	if len(share.State.Blocks) == 0 || len(share.Pools) == 0 || share.State.ReclaimDelay.Reason != "" {
		return 0, expand.Obstacle{}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	n, wait := p.peekReclaims(share.Pools[0], now)
	n = min(n, most)
	take(p.reclaimLimiters(share.Pools[0], now), n, now)
	if wait > 0 {
		return n, expand.Obstacle{Reason: expand.WaitTurn, Until: now.Add(wait)}
	}
	return n, expand.Obstacle{}
}

// SpendReclaims hands reserved tickets to the reclaims of blocks under a node's ruling pool, and returns the others.
func (p *Pacing) SpendReclaims(node string, reserved int, blocks []netip.Prefix, pool *crd.Pool, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	limiters := p.reclaimLimiters(pool, now)
	giveBack(limiters, reserved-len(blocks), now)
	for _, block := range blocks {
		p.add(node, block, limiters)
	}
}

// reclaimLimiters are the limiters of reclaims under a ruling pool.
func (p *Pacing) reclaimLimiters(pool *crd.Pool, now time.Time) []*rate.Limiter {
	tickets := p.pool(pool, now)
	limiters := []*rate.Limiter{p.cluster, tickets.minute}
	if tickets.hour != nil {
		limiters = append(limiters, tickets.hour)
	}
	return limiters
}

// KeepPlace reports whether a node still has its place to move off a pool. If so, it keeps the place for
// the write that begins the move.
func (p *Pacing) KeepPlace(node, pool string, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pools[pool] == nil || p.pools[pool].moving[node].IsZero() {
		return false
	}
	p.pools[pool].moving[node] = now.Add(placeWait)
	return true
}

// Begun ends the ticket of a drain that a write may have begun, although the watch may not show it yet.
func (p *Pacing) Begun(node string, block netip.Prefix) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drop(node, block)
}

// placeFor reports whether a node may move off a pool. A node keeps its place from before its first block
// drains until its last one has left, unless GiveBack returns it, or the move does not begin within placeWait.
func (p *Pacing) placeFor(node string, pool *crd.Pool, moves map[string]bool, begun Moves, now time.Time) bool {
	allowed, known := moves[pool.Name]
	if !known {
		allowed = p.takePlace(node, pool, begun, now)
		moves[pool.Name] = allowed
	}
	return allowed
}

// takePlace reports whether a node has a place among the nodes that move off a pool, or assigns it one
// if there is room.
func (p *Pacing) takePlace(node string, pool *crd.Pool, begun Moves, now time.Time) bool {
	tickets := p.pool(pool, now)
	if !tickets.moving[node].IsZero() {
		return true
	}
	if !begun.MovesOff(node, pool.Name) && !tickets.makeRoom(pool, begun, now) {
		tickets.waiting[node] = true
		return false
	}
	tickets.moving[node] = now.Add(placeWait)
	delete(tickets.waiting, node)
	return true
}

// makeRoom reports whether another node may move off a pool. If need be, it takes the place of a node
// whose move has not begun within placeWait. While as many moves have begun as may, each node that
// waits asks again and again, so this case takes no walk.
func (t *poolTickets) makeRoom(pool *crd.Pool, begun Moves, now time.Time) bool {
	n := begun.MovingOff(pool.Name)
	unused := ""
	if n >= pool.MaxUnselected {
		return false
	}
	for node, deadline := range t.moving {
		if begun.MovesOff(node, pool.Name) {
			continue
		}
		n++
		if !now.Before(deadline) && (unused == "" || node < unused) {
			unused = node
		}
	}
	if n >= pool.MaxUnselected && unused != "" {
		delete(t.moving, unused)
		n--
	}
	return n < pool.MaxUnselected
}

// endMoves drops the records about the moves of a node, except moves off kept pools, and returns a
// waiting node for each place that this frees. The caller holds p.mu.
func (p *Pacing) endMoves(node string, moves map[string]bool) (next []string) {
	for name, pool := range p.pools {
		if _, moving := moves[name]; moving {
			continue
		}
		delete(pool.waiting, node)
		if pool.moving[node].IsZero() {
			continue
		}
		delete(pool.moving, node)
		if first, ok := firstOf(pool.waiting); ok {
			next = append(next, first)
			delete(pool.waiting, first) // it asks again
		}
	}
	return next
}

// firstOf returns the first node by name, and whether there is one.
func firstOf(nodes map[string]bool) (first string, ok bool) {
	for node := range nodes {
		if !ok || node < first {
			first = node
			ok = true
		}
	}
	return first, ok
}

// wake makes nodes ask again. The caller does not hold p.mu.
func (p *Pacing) wake(nodes []string) {
	if len(nodes) > 0 && p.Changed != nil {
		slices.Sort(nodes)
		p.Changed(nodes)
	}
}

// GiveBack returns the tickets and places of a node that cannot use them now, or is gone: others may
// proceed meanwhile. Moves that have begun count on.
func (p *Pacing) GiveBack(node string, now time.Time) {
	p.mu.Lock()
	for _, limiters := range p.tickets[node] {
		giveBack(limiters, 1, now)
	}
	delete(p.tickets, node)
	next := p.endMoves(node, nil)
	p.mu.Unlock()
	p.wake(next)
}

// ForgetPool drops the state of a deleted pool.
func (p *Pacing) ForgetPool(pool string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.pools, pool)
}

// pool returns the limits of a pool.
func (p *Pacing) pool(pool *crd.Pool, now time.Time) *poolTickets {
	tickets := p.pools[pool.Name]
	if tickets == nil {
		tickets = &poolTickets{minute: perMinute(p.perPool), moving: map[string]time.Time{}, waiting: map[string]bool{}}
		p.pools[pool.Name] = tickets
	}
	n := pool.Maintenance.BlocksPerHour
	limit := rate.Limit(float64(n) / 3600)
	burst := max(1, n/60)
	switch {
	case n == 0:
		tickets.hour = nil
	case tickets.hour == nil:
		tickets.hour = rate.NewLimiter(limit, burst)
	case tickets.hour.Limit() != limit:
		tickets.hour.SetLimitAt(now, limit)
		tickets.hour.SetBurstAt(now, burst)
	}
	return tickets
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
