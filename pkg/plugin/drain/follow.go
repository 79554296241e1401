package drain

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/cilium-pool/cilium-pool-operator/pkg/clusterview"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cli"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/list"
	"github.com/cilium-pool/cilium-pool-operator/pkg/suggest"
)

// follower is the memory of a command between two looks at the cluster, for its output and to save
// requests.
type follower struct {
	env       *cli.Env
	flags     flags
	printed   map[string]string // by block
	evicter   *evicter
	restarter *restarter
}

func newFollower(e *cli.Env, f flags) *follower {
	return &follower{env: e, flags: f, printed: map[string]string{}}
}

// follow reads the cluster again and again and passes it to look, until that reports the end of
// the wait or fails. Later than the first read, it outlasts errors that pass by themselves. stopped returns the
// error of a wait that ended early.
func (w *follower) follow(ctx context.Context, look func(context.Context, *clusterview.Cluster) (done bool, err error), stopped func(rest string) error) error {
	readCtx := ctx // the first read may outlast the timeout, so that there is something to print
	if w.flags.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, w.flags.timeout)
		defer cancel()
	}
	for first := true; ; first = false {
		c, err := w.env.ReadAll(readCtx)
		stepCtx := readCtx
		readCtx = ctx
		done := false
		if err == nil {
			stepCtx = ctx
			w.env.WarnNoLeader(c)
			done, err = look(ctx, c)
		}
		if done || err != nil && stepCtx.Err() == nil && (first || !passes(err)) {
			return err
		}
		if err != nil && stepCtx.Err() == nil {
			fmt.Fprintf(w.env.ErrOut, "trying again: %v\n", err)
		}
		if w.env.Sleep(ctx, 2*time.Second) != nil {
			return stopped(suggest.Count(len(w.printed), "block"))
		}
	}
}

// passes reports whether an error ends by itself, as while an API server restarts.
func passes(err error) bool {
	return apierrors.IsServiceUnavailable(err) || apierrors.IsTooManyRequests(err) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) ||
		apierrors.IsInternalError(err) || utilnet.IsConnectionRefused(err) || utilnet.IsConnectionReset(err) || utilnet.IsProbableEOF(err) || utilnet.IsTimeout(err)
}

// followDrain shows the obstacles until every block of the target cools down, or the remaining
// ones wait for user action.
func followDrain(ctx context.Context, e *cli.Env, t target, f flags) error {
	w := newFollower(e, f)
	return w.follow(ctx, func(ctx context.Context, c *clusterview.Cluster) (done bool, err error) {
		rows := leavingRows(c, t)
		done, err = w.leave(ctx, c, t, rows)
		if len(rows) == 0 {
			fmt.Fprintf(e.Out, "%s is drained\n", t.name)
			return true, nil
		}
		return done, err
	}, func(rest string) error {
		goesOn := "It goes on without this command"
		if f.evict {
			goesOn += ", and no more pods are evicted: call it again for that"
		}
		return fmt.Errorf("%s still drains: %s left. %s", t.name, rest, goesOn)
	})
}

// leave prints the obstacles to the blocks of a target, one line per change, and evicts pods and
// restarts agents. The wait is over once the blocks need user action alone.
func (w *follower) leave(ctx context.Context, c *clusterview.Cluster, t target, rows []list.BlockRow) (done bool, err error) {
	printChanges(w.env, w.printed, rows)
	if w.evicter == nil {
		w.evicter = newEvicter(w.env, c.Client, w.flags)
		w.restarter = newRestarter(c.Client, w.env.Out, w.flags.maxRestarts)
	}
	if w.flags.evict {
		pods := podsIn(c, draining(rows))
		if err := w.evicter.step(ctx, pods); err != nil {
			return false, err
		}
		rows = w.evicter.needsPeople(rows, pods)
	}
	if w.flags.restartAgents {
		if rows, err = w.restarter.step(ctx, c, rows); err != nil {
			return false, err
		}
	}
	return printAdvice(w.env, t, rows)
}

func printChanges(e *cli.Env, printed map[string]string, rows []list.BlockRow) {
	now := map[string]bool{}
	for _, r := range rows {
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

// printAdvice prints advice about blocks if none leaves on its own, and reports whether that is so.
func printAdvice(e *cli.Env, t target, rows []list.BlockRow) (done bool, err error) {
	if len(rows) == 0 || slices.ContainsFunc(rows, func(r list.BlockRow) bool { return r.NeedsAction == "" }) {
		return false, nil
	}
	nodes := map[string][]string{} // by action
	for _, r := range rows {
		if !slices.Contains(nodes[r.NeedsAction], r.Node) {
			nodes[r.NeedsAction] = append(nodes[r.NeedsAction], r.Node)
		}
	}
	fmt.Fprintf(e.ErrOut, "%s still drains: %s left, and waiting longer does not help.\n", t.name, suggest.Count(len(rows), "block"))
	for _, action := range slices.Sorted(maps.Keys(nodes)) {
		fmt.Fprintf(e.ErrOut, "  %s: %s\n", suggest.Few(slices.Sorted(slices.Values(nodes[action]))), action)
	}
	return true, cli.NotReached
}
