package main

import (
	"context"
	"fmt"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/test/harness"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant"
)

// askEvery is the interval at which agents that are assigned whole blocks are asked
// what they hold.
const askEvery = 2 * time.Second

// keepAsking asks agents until ctx ends. The invariant checker itself asks agents that are
// assigned addresses.
func (c *checker) keepAsking(ctx context.Context) {
	for c.whole != nil && harness.Sleep(ctx, askEvery) == nil {
		_ = c.askAgents(ctx) // etcd may be down; the next call tries again
	}
}

// askAgents checks once that agents hold only addresses of their blocks.
func (c *checker) askAgents(ctx context.Context) error {
	if c.whole == nil {
		return c.rules.AskAgents(ctx)
	}
	return c.whole.AskAgents(ctx, c.held, c.rules.Sync)
}

// quiet returns the writes during a period in which there should be none.
func (c *checker) quiet(ctx context.Context, period time.Duration) ([]invariant.Violation, error) {
	before := c.listsWritten()
	found, err := c.rules.Quiet(ctx, period)
	if n := c.listsWritten() - before; n > 0 {
		found = append(found, invariant.Violation{Rule: 8, Subject: "assigned blocks", Text: fmt.Sprintf("written %d times at rest", n)})
	}
	return found, err
}

func (c *checker) listsWritten() int {
	sum := 0
	if c.whole != nil {
		for _, n := range c.whole.Writes() {
			sum += n
		}
	}
	return sum
}
