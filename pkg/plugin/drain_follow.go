package plugin

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// confirmNow asks before blocks are deleted, which has no way back.
func confirmNow(e *env, t drainTarget, rows []blockRow, yes bool) error {
	if yes || t.block != nil || len(rows) == 0 {
		return nil
	}
	return e.confirm(fmt.Sprintf("--now deletes %s of %s, and --undo does not bring them back.", count(len(rows), "PodIPBlock"), t.what))
}

// followDrain shows what is in the way, a line for each change, until every block of
// the target cools down, or those left wait for user action.
func followDrain(ctx context.Context, e *env, t drainTarget, f drainFlags) error {
	reading := ctx // the first read may take its time, so that there is something to tell
	if f.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, f.timeout)
		defer cancel()
	}
	tick := time.NewTicker(max(f.every, time.Second))
	defer tick.Stop()
	told := map[string]string{}
	for {
		c, err := e.read(reading)
		if err != nil && reading.Err() == nil {
			return err
		}
		reading = ctx
		if err == nil {
			left := leavingRows(c, t)
			printChanges(e, told, left)
			if len(left) == 0 {
				fmt.Fprintf(e.Out, "%s is drained\n", t.what)
				return nil
			}
			if !slices.ContainsFunc(left, func(r blockRow) bool { return r.NeedsAction == "" }) {
				printAdvice(e, t, left)
				return ExitCode(exitNotReached)
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s still drains: %s left. It goes on without this command", t.what, count(len(told), "block"))
		case <-tick.C:
		}
	}
}

// printChanges prints what has changed since it printed last.
func printChanges(e *env, told map[string]string, left []blockRow) {
	now := map[string]bool{}
	for _, r := range left {
		line := fmt.Sprintf("%s on %s: %d of %d addresses in use", r.Block, r.Node, r.Used, r.Addresses)
		if r.Phase == ipalloc.InService.String() {
			line += ", still in service"
		}
		if r.WaitsFor != "" {
			line += ", waits for " + r.WaitsFor
		}
		now[r.Block] = true
		if told[r.Block] != line {
			told[r.Block] = line
			fmt.Fprintln(e.Out, "  "+strings.TrimSpace(line))
		}
	}
	for block := range told {
		if !now[block] {
			delete(told, block)
			fmt.Fprintf(e.Out, "  %s has left its node\n", block)
		}
	}
}

// printAdvice prints what to do about blocks that do not leave by themselves.
func printAdvice(e *env, t drainTarget, left []blockRow) {
	nodes := map[string]map[string]bool{}
	for _, r := range left {
		if nodes[r.NeedsAction] == nil {
			nodes[r.NeedsAction] = map[string]bool{}
		}
		nodes[r.NeedsAction][r.Node] = true
	}
	fmt.Fprintf(e.ErrOut, "%s still drains: %s left, and waiting longer does not help.\n", t.what, count(len(left), "block"))
	for _, action := range slices.Sorted(maps.Keys(nodes)) {
		fmt.Fprintf(e.ErrOut, "  %s: %s\n", few(slices.Sorted(maps.Keys(nodes[action]))), action)
	}
}
