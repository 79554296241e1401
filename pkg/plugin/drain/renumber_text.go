package drain

import (
	"context"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/cilium-pool/cilium-pool-operator/pkg/clusterview"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cli"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/list"
	"github.com/cilium-pool/cilium-pool-operator/pkg/suggest"
)

// backCommand is the command for the opposite move.
func (m *renumbering) backCommand() string {
	oldRange := m.oldRange
	newRange := m.newRange
	if !m.byCIDR() {
		oldRange = m.old.pool
		newRange = m.newPool
	}
	return "drain " + newRange + " --to " + oldRange
}

// recreateWords is what comes before that, once the old pool is gone.
func (m *renumbering) recreateWords(c *clusterview.Cluster) string {
	if m.byCIDR() || m.pool(c) != nil {
		return ""
	}
	return ", create it again, then"
}

func (m *renumbering) beginWords() string {
	if m.byCIDR() {
		return fmt.Sprintf("PodIPPool %s: %s is added, and %s drains", m.old.pool, m.newRange, m.oldRange)
	}
	return fmt.Sprintf("PodIPPool %s: its CIDRs drain", m.old.pool)
}

func (m *renumbering) endWords(c *clusterview.Cluster) string {
	if !m.byCIDR() {
		return fmt.Sprintf("PodIPPool %s: is deleted", m.old.pool)
	}
	old := m.pool(c).DeepCopy()
	m.takeOut(old)
	reserved := ""
	if n := len(m.pool(c).Spec.Reserved) - len(old.Spec.Reserved); n > 0 {
		reserved = fmt.Sprintf(", with %s in it", suggest.Count(n, "reserved CIDR"))
	}
	return fmt.Sprintf("PodIPPool %s: %s is taken out%s", m.old.pool, m.oldRange, reserved)
}

func printPlan(ctx context.Context, e *cli.Env, c *clusterview.Cluster, m renumbering, f flags) error {
	if m.pool(c) == nil || !m.inSpec(c) {
		fmt.Fprintf(e.Out, "%s is in no pool any more\n", m.oldRange)
		return nil
	}
	err := m.begin(ctx, c, true)
	if apierrors.IsForbidden(err) {
		fmt.Fprintf(e.ErrOut, "warning: not checked by the API server: %v\n", err)
	} else if err != nil {
		return err
	}
	rows := m.rows(c)
	fmt.Fprintf(e.Out, "from %s to %s:\n", m.oldRange, m.newRange)
	fmt.Fprintf(e.Out, "1. %s\n", m.beginWords())
	fmt.Fprintf(e.Out, "2. %s on %s to drain; each node first gets a replacement%s\n", suggest.Count(len(rows), "block"), suggest.Count(len(nodesOf(rows)), "node"), m.roomWords(c, rows))
	for _, r := range rows {
		fmt.Fprintf(e.Out, "  %s on %s: %d of %d addresses in use\n", r.Block, r.Node, r.Used, r.Addresses)
	}
	if f.evict {
		fmt.Fprint(e.Out, "3. ")
		evicts, err := newEvicter(e, c.Client, f).plan(ctx, podsIn(c, rows))
		if err != nil {
			return err
		}
		if err := printBudgets(ctx, e, c, evicts); err != nil {
			return err
		}
	} else {
		fmt.Fprintf(e.Out, "3. %s leave by themselves\n", suggest.Count(len(podsIn(c, rows)), "pod"))
	}
	agents := m.agentsIn(c)
	actor := "by you, when they are named"
	if f.restartAgents {
		actor = fmt.Sprintf("by this command, %d at a time, one of a zone", f.maxRestarts)
	}
	fmt.Fprintf(e.Out, "4. %s to restart, %s: %s\n", suggest.Count(len(agents), "agent"), actor, suggest.Few(agents))
	fmt.Fprintf(e.Out, "5. %s\n", m.endWords(c))
	return nil
}

