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
		return output.Usagef("--from and --to are needed: two CIDRs, or two pools")
	case f.status && f.abort:
		return output.Usagef("--status and --abort do not go together")
	case f.maxConcurrent < 1:
		return output.Usagef("--max-concurrent is %d: must be 1 or more", f.maxConcurrent)
	case f.maxRestarts < 1:
		return output.Usagef("--max-restarts is %d: must be 1 or more", f.maxRestarts)
	}
	return nil
}

// NewRenumber returns the command renumber.
func NewRenumber(e *cli.Env) *cobra.Command {
	f := renumberFlags{flags: flags{evict: true, wait: true, every: 2 * time.Second, maxConcurrent: 5}, maxRestarts: 1}
	cmd := &cobra.Command{
		Use:   "renumber --from CIDR|POOL --to CIDR|POOL",
		Short: "Move all nodes and pods from one range to another, and take the old one out",
		Long: `Moves all nodes and pods from one CIDR of a pool to another, or from one pool to
another, and takes the old one out. It prints a plan, asks, and then

 1. adds the new CIDR to the pool and lets the old one drain (allocationPolicy:
    Drain), in one write; of two pools, lets all CIDRs of the old one drain
 2. evicts the pods with an address of the old range, as drain --evict does:
    PodDisruptionBudgets hold, --max-concurrent pods are on their way out at a time,
    and pods without a successor are left alone and named
 3. names the agents that have addresses of their own in it (router, health,
    ingress), which take others when they restart. With --restart-agents it restarts
    each once its own addresses alone keep its node's blocks of the old range, by
    deleting its pod: --max-restarts at a time, one of a zone, and the next once all
    agents are Ready and no block is leaving, as an agent that restarts then keeps its
    route to it
 4. waits until the last block has cooled down, and takes the old CIDR out of the
    pool, with its reserved ranges, or deletes the old pool
 5. verifies that no PodIPBlock and no CiliumNode names an address of it

Its progress follows from the cluster, so it can be stopped at any time, and called
again with the same --from and --to. --status prints the progress, and changes no
object. --abort lets the old range serve again, at any time before step 4: nodes keep
their blocks of the new one, and renumber the other way around leaves those.

--dry-run prints the plan alone. It works in crd mode only: in the other modes agents
keep their own addresses as long as their Nodes exist.

Exit codes: 0 the old range is gone, or --abort or --dry-run succeeded, 1 not by
--timeout, or it failed; --status: it is under way, or has not begun, 2 wrong command
line, 3 the rest waits for something that people must do first, such as restarting
an agent, or moving a pod that is left alone.`,
		Example: cli.Examples("renumber --from 10.20.0.0/16 --to 10.60.0.0/16 --dry-run", "renumber --from 10.20.0.0/16 --to 10.60.0.0/16 --restart-agents --yes", "renumber --from 10.20.0.0/16 --to 10.60.0.0/16 --status", "renumber --from 10.20.0.0/16 --to 10.60.0.0/16 --abort", "renumber --from old-pool --to new-pool --max-concurrent 20"),
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.validate(); err != nil {
				return err
			}
			return renumber(cmd.Context(), e, f)
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&f.from, "from", "", "the CIDR of a pool, or the pool, to leave")
	fs.StringVar(&f.to, "to", "", "the CIDR that the pool gets instead, or another pool")
	fs.BoolVar(&f.dryRun, "dry-run", false, "print the plan, without a change")
	fs.BoolVarP(&f.yes, "yes", "y", false, "do not ask whether to go on")
	fs.BoolVar(&f.status, "status", false, "print the progress, without a change")
	fs.BoolVar(&f.abort, "abort", false, "let the old range serve again")
	fs.BoolVar(&f.evict, "evict", f.evict, "evict pods; with --evict=false they leave by themselves")
	fs.IntVar(&f.maxConcurrent, "max-concurrent", f.maxConcurrent, "number of pods that may be on their way out at a time")
	fs.BoolVar(&f.emptyDirs, "delete-emptydir-data", false, "also evict pods with emptyDir volumes, losing their data")
	fs.BoolVar(&f.restartAgents, "restart-agents", false, "restart the agents that have addresses of their own in the old range")
	fs.IntVar(&f.maxRestarts, "max-restarts", f.maxRestarts, "with --restart-agents: number of agents that may restart at a time, one of a zone")
	fs.DurationVar(&f.every, "every", f.every, "time between two reads of the cluster while waiting")
	fs.DurationVar(&f.timeout, "timeout", f.timeout, "time to wait; 0: without end")
	_ = cmd.RegisterFlagCompletionFunc("from", e.CompletePools)
	_ = cmd.RegisterFlagCompletionFunc("to", e.CompletePools)
	return cmd
}

func renumber(ctx context.Context, e *cli.Env, f renumberFlags) error {
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
		if err := printPlan(ctx, e, c, m, f); err != nil || f.dryRun {
			return err
		}
		if !f.yes {
			if err := e.Confirm(fmt.Sprintf("All pods of %s get other addresses.", m.from)); err != nil {
				return err
			}
		}
	}
	return followMove(ctx, e, m, f)
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
		return fmt.Errorf("%w: %s is no longer there. To go back: renumber --from %s --to %s", errFinished, m.from, m.to, m.from)
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
		fmt.Fprintf(e.Out, ": %s. To leave that: renumber --from %s --to %s", output.Count(held, "block"), m.to, m.from)
	}
	fmt.Fprintln(e.Out)
	return nil
}
