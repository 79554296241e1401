// Package explain is kubectl cilium-pool explain.
package explain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cilium-pool/cilium-pool-operator/pkg/clusterview"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cli"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/pkg/suggest"
)

// New returns the command explain.
func New(e *cli.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "explain NODE|NAMESPACE/POD",
		Short: "Explain why a node has its blocks, or why a pod has no address",
		Long: `Explains in sentences why a node has its blocks, why each of them waits, and the
number of additional pods that would make it grow, or of fewer pods that would let it
return a block.

For a pod that waits for an address on its node (ContainerCreating), it names the
addresses that the node lacks, the cause, and the next step, or who has the address that
is kept for it. For a pod that the scheduler finds no address for,
it names the suitable nodes that lack addresses, whether they grow for it, the full pool,
and the ways to free some of it.

It asks the operator's own deciding code, on the cluster as it is now and as it would be
with more or fewer pods, with the settings that the operator has published on its
Lease. It does not know how long a block has been idle already.`,
		Example:           cli.Examples("explain edge-01", "explain default/web-0"),
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: e.CompleteNodes,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := e.Read(cmd.Context())
			if err != nil {
				return err
			}
			// No name of a Node has a slash.
			if namespace, name, isPod := strings.Cut(args[0], "/"); isPod {
				pod, waiting, err := readPod(cmd.Context(), c.Client, namespace, name)
				if err != nil {
					return e.CannotRead(err)
				}
				return e.WriteText(func(s *cli.Text) { Pod(s, c, pod, waiting) })
			}
			if err := c.CheckNode(args[0]); err != nil {
				return err
			}
			refused, err := c.ReadRefusedWrites(cmd.Context())
			if err != nil {
				return e.CannotRead(err)
			}
			return e.WriteText(func(s *cli.Text) {
				explainRefused(s, c, args[0], refused)
				Node(s, c, args[0])
			})
		},
	}
}

// explainRefused describes the writes about a node and its blocks that the API server refuses:
// the operator's decisions there have no effect.
func explainRefused(s *cli.Text, c *clusterview.Cluster, node string, refused []clusterview.RefusedWrite) {
	events := c.RefusedAbout(node, refused)
	for _, r := range events {
		s.Line("%s %s, %s ago: %s.", r.Kind, r.Name, cli.Age(c.Now, r.At), r.Note)
	}
	if len(events) > 0 {
		s.Line("")
	}
}

// Node writes why a node has its blocks.
func Node(s *cli.Text, c *clusterview.Cluster, name string) {
	noLeader(s, c)
	decisions := slices.DeleteFunc(c.Decide(name), func(d clusterview.Decision) bool {
		return crd.OwnerOfPool(d.CiliumPool) != "" && d.Plan.Demand == 0 && len(d.State.Blocks) == 0 // it is elsewhere
	})
	for i := range decisions {
		if i > 0 {
			s.Line("")
		}
		explainFamily(c, s, name, &decisions[i])
	}
	snapshot := c.State.Snapshot(name, c.Nodes[name], c.Now)
	for i := range snapshot.Unserved {
		explainUnserved(s, &snapshot.Unserved[i], i == 0 && len(decisions) > 0)
	}
	if len(decisions)+len(snapshot.Unserved) == 0 {
		s.Line("Node %s has no blocks, and no pool serves it: no PodIPPool's nodeSelector matches its labels.", name)
	}
}

// noLeader says first that nothing of the answer happens, as no operator leads.
func noLeader(s *cli.Text, c *clusterview.Cluster) {
	if missing := c.Objects.Leader.Missing(); missing != "" {
		s.Line("N%s.", missing[1:])
		s.Line("")
	}
}

// explainUnserved describes the node's requests that no PodIPPool serves, after a blank line if
// apart is set.
func explainUnserved(s *cli.Text, u *state.Unserved, apart bool) {
	if apart {
		s.Line("")
	}
	s.Line("%s.", strings.ToUpper(u.Message[:1])+u.Message[1:])
	if u.Requested > 0 {
		s.Line("Its agent asks for %s of it.", suggest.Plural(u.Requested, "address", "addresses"))
	}
	if len(u.Pods) > 0 {
		s.Line("Pods that ask for it and wait: %s.", suggest.Few(u.Pods))
	}
}

func explainFamily(c *clusterview.Cluster, s *cli.Text, name string, d *clusterview.Decision) {
	owner := crd.OwnerOfPool(d.CiliumPool)
	switch {
	case owner != "":
		s.Line("NODE %s, %s, the address that is kept for %s", name, d.Family, crd.OwnerWords(owner))
	case d.CiliumPool != "":
		s.Line("NODE %s, %s, pods that ask for Cilium's pool %s", name, d.Family, d.CiliumPool)
	default:
		s.Line("NODE %s, %s", name, d.Family)
	}
	explainServing(c, s, name, d)
	s.Line("It needs %s and has %d.", suggest.Plural(d.Plan.Demand, "address", "addresses"), d.Plan.Capacity)
	if n := d.Plan.ServedElsewhere; n > 0 {
		s.Line("%d of those it needs are met by blocks that leave, or by addresses in no block.", n)
	}
	if _, balance := d.Balance(d.At); balance.Missing > 0 {
		cause := "it is"
		if d.Plan.Shortage > 0 {
			cause = limitsKeep(d)
		}
		s.Line("I%s %s short.", cause[1:], suggest.Plural(balance.Missing, "address", "addresses"))
	}
	s.Line("")
	explainBlocks(c, s, name, d)
	if len(d.Pools) == 0 || owner != "" {
		return // no change would make it grow or shrink
	}
	s.Line("")
	explainLimits(s, d)
	explainGrowth(c, s, d)
	explainShrinking(s, d)
}

