package controller

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Pacing spreads reclaims out, over the cluster and over each pool, so that a
// scale-down is not a storm of writes. It is safe for concurrent use.
type Pacing struct {
	mu      sync.Mutex
	cluster *rate.Limiter
	perPool float64
	pools   map[string]*rate.Limiter
}

// NewPacing allows so many reclaims a minute, with a tenth of a minute's worth
// at once. 0 is no limit.
func NewPacing(clusterPerMinute, poolPerMinute int) *Pacing {
	return &Pacing{
		cluster: perMinute(float64(clusterPerMinute)),
		perPool: float64(poolPerMinute),
		pools:   map[string]*rate.Limiter{},
	}
}

func perMinute(n float64) *rate.Limiter {
	if n == 0 {
		return rate.NewLimiter(rate.Inf, 1)
	}
	return rate.NewLimiter(rate.Limit(n/60), max(1, int(n/10)))
}

// unlimited stands for as many as anybody can want.
const unlimited = 1 << 20

// Budget is how many reclaims of blocks of the pool may start now.
func (p *Pacing) Budget(pool string, now time.Time) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return min(tokens(p.cluster, now), tokens(p.pool(pool), now))
}

// Take uses up n reclaims, and reports whether there were as many.
func (p *Pacing) Take(pool string, n int, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if min(tokens(p.cluster, now), tokens(p.pool(pool), now)) < n {
		return false
	}
	return p.cluster.AllowN(now, n) && p.pool(pool).AllowN(now, n)
}

func (p *Pacing) pool(name string) *rate.Limiter {
	if p.pools[name] == nil {
		p.pools[name] = perMinute(p.perPool)
	}
	return p.pools[name]
}

func tokens(l *rate.Limiter, now time.Time) int {
	if l.Limit() == rate.Inf {
		return unlimited
	}
	return int(l.TokensAt(now))
}
