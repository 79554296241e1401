package invariant

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

const (
	// lookEvery is the time that a version may wait before the idle kinds that hold it back are
	// asked for events.
	lookEvery = 200 * time.Millisecond
	// lookShare bounds the time spent on asking to 1/lookShare of the total.
	lookShare = 10
	// lookTimeout bounds one round of asking, as the API server may be down.
	lookTimeout = 5 * time.Second
)

// now returns the version of the newest write to the API server.
func (c *Checker) now(ctx context.Context) (uint64, error) {
	list := KindNode.newMetadataList()
	if err := c.client.List(ctx, list, client.Limit(1)); err != nil {
		return 0, fmt.Errorf("ask for the newest version: %w", err)
	}
	return strconv.ParseUint(list.ResourceVersion, 10, 64)
}

// catchUp waits until these kinds have delivered everything written before the call.
func (c *Checker) catchUp(ctx context.Context, which ...Kind) error {
	var all sync.WaitGroup
	errs := make([]error, len(which))
	for i, k := range which {
		all.Go(func() { errs[i] = c.streams[k].catchUp(ctx) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// keepUp keeps idle kinds from holding back the others.
func (c *Checker) keepUp(ctx context.Context) {
	rest := lookEvery
	for ctx.Err() == nil {
		if harness.Sleep(ctx, rest) != nil {
			return
		}
		c.mu.Lock()
		lagging := c.history.lagging()
		c.mu.Unlock()
		begin := time.Now()
		round, cancel := context.WithTimeout(ctx, lookTimeout)
		_ = c.catchUp(round, lagging...) // Else the next round.
		cancel()
		rest = max(lookEvery, lookShare*time.Since(begin))
	}
}

// gap records that a stream missed versions.
func (c *Checker) gap() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.Gaps++
}
