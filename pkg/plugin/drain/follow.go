package drain

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cli"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cluster"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/list"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/output"
)

// follow prints the obstacles to the target's blocks, one line per change, and with --evict evicts
// pods, until every block of the target cools down, or the remaining ones wait for user action.
func follow(ctx context.Context, e *cli.Env, t target, f flags) error {
	w := &follower{env: e, target: t, flags: f, printed: map[string]string{}}
	return repeat(ctx, e, f, w.look, w.stopped)
}

// repeat reads the cluster every f.every and passes it to look, until that reports the end of
// the wait or fails. stopped returns the error of a wait that ended early.
func repeat(
	ctx context.Context, e *cli.Env, f flags, look func(context.Context, *cluster.Cluster) (done bool, err error), stopped func() error,
) error {
	reading := ctx // the first read may outlast the timeout, so that there is something to print
	if f.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, f.timeout)
		defer cancel()
	}
	for {
		c, err := e.Read(reading)
		if err != nil && reading.Err() == nil {
			return err
		}
		reading = ctx
		if err == nil {
			if done, err := look(ctx, c); done || err != nil && ctx.Err() == nil {
				return err
			}
		}
		if e.Sleep(ctx, max(f.every, time.Second)) != nil {
			return stopped()
		}
	}
}

// follower is the memory of follow between two looks at the cluster.
type follower struct {
	env     *cli.Env
	target  target
	flags   flags
	printed map[string]string // by block
	evicter *evicter
}

// look prints the changes, and evicts pods. It reports whether the wait is over.
func (w *follower) look(ctx context.Context, c *cluster.Cluster) (done bool, err error) {
	left := leavingRows(c, w.target)
	printChanges(w.env, w.printed, left)
	if len(left) == 0 {
		fmt.Fprintf(w.env.Out, "%s is drained\n", w.target.what)
		return true, nil
	}
	if w.flags.evict {
		if w.evicter == nil {
			w.evicter = newEvicter(w.env, c.Client, w.flags)
		}
		pods := podsIn(c, draining(left))
		if err := w.evicter.step(ctx, pods); err != nil {
			return false, err
		}
		left = w.evicter.needsPeople(left, pods)
	}
	if !slices.ContainsFunc(left, func(r list.BlockRow) bool { return r.NeedsAction == "" }) {
		printAdvice(w.env, w.target, left)
		return true, output.NotReached
	}
	return false, nil
}

// stopped returns the error of a wait that was not completed.
func (w *follower) stopped() error {
	goesOn := "It goes on without this command"
	if w.flags.evict {
		goesOn += ", and no more pods are evicted: call it again for that"
	}
	return fmt.Errorf("%s still drains: %s left. %s", w.target.what, output.Count(len(w.printed), "block"), goesOn)
}

// printChanges prints the changes since the last call.
func printChanges(e *cli.Env, printed map[string]string, left []list.BlockRow) {
	now := map[string]bool{}
	for _, r := range left {
		line := fmt.Sprintf("%s on %s: %d of %d addresses in use", r.Block, r.Node, r.Used, r.Addresses)
		switch r.Phase {
		case ipalloc.InService.String():
			line += ", still in service"
		case ipalloc.CoolingDown.String():
			line += ", cools down"
		}
		if r.WaitsFor != "" {
			line += ", waits for " + r.WaitsFor
		}
		now[r.Block] = true
		if printed[r.Block] != line {
			printed[r.Block] = line
			fmt.Fprintln(e.Out, "  "+strings.TrimSpace(line))
		}
	}
	for block := range printed {
		if !now[block] {
			delete(printed, block)
			fmt.Fprintf(e.Out, "  %s has left its node\n", block)
		}
	}
}

// printAdvice prints advice about blocks that do not leave on their own.
func printAdvice(e *cli.Env, t target, left []list.BlockRow) {
	nodes := map[string][]string{} // by action
	for _, r := range left {
		if !slices.Contains(nodes[r.NeedsAction], r.Node) {
			nodes[r.NeedsAction] = append(nodes[r.NeedsAction], r.Node)
		}
	}
	fmt.Fprintf(e.ErrOut, "%s still drains: %s left, and waiting longer does not help.\n", t.what, output.Count(len(left), "block"))
	for _, action := range slices.Sorted(maps.Keys(nodes)) {
		fmt.Fprintf(e.ErrOut, "  %s: %s\n", output.Few(slices.Sorted(slices.Values(nodes[action]))), action)
	}
}
