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
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/exit"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/list"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/output"
)

// follow shows what is in the way, a line for each change, until every block of
// the target cools down, or those left wait for user action.
func follow(ctx context.Context, e *cli.Env, t target, f flags) error {
	reading := ctx // the first read may outlast the timeout, so that there is something to print
	if f.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, f.timeout)
		defer cancel()
	}
	tick := time.NewTicker(max(f.every, time.Second))
	defer tick.Stop()
	printed := map[string]string{}
	for {
		c, err := e.Read(reading)
		if err != nil && reading.Err() == nil {
			return err
		}
		reading = ctx
		if err == nil {
			left := leavingRows(c, t)
			printChanges(e, printed, left)
			if len(left) == 0 {
				fmt.Fprintf(e.Out, "%s is drained\n", t.what)
				return nil
			}
			if !slices.ContainsFunc(left, func(r list.BlockRow) bool { return r.NeedsAction == "" }) {
				printAdvice(e, t, left)
				return exit.NotReached
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s still drains: %s left. It goes on without this command", t.what, output.Count(len(printed), "block"))
		case <-tick.C:
		}
	}
}

// printChanges prints what has changed since it printed last.
func printChanges(e *cli.Env, printed map[string]string, left []list.BlockRow) {
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

// printAdvice prints what to do about blocks that do not leave by themselves.
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
