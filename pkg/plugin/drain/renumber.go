package drain

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cli"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cluster"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/output"
	"github.com/cilium-pool/cilium-pool-operator/pkg/suggest"
)

// validateMove checks the flags of a move against each other.
func (f *flags) validateMove() error {
	switch {
	case f.from == "" || f.to == "":
		return output.Usagef("a range to leave and one to move to are needed: two CIDRs, or two pools")
	case f.undo || f.now || !f.wait:
		return output.Usagef("--undo, --now and --wait=false do not go together with --to: see --abort")
	case f.status && f.abort:
		return output.Usagef("--status and --abort do not go together")
	case f.maxConcurrent < 1:
		return output.Usagef("--max-concurrent is %d: must be 1 or more", f.maxConcurrent)
	case f.maxRestarts < 1:
		return output.Usagef("--max-restarts is %d: must be 1 or more", f.maxRestarts)
	}
	return nil
}

// renumber moves nodes and pods from one range to another.
func renumber(ctx context.Context, e *cli.Env, f flags) error {
	if err := f.validateMove(); err != nil {
		return err
	}
	c, err := e.Read(ctx)
	if err != nil {
		return err
	}
	if c.Objects.Mode.WholeBlocks() {
		return output.Usagef("in %s mode agents keep addresses of their own as long as their Nodes exist: drain and replace the Nodes", c.Objects.Mode)
	}
	m, err := parseMove(c, f.from, f.to)
	if err != nil {
		return err
	}
	if !m.byCIDR() && m.pool(c) == nil && len(m.rows(c)) == 0 {
		fmt.Fprintf(e.ErrOut, "warning: there is no PodIPPool %s and no block of one: it is gone, or has another name%s\n", m.old.pool, suggest.DidYouMean(m.old.pool, c.Pools.Names()))
	}
	switch {
	case f.status:
		return printStatus(e, c, m)
	case f.abort:
		return m.abort(ctx, e, c)
	}
	if m.stage(c) == toBegin || f.dryRun {
		if err := confirmPlan(ctx, e, c, m, f); err != nil || f.dryRun {
			return err
		}
	}
	return followMove(ctx, e, m, f)
}

// confirmPlan prints the plan, and asks whether to carry it out.
func confirmPlan(ctx context.Context, e *cli.Env, c *cluster.Cluster, m move, f flags) error {
	if err := printPlan(ctx, e, c, m, f); err != nil || f.dryRun || f.yes {
		return err
	}
	return e.Confirm(fmt.Sprintf("All pods of %s get other addresses.", m.from))
}

// followMove advances the move whenever the cluster is ready for the next step, until it is
// done or users must act.
func followMove(ctx context.Context, e *cli.Env, m move, f flags) error {
	w := newFollower(e, f)
	return w.follow(ctx, func(ctx context.Context, c *cluster.Cluster) (done bool, err error) {
		return w.advance(ctx, c, m)
	}, func(left string) error {
		return fmt.Errorf("%s is not gone: %s left. What drains goes on; call it again for the rest, or with --abort", m.from, left)
	})
}

// advance performs the next step of a move. It reports whether the move is over.
func (w *follower) advance(ctx context.Context, c *cluster.Cluster, m move) (done bool, err error) {
	switch m.stage(c) {
	case toBegin:
		fmt.Fprintln(w.env.Out, m.beginning())
		err = m.begin(ctx, c, false)
	case toLeave:
		done, err = w.leave(ctx, c, m.old, m.rows(c))
	case toRemove, toVerify:
		done, err = w.finish(ctx, c, m)
	}
	if apierrors.IsConflict(err) { // the operator writes the pool's status at any time
		return false, nil
	}
	return done, err
}

// finish removes the old range from the pool once no CiliumNode names anything in it.
func (w *follower) finish(ctx context.Context, c *cluster.Cluster, m move) (done bool, err error) {
	if named := m.named(c); len(named) > 0 {
		fmt.Fprintf(w.env.ErrOut, "no block is left of %s, but CiliumNodes still name addresses of it, which the operator did not write: %s. Once no pod has one, take them out of spec.ipam.pool, spec.ipam.podCIDRs and status.ipam.release-ips by hand\n", m.from, output.Few(named))
		return true, output.NotReached
	}
	if m.stage(c) == toRemove {
		fmt.Fprintln(w.env.Out, m.ending(c))
		return false, m.remove(ctx, c)
	}
	fmt.Fprintln(w.env.Out, m.gone(c))
	return true, nil
}

// errFinished is why a move cannot be aborted.
var errFinished = errors.New("it is over")

// abort makes the old range serve again.
func (m *move) abort(ctx context.Context, e *cli.Env, c *cluster.Cluster) error {
	switch {
	case m.pool(c) == nil || !m.inSpec(c):
		return fmt.Errorf("%w: %s is no longer there. To go back: drain %s --to %s", errFinished, m.from, m.to, m.from)
	case m.pool(c).DeletionTimestamp != nil:
		return fmt.Errorf("%w: pool %s is being deleted, and that cannot be undone", errFinished, m.old.pool)
	}
	outcome := "does not drain: nothing was changed"
	if m.drains(c) {
		outcome = "serves again"
		if err := setPolicy(ctx, c, m.old, false); err != nil {
			return err
		}
	}
	fmt.Fprintf(e.Out, "%s %s. What nodes have of %s stays theirs", m.from, outcome, m.to)
	if held := len(m.heldOfNew(c)); held > 0 {
		fmt.Fprintf(e.Out, ": %s. To leave that: drain %s --to %s", output.Count(held, "block"), m.to, m.from)
	}
	fmt.Fprintln(e.Out)
	return nil
}