func explainServing(c *clusterview.Cluster, s *cli.Text, name string, d *clusterview.Decision) {
	switch {
	case len(d.Pools) == 0:
		s.Line("No pool serves it: it keeps the blocks it has, and gets no more.")
	case len(d.Pools) == 1:
		s.Line("Pool %s rules it.", d.Ruling())
	default:
		var next []string
		for _, p := range d.Pools[1:] {
			next = append(next, p.Name)
		}
		s.Line("Pool %s rules it. Where that is full, %s.", d.Ruling(), strings.Join(next, ", then "))
	}
	explainPools(c, s, d)
	explainGivingNone(c, s, name, d)
	if c.Nodes[name] == nil {
		s.Line("Its Node is gone.")
	}
	if c.State.Ledger.CiliumNode(name) == nil {
		s.Line("It has no CiliumNode.")
	}
	if reason := d.Standing.Because(); reason != "" {
		s.Line("Nothing changes on it: %s.", reason)
	}
	if message := state.ShortageOf(c.Nodes[name]); message != "" {
		s.Line("The operator reports: %s.", message)
	}
	w := d.State.BlockAssignment
	if d.State.HasNodeAgent() && !w.Reported {
		s.Line("Its node agent has not reported yet which addresses are in use.")
	}
	if w.ReturnsByItself() {
		explainHeard(c, s, name, d)
	}
	if w != nil {
		return
	}
	if !d.State.AgentSettled {
		s.Line("Its agent has not been Ready for %s (or there is none, or two): no address is taken from it.", cli.Duration(c.Operator.Settings.AgentSettle))
	}
	if len(d.State.Used) == 0 {
		s.Line("Its agent has not reported any address in use.")
	}
}

// explainPools describes the pools of a node that have no free block, until one has some.
func explainPools(c *clusterview.Cluster, s *cli.Text, d *clusterview.Decision) {
	for _, pool := range d.Pools {
		cut, assigns := pool.Cut(d.Family)
		free := c.State.Ledger.Free(cut)
		switch {
		case !assigns || pool.Paused:
			s.Line("Pool %s gives no block: %s.", pool.Name, whyNone(c, pool, d.Family))
		case free > 0:
			if pool != d.Pools[0] {
				s.Line("Pool %s has %s.", pool.Name, freeBlocks(free))
			}
			return
		default:
			s.Line("Pool %s has no free block: %s.", pool.Name, c.State.Ledger.Cooldowns(pool, d.Family))
		}
	}
}

// blockSize is the size of the node's next block, in brackets; "": no pool has one for it.
func blockSize(d *clusterview.Decision) string {
	for _, pool := range d.Pools {
		if size := pool.SizeText(d.Family); size != "" {
			return " (" + size + ")"
		}
	}
	return ""
}

func freeBlocks(n uint64) string {
	return suggest.Plural(int(min(n, 1<<40)), "free block", "free blocks")
}

// explainHeard describes the report of an agent that is assigned whole blocks.
func explainHeard(c *clusterview.Cluster, s *cli.Text, name string, d *clusterview.Decision) {
	w := d.State.BlockAssignment
	runs := c.RunsWith(name, d.Family)
	unassigned := w.SingleBlock && len(w.Assigned) == 0
	switch {
	case unassigned && len(runs) == 0:
		s.Line("Its agent waits for a podCIDR.")
	case unassigned && len(w.ActiveCIDRs) > 0 && !d.State.RunsWithAnother():
		s.Line("Its agent runs with podCIDR %s, a block of this node. The Node is to name it again.", suggest.Few(texts(runs)))
	case unassigned:
		s.Line("Its agent runs with podCIDR %s, which is no block of this node, so the node is assigned none. Drain the Node and delete it.", suggest.Few(texts(runs)))
	case w.SingleBlock:
		s.Line("Its agent was assigned %s.", suggest.Few(texts(w.Assigned)))
	case !w.Reported:
		s.Line("Its agent has not said yet how many addresses it asks for.")
	default:
		s.Line("Its agent asks for %s: those in use, those pods wait for, and its reserve.", suggest.Plural(w.Requested, "address", "addresses"))
	}
}

