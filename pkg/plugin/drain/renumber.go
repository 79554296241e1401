package drain

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/clusterview"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cli"
	"github.com/cilium-pool/cilium-pool-operator/pkg/suggest"
)

func renumber(ctx context.Context, e *cli.Env, c *clusterview.Cluster, oldRange string, f flags) error {
	mode := c.Objects.Mode
	if mode.WholeBlocks() && mode != ciliumnode.DelegatedPlugin {
		return cli.Usagef("in %s mode agents keep addresses of their own as long as their Nodes exist: drain and replace the Nodes", mode)
	}
	m, err := parseRenumbering(c, oldRange, f.newRange)
	if err != nil {
		return err
	}
	if !m.byCIDR() && m.pool(c) == nil && len(m.rows(c)) == 0 {
		fmt.Fprintf(e.ErrOut, "warning: there is no PodIPPool %s and no block of one: it is gone, or has another name%s\n", m.old.pool, suggest.DidYouMean(m.old.pool, c.State.Pools.Names()))
	}
	if f.status {
		return printStatus(e, c, m)
	}
	if f.abort {
		return m.abort(ctx, e, c)
	}
	if m.stage(c) == toBegin || f.dryRun {
		if err := confirmPlan(ctx, e, c, m, f); err != nil || f.dryRun {
			return err
		}
	}
	return followRenumbering(ctx, e, m, f)
}

func confirmPlan(ctx context.Context, e *cli.Env, c *clusterview.Cluster, m renumbering, f flags) error {
	if err := printPlan(ctx, e, c, m, f); err != nil || f.dryRun || f.yes {
		return err
	}
	return e.Confirm(fmt.Sprintf("All pods of %s get other addresses.", m.oldRange))
}

// followRenumbering advances the move whenever the cluster is ready for the next step, until it is
// done or users must act.
func followRenumbering(ctx context.Context, e *cli.Env, m renumbering, f flags) error {
	w := newFollower(e, f)
	return w.follow(ctx, func(ctx context.Context, c *clusterview.Cluster) (done bool, err error) {
		return w.advance(ctx, c, m)
	}, func(rest string) error {
		return fmt.Errorf("%s is not gone: %s left. What drains goes on; call it again for the rest, or with --abort", m.oldRange, rest)
	})
}

// advance performs the next step of a move. It reports whether the move is over.
func (w *follower) advance(ctx context.Context, c *clusterview.Cluster, m renumbering) (done bool, err error) {
	switch m.stage(c) {
	case toBegin:
		fmt.Fprintln(w.env.Out, m.beginWords())
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
func (w *follower) finish(ctx context.Context, c *clusterview.Cluster, m renumbering) (done bool, err error) {
	if named := m.named(c); len(named) > 0 {
		fmt.Fprintf(w.env.ErrOut, "no block is left of %s, but CiliumNodes still name addresses of it, which the operator did not write: %s. Once no pod has one, take them out of spec.ipam.pool, spec.ipam.podCIDRs and status.ipam.release-ips by hand\n", m.oldRange, suggest.Few(named))
		return true, cli.NotReached
	}
	if m.stage(c) == toRemove {
		fmt.Fprintln(w.env.Out, m.endWords(c))
		return false, m.remove(ctx, c)
	}
	fmt.Fprintln(w.env.Out, m.goneWords(c))
	return true, nil
}

func (m *renumbering) abort(ctx context.Context, e *cli.Env, c *clusterview.Cluster) error {
	if m.pool(c) == nil || !m.inSpec(c) {
		return fmt.Errorf("it is over: %s is no longer there. To go back%s: %s", m.oldRange, m.recreateWords(c), m.backCommand())
	}
	if m.pool(c).DeletionTimestamp != nil {
		return fmt.Errorf("it is over: pool %s is being deleted, and that cannot be undone", m.old.pool)
	}
	outcome := "does not drain: nothing was changed"
	if m.drains(c) {
		outcome = "serves again"
		if err := setPolicy(ctx, c, m.old, false); err != nil {
			return err
		}
	}
	fmt.Fprintf(e.Out, "%s %s. What nodes have of %s stays theirs", m.oldRange, outcome, m.newRange)
	if count := len(m.heldOfNew(c)); count > 0 {
		fmt.Fprintf(e.Out, ": %s. To leave that: %s", suggest.Count(count, "block"), m.backCommand())
	}
	fmt.Fprintln(e.Out)
	return nil
}

// agentsIn returns the nodes with agents that have addresses of their own in the old range, sorted.
func (m *renumbering) agentsIn(c *clusterview.Cluster) []string {
	return m.nodesWith(c, func(view *ciliumnode.View) []netip.Prefix {
		addrs := singles(slices.Values(view.Own))
		for a, owner := range view.Used {
			if expand.NamesAgent(owner) {
				addrs = append(addrs, netip.PrefixFrom(a, a.BitLen()))
			}
		}
		return addrs
	})
}
