package drain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cli"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cluster"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/list"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/output"
	"github.com/cilium-pool/cilium-pool-operator/pkg/suggest"
)

// renumberFlags are the flags of renumber.
type renumberFlags struct {
	flags
	from, to      string
	status, abort bool
	restartAgents bool
	maxRestarts   int
}

// validate checks flags against each other.
func (f *renumberFlags) validate() error {
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

// NewRenumber returns the former command renumber.
func NewRenumber(e *cli.Env) *cobra.Command {
	f := renumberFlags{flags: flags{evict: true, wait: true, every: 2 * time.Second, maxConcurrent: 5}, maxRestarts: 1}
	cmd := &cobra.Command{
		Use:  "renumber --from CIDR|POOL --to CIDR|POOL",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return renumber(cmd.Context(), e, f) },
	}
	f.addRenumber(cmd, e)
	f.add(cmd)
	cmd.Flags().StringVar(&f.from, "from", "", "the CIDR of a pool, or the pool, to leave")
	return cmd
}

// addRenumber adds the flags that only renumbering has.
func (f *renumberFlags) addRenumber(cmd *cobra.Command, e *cli.Env) {
	fs := cmd.Flags()
	fs.StringVar(&f.to, "to", "", "renumber: the CIDR that the pool gets instead, or another pool")
	fs.BoolVar(&f.status, "status", false, "with --to: print the step reached, and write nothing")
	fs.BoolVar(&f.abort, "abort", false, "with --to: let the old range serve again")
	fs.BoolVar(&f.restartAgents, "restart-agents", false, "with --to: restart the agents that have addresses of their own in the old range")
	fs.IntVar(&f.maxRestarts, "max-restarts", f.maxRestarts, "with --restart-agents: how many agents may restart at a time, one of a zone")
	_ = cmd.RegisterFlagCompletionFunc("to", e.CompletePools)
}

// renumber moves nodes and pods from one range to another.
func renumber(ctx context.Context, e *cli.Env, f renumberFlags) error {
	if err := f.validate(); err != nil {
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
func confirmPlan(ctx context.Context, e *cli.Env, c *cluster.Cluster, m move, f renumberFlags) error {
	if err := printPlan(ctx, e, c, m, f); err != nil || f.dryRun || f.yes {
		return err
	}
	return e.Confirm(fmt.Sprintf("All pods of %s get other addresses.", m.from))
}

// followMove advances the move whenever the cluster is ready for the next step, until it is
// done or users must act.
func followMove(ctx context.Context, e *cli.Env, m move, f renumberFlags) error {
	w := &mover{env: e, move: m, flags: f, printed: map[string]string{}}
	return repeat(ctx, e, f.flags, w.look, w.stopped)
}

// mover is the memory of followMove between two looks at the cluster, for its output and to save
// requests.
type mover struct {
	env       *cli.Env
	move      move
	flags     renumberFlags
	printed   map[string]string // by block
	evicter   *evicter
	restarter *restarter
}

func (w *mover) stopped() error {
	return fmt.Errorf("%s is not gone: %s left. What drains goes on; call it again for the rest, or with --abort", w.move.from, output.Count(len(w.printed), "block"))
}

// look performs the next step. It reports whether the move is over.
func (w *mover) look(ctx context.Context, c *cluster.Cluster) (done bool, err error) {
	done, err = w.next(ctx, c)
	if apierrors.IsConflict(err) { // the operator writes the pool's status at any time
		return false, nil
	}
	return done, err
}

func (w *mover) next(ctx context.Context, c *cluster.Cluster) (done bool, err error) {
	m := w.move
	switch m.stage(c) {
	case toBegin:
		fmt.Fprintln(w.env.Out, m.beginning())
		return false, m.begin(ctx, c, false)
	case toRemove, toVerify:
		return w.finish(ctx, c)
	}
	left := m.rows(c)
	printChanges(w.env, w.printed, left)
	if left, err = w.push(ctx, c, left); err != nil {
		return false, err
	}
	if !slices.ContainsFunc(left, func(r list.BlockRow) bool { return r.NeedsAction == "" }) {
		printAdvice(w.env, m.old, left)
		return true, output.NotReached
	}
	return false, nil
}

// finish removes the old range from the pool once no CiliumNode names anything in it.
func (w *mover) finish(ctx context.Context, c *cluster.Cluster) (done bool, err error) {
	m := w.move
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

// push evicts pods and restarts agents, and returns the rows with the steps for users.
func (w *mover) push(ctx context.Context, c *cluster.Cluster, left []list.BlockRow) ([]list.BlockRow, error) {
	if w.evicter == nil {
		w.evicter, w.restarter = newEvicter(w.env, c.Client, w.flags.flags), newRestarter(c.Client, w.env.Out, w.flags.maxRestarts)
	}
	if w.flags.evict {
		pods := podsIn(c, draining(left))
		if err := w.evicter.step(ctx, pods); err != nil {
			return nil, err
		}
		left = w.evicter.needsPeople(left, pods)
	}
	if w.flags.restartAgents {
		return w.restarter.step(ctx, c, left)
	}
	return left, nil
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