func explainBlocks(c *clusterview.Cluster, s *cli.Text, name string, d *clusterview.Decision) {
	if len(d.State.Blocks) == 0 {
		s.Line("It holds no block.")
		return
	}
	s.Line("It holds %s:", suggest.Count(len(d.State.Blocks), "block"))
	users := c.Users(name)
	for _, state := range d.State.Blocks {
		b, _ := c.State.Ledger.Block(state.CIDR)
		s.Line("  %-18s pool %s, %d of %d addresses in use, held for %s%s", state.CIDR, b.Pool,
			clusterview.CountIn(state.CIDR, users), state.Count(), cli.Age(c.Now, b.Created), wayOut(c, b, &state, c.Advise(b, users).Obstacle))
	}
}

func wayOut(c *clusterview.Cluster, b crd.Block, state *expand.Block, waits string) string {
	var parts []string
	if state.Pinned {
		parts = append(parts, "is pinned to the node")
	}
	switch b.Phase {
	case ipalloc.Draining:
		parts = append(parts, fmt.Sprintf("has been draining for %s, as %s", cli.Age(c.Now, b.Since), reasonWords(b.Reason)))
	case ipalloc.CoolingDown:
		rest := max(0, state.CooldownUntil.Sub(c.Now)).Round(time.Second)
		parts = append(parts, fmt.Sprintf("cools down for %s more, as %s", rest, reasonWords(b.Reason)))
	default:
		if state.Request != expand.None {
			parts = append(parts, "must go, as "+reasonWords(state.Request))
		}
	}
	if state.Conflict {
		parts = append(parts, "overlaps an older block: nothing of it is published")
	}
	if waits != "" {
		parts = append(parts, "waits for "+waits)
	}
	if len(parts) == 0 {
		return ""
	}
	return "; it " + strings.Join(parts, "; it ")
}

func reasonWords(r expand.Reason) string {
	words := map[expand.Reason]string{
		expand.Reclaim:        "the node could do without it",
		expand.Compaction:     "the node could do without it",
		expand.Deleted:        "it was deleted by hand",
		expand.DrainRequested: "its spec.drain is true",
		expand.CIDRDraining:   "its CIDR drains or was taken out of the pool",
		expand.PoolDeleted:    "its pool is deleted",
		expand.NodeUnselected: "its pool no longer selects the node",
		expand.PoolChanged:    "another pool rules the node, and nothing of it has been in use",
		expand.Returned:       "its node gave it back",
		expand.NodeGone:       "its node is gone, or runs without Cilium",
	}
	if w, ok := words[r]; ok {
		return w
	}
	return "(" + string(r) + ")"
}

func explainLimits(s *cli.Text, d *clusterview.Decision) {
	p := d.Policy
	l := d.State.Limits
	w := d.State.BlockAssignment
	switch {
	case w != nil && w.SingleBlock:
		s.Line("It gets one block, before its agent starts.")
		return
	case d.State.HasNodeAgent() && !d.State.RunsFamily():
		s.Line("It gets no block, as its agent does not run the family.")
		return
	case d.State.HasNodeAgent() && w.NoPreallocation:
		s.Line("It gets what its pods need, up to %s. Nothing is kept free beyond that.", suggest.Count(p.MaxBlocks, "block"))
	case d.State.HasNodeAgent():
		s.Line("Its pool asks for another block%s above %d%% in use or below %d free, up to %s.",
			blockSize(d), p.ExpandPercent, p.MinFree, suggest.Count(p.MaxBlocks, "block"))
	case w != nil && w.NoPreallocation:
		s.Line("It gets what its agent and new pods ask for, up to %s. Nothing is kept free beyond that.", suggest.Count(p.MaxBlocks, "block"))
	case w != nil && w.Reported:
		s.Line("It gets what its agent asks for, up to %s.", suggest.Count(p.MaxBlocks, "block"))
	case w != nil:
		s.Line("Until then its pool asks for another block%s above %d%% in use or below %d free, up to %s.",
			blockSize(d), p.ExpandPercent, p.MinFree, suggest.Count(p.MaxBlocks, "block"))
	default:
		s.Line("Its pool asks for another block%s above %d%% in use or below %d free, up to %s and %d addresses per node.",
			blockSize(d), p.ExpandPercent, p.MinFree, suggest.Count(p.MaxBlocks, "block"), p.MaxAddresses)
	}
	explainKnobs(s, l, d.State.BlockAssignment != nil)
}

// explainKnobs describes the limits in the CiliumNode. If the agent is assigned whole blocks,
// only the upper limit counts.
func explainKnobs(s *cli.Text, l expand.Limits, whole bool) {
	if whole {
		l.MinAllocate = 0
		l.PreAllocate = 0
	}
	var knobs []string
	for _, limit := range []struct {
		name string
		n    int
	}{{"min-allocate", l.MinAllocate}, {"pre-allocate", l.PreAllocate}, {"max-allocate", l.MaxAllocate}} {
		if limit.n != 0 {
			knobs = append(knobs, fmt.Sprintf("%s %d", limit.name, limit.n))
		}
	}
	if len(knobs) > 0 {
		s.Line("Its CiliumNode asks for %s as well.", strings.Join(knobs, ", "))
	}
}

func texts[T fmt.Stringer](list []T) []string {
	out := make([]string, 0, len(list))
	for _, v := range list {
		out = append(out, v.String())
	}
	slices.Sort(out)
	return out
}