func nodesOf(rows []list.BlockRow) []string {
	var nodes []string
	for _, r := range rows {
		nodes = append(nodes, r.Node)
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// roomWords describes the number of free blocks that can replace the blocks of the rows.
func (m *renumbering) roomWords(c *clusterview.Cluster, rows []list.BlockRow) string {
	var parts []string
	for _, f := range ipalloc.Families() {
		leave := len(slices.DeleteFunc(slices.Clone(rows), func(r list.BlockRow) bool { return r.Family != f.String() }))
		if leave == 0 {
			continue
		}
		free := m.freeBlocks(c, f)
		text := fmt.Sprintf("%s free in %s", suggest.Count(free, f.String()+" block"), m.newPool)
		if free < leave {
			text += fmt.Sprintf(", which is fewer than the %d that leave", leave)
		}
		parts = append(parts, text)
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}

// freeBlocks counts the free blocks of a family that can serve as replacements.
func (m *renumbering) freeBlocks(c *clusterview.Cluster, f ipalloc.Family) int {
	pool := c.State.Pools.Get(m.newPool)
	if pool == nil {
		return 0
	}
	whole, ok := pool.FullCut(f)
	if !ok {
		return 0
	}
	cut, _ := pool.Cut(f)
	cut.BlockBits = whole.BlockBits
	cut.Ranges = slices.DeleteFunc(slices.Clone(cut.Ranges), func(p netip.Prefix) bool { return slices.Contains(m.old.ranges, p) })
	if m.byCIDR() && ipalloc.FamilyOf(m.added.Addr()) == f && !slices.Contains(cut.Ranges, m.added) {
		cut.Ranges = append(cut.Ranges, m.added)
	}
	return int(min(c.State.Ledger.Free(cut), math.MaxInt32))
}

// printBudgets prints the PodDisruptionBudgets that allow none of these pods to be evicted now.
func printBudgets(ctx context.Context, e *cli.Env, c *clusterview.Cluster, pods []*corev1.Pod) error {
	budgets := &policyv1.PodDisruptionBudgetList{}
	err := c.Client.List(ctx, budgets)
	if apierrors.IsForbidden(err) {
		fmt.Fprintf(e.ErrOut, "warning: PodDisruptionBudgets cannot be read: %v\n", err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading PodDisruptionBudgets: %w", err)
	}
	for i := range budgets.Items {
		b := &budgets.Items[i]
		n := 0
		selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		if err != nil || b.Status.DisruptionsAllowed > 0 {
			continue
		}
		for _, p := range pods {
			if p.Namespace == b.Namespace && selector.Matches(labels.Set(p.Labels)) {
				n++
			}
		}
		if n > 0 {
			fmt.Fprintf(e.Out, "  PodDisruptionBudget %s/%s allows no eviction at present: %s\n", b.Namespace, b.Name, suggest.Count(n, "pod"))
		}
	}
	return nil
}

func printStatus(e *cli.Env, c *clusterview.Cluster, m renumbering) error {
	rows := m.rows(c)
	switch m.stage(c) {
	case toBegin:
		fmt.Fprintf(e.Out, "not begun: %s of %s in service\n", suggest.Count(len(rows), "block"), m.oldRange)
		return cli.Failed
	case toVerify:
		if named := m.named(c); len(named) > 0 {
			fmt.Fprintf(e.Out, "no block is left of %s, but CiliumNodes name addresses of it: %s\n", m.oldRange, suggest.Few(named))
			return cli.NotReached
		}
		fmt.Fprintln(e.Out, "done: "+m.goneWords(c))
		return nil
	case toRemove:
		fmt.Fprintf(e.Out, "no block is left; to do: %s\n", m.endWords(c))
		return cli.Failed
	}
	fmt.Fprintf(e.Out, "under way: %s of %s left on %s, %s to move, %s held of %s\n", suggest.Count(len(rows), "block"), m.oldRange,
		suggest.Count(len(nodesOf(rows)), "node"), suggest.Count(len(podsIn(c, rows)), "pod"), suggest.Count(len(m.heldOfNew(c)), "block"), m.newRange)
	printChanges(e, map[string]string{}, rows)
	if needsUsers, err := printAdvice(e, m.old, rows); needsUsers {
		return err
	}
	return cli.Failed
}

func (m *renumbering) goneWords(c *clusterview.Cluster) string {
	if stale := m.stale(c); len(stale) > 0 {
		return fmt.Sprintf("%s is gone: no PodIPBlock names anything of it. CiliumNodes name only addresses that their agents had when they ran the family, which are harmless: %s", m.oldRange, suggest.Few(stale))
	}
	return m.oldRange + " is gone: no PodIPBlock and no CiliumNode names anything of it"
}
