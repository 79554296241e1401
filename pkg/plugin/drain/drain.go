// Package drain is kubectl cilium-pool drain.
package drain

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/clusterview"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cli"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/list"
	"github.com/cilium-pool/cilium-pool-operator/pkg/suggest"
)

type flags struct {
	dryRun, undo, now, yes, wait bool
	timeout                      time.Duration
	evict, emptyDirs             bool
	maxConcurrent                int

	newRange                     string
	status, abort, restartAgents bool
	maxRestarts                  int
}

func (f *flags) validate() error {
	if f.newRange == "" && (f.status || f.abort || f.restartAgents) {
		return cli.Usagef("--status, --abort and --restart-agents need --to")
	}
	if f.evict && !f.wait && !f.dryRun {
		return cli.Usagef("--evict has to wait: omit --wait=false")
	}
	if f.maxConcurrent < 1 {
		return cli.Usagef("--max-concurrent is %d: must be 1 or more", f.maxConcurrent)
	}
	if f.maxRestarts < 1 {
		return cli.Usagef("--max-restarts is %d: must be 1 or more", f.maxRestarts)
	}
	return nil
}

func cannotEvict(mode ciliumnode.Mode, parks bool) error {
	if mode == ciliumnode.MultiPool && !parks {
		return cli.Usagef("in multi-pool mode agents may give addresses of a draining block to new pods: --evict needs an operator with --park-draining-blocks; otherwise kubectl drain its Node")
	}
	if mode == ciliumnode.Kubernetes {
		return cli.Usagef("in %s mode agents give addresses of a draining block to new pods: --evict is not supported; kubectl drain its Node", mode)
	}
	return nil
}

const about = `Moves nodes off the blocks of a pool, of a CIDR of a pool, or off one block. Each
node returns the block as its pods go: without --evict no pod is evicted. In crd and
delegated-plugin mode the node gets a replacement first. In multi-pool mode its agent
asks for one when it needs it, and new pods still get addresses of the block unless the
operator runs with --park-draining-blocks. In kubernetes mode a block stays as long as
its Node.

It shows the obstacles until every block cools down, or until only users can help:
restart the agents that it names (delete their pods), and call it again. In multi-pool
and kubernetes mode an agent keeps its addresses as long as its Node exists.

For a pool or a CIDR it sets allocationPolicy: Drain in the pool's spec; --undo sets
Allocate again. For a block it sets spec.drain: true; --undo removes it. Blocks wait for
the pool's maintenance windows and rate, unless --now deletes each of them, which cannot
be undone: a finalizer keeps the object until the node has released it.

--evict evicts the pods of each block that has begun to drain, by the Eviction API: a
pod that a PodDisruptionBudget protects is tried again every 5 seconds. Pods of a
DaemonSet come back on their node with another address. Left alone, and named, are
static pods, pods without a controller, and pods with an emptyDir volume unless
--delete-emptydir-data is set. A successor that gets an address of the block again is
evicted again. Nodes are not cordoned.

--to CIDR|POOL renumbers, in crd and delegated-plugin mode: nodes get another range, and
the drained one is taken out. It prints a plan, asks, and then

 1. adds the new CIDR to the pool and lets the old one drain, in one write; of two
    pools, lets all CIDRs of the old one drain
 2. with --evict, evicts the pods as above
 3. names the agents that have addresses of their own in the old range. With
    --restart-agents it restarts each once only the agent keeps its node's blocks:
    --max-restarts at a time, one of a zone, and the next once all agents but those of
    nodes that are off are Ready, and no block is leaving
 4. waits until the last block has cooled down, and takes the old CIDR out of the
    pool, with its reserved ranges, or deletes the old pool
 5. verifies that no PodIPBlock and no CiliumNode names an address of it

Stop it at any time, and call it again to go on. --abort lets the old range serve again,
at any time before step 4: blocks of the new one stay.`

// New returns the command drain.
func New(e *cli.Env) *cobra.Command {
	f := flags{wait: true, maxConcurrent: 5, maxRestarts: 1}
	cmd := &cobra.Command{
		Use:   "drain POOL|CIDR|BLOCK",
		Short: "Move nodes off a pool, a CIDR of a pool or a block, and show the obstacles",
		Long:  about,
		Example: cli.Examples("drain 10.20.0.0-27 --dry-run", "drain 10.20.0.0/16", "drain old-pool --wait=false", "drain 10.20.0.0/16 --undo", "drain 10.20.0.0/16 --evict --dry-run", "drain 10.20.0.0/16 --now --yes",
			"drain 10.20.0.0/16 --to 10.60.0.0/16 --dry-run", "drain 10.20.0.0/16 --to 10.60.0.0/16 --evict --restart-agents", "drain 10.20.0.0/16 --to 10.60.0.0/16 --status", "drain old-pool --to new-pool --evict"),
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.validate(); err != nil {
				return err
			}
			c, err := e.ReadAll(cmd.Context())
			if err != nil {
				return err
			}
			e.WarnNoLeader(c)
			if f.newRange != "" {
				return renumber(cmd.Context(), e, c, args[0], f)
			}
			t, err := parseTarget(c, args[0])
			if err != nil {
				return err
			}
			return run(cmd.Context(), e, c, t, f)
		},
		ValidArgsFunction: e.CompletePools,
	}
	f.add(cmd, e)
	return cmd
}

func (f *flags) add(cmd *cobra.Command, e *cli.Env) {
	fs := cmd.Flags()
	fs.BoolVar(&f.dryRun, "dry-run", f.dryRun, "print what would be done and who uses it, and change nothing")
	fs.BoolVar(&f.undo, "undo", f.undo, "take back the drain of a pool, a CIDR or a block")
	fs.BoolVar(&f.now, "now", f.now, "begin with every block at once, whatever the pool's maintenance windows and rate")
	fs.BoolVarP(&f.yes, "yes", "y", f.yes, "with --now or --to: do not ask whether to go on")
	fs.BoolVar(&f.evict, "evict", f.evict, "evict the pods of each block that has begun to drain")
	fs.IntVar(&f.maxConcurrent, "max-concurrent", f.maxConcurrent, "with --evict: number of pods that may be on their way out at a time")
	fs.BoolVar(&f.emptyDirs, "delete-emptydir-data", f.emptyDirs, "with --evict: also evict pods with emptyDir volumes, losing their data")
	fs.BoolVar(&f.wait, "wait", f.wait, "wait until every block cools down, and show the obstacles")
	fs.DurationVar(&f.timeout, "timeout", f.timeout, "time to wait; 0: without end")
	fs.StringVar(&f.newRange, "to", "", "renumber: the CIDR that the pool gets instead, or another pool")
	fs.BoolVar(&f.status, "status", false, "with --to: print the step reached, and write nothing")
	fs.BoolVar(&f.abort, "abort", false, "with --to: let the old range serve again")
	fs.BoolVar(&f.restartAgents, "restart-agents", false, "with --to: restart the agents that have addresses of their own in the old range")
	fs.IntVar(&f.maxRestarts, "max-restarts", f.maxRestarts, "with --restart-agents: how many agents may restart at a time, one of a zone")
	_ = cmd.RegisterFlagCompletionFunc("to", e.CompletePools)
	for _, pair := range [][]string{{"undo", "now"}, {"undo", "evict"}, {"undo", "to"}, {"now", "to"}, {"wait", "to"}, {"status", "abort"}} {
		cmd.MarkFlagsMutuallyExclusive(pair...)
	}
}

func run(ctx context.Context, e *cli.Env, c *clusterview.Cluster, t target, f flags) error {
	if err := cannotEvict(c.Objects.Mode, c.Operator.Settings.ParkBlocks); f.evict && err != nil {
		return err
	}
	rows := leavingRows(c, t)
	if err := cannotUndo(t); f.undo && err != nil {
		return err
	}
	if !f.undo {
		warnPinned(e, c, t)
	}
	if f.dryRun && f.undo {
		fmt.Fprintf(e.Out, "would take back the drain of %s: %s\n", t.name, suggest.Count(len(rows), "block"))
		return nil
	}
	if f.dryRun {
		fmt.Fprintf(e.Out, "would drain %s: %s\n", t.name, suggest.Count(len(rows), "block"))
		for _, r := range rows {
			fmt.Fprintf(e.Out, "  %s on %s: %d of %d addresses in use\n", r.Block, r.Node, r.Used, r.Addresses)
		}
		if f.evict {
			_, err := newEvicter(e, c.Client, f).plan(ctx, podsIn(c, rows))
			return err
		}
		return nil
	}
	if f.undo {
		if err := request(ctx, c, t, false); err != nil {
			return err
		}
		fmt.Fprintf(e.Out, "%s drains no more\n", t.name)
		return nil
	}
	if err := start(ctx, e, c, t, rows, f); err != nil {
		return err
	}
	fmt.Fprintf(e.Out, "%s drains: %s\n", t.name, suggest.Count(len(rows), "block"))
	if !f.wait {
		return nil
	}
	return followDrain(ctx, e, t, f)
}

// cannotUndo returns why the drain of a block does not end by spec.drain.
func cannotUndo(t target) error {
	b := t.block
	if b == nil {
		return nil
	}
	if b.Deleting {
		return fmt.Errorf("%s is being deleted: that cannot be undone", t.name)
	}
	if b.Phase == ipalloc.Draining && !b.Drain && b.Reason != expand.DrainRequested {
		return fmt.Errorf("%s does not drain by spec.drain, but by itself (%s): end that of its CIDR or pool, or see kubectl cilium-pool explain %s", t.name, b.Reason, b.Node)
	}
	return nil
}

func warnPinned(e *cli.Env, c *clusterview.Cluster, t target) {
	if t.block == nil {
		return
	}
	if c.State.Ledger.Pins.IsPinned(*t.block) {
		fmt.Fprintf(e.ErrOut, "warning: %s is pinned to %s, which claims it again: to give it up, first kubectl delete podippin %s\n", t.name, t.block.Node, t.block.Name)
	}
	if owner := c.State.Ledger.Pins.OwnerOf(t.block.CIDR); owner != "" {
		fmt.Fprintf(e.ErrOut, "warning: %s is kept for %s, whose next pod gets it again: to give it up, first kubectl delete podippin %s\n", t.name, crd.OwnerWords(owner), t.block.Name)
	}
}

// start requests the drain; with --now it also deletes each block.
func start(ctx context.Context, e *cli.Env, c *clusterview.Cluster, t target, rows []list.BlockRow, f flags) error {
	if f.now && !f.yes && len(rows) > 0 {
		err := e.Confirm(fmt.Sprintf("--now deletes %s of %s, and --undo does not bring them back.", suggest.Count(len(rows), "PodIPBlock"), t.name))
		if err != nil {
			return err
		}
	}
	if err := request(ctx, c, t, true); err != nil || !f.now {
		return err
	}
	for _, r := range rows {
		if b, _ := c.State.Ledger.Block(r.CIDR); !b.Deleting {
			if err := c.DeleteBlock(ctx, b); err != nil {
				return err
			}
		}
	}
	return nil
}

// request sets spec.drain of a block, or the policy of a pool or a CIDR.
func request(ctx context.Context, c *clusterview.Cluster, t target, drain bool) error {
	if t.block == nil {
		return setPolicy(ctx, c, t, drain)
	}
	value := "null"
	if drain {
		value = "true"
	}
	return c.PatchBlock(ctx, *t.block, fmt.Sprintf(`{"metadata":{"uid":%q},"spec":{"drain":%s}}`, t.block.UID, value))
}

func setPolicy(ctx context.Context, c *clusterview.Cluster, t target, drain bool) error {
	edit := func(pool *v1alpha1.PodIPPool) {
		for _, entry := range entriesIn(pool, t.ranges) {
			if drain {
				entry.AllocationPolicy = v1alpha1.AllocationDrain
			} else if entry.AllocationPolicy == v1alpha1.AllocationDrain { // a cordoned range stays so
				entry.AllocationPolicy = v1alpha1.AllocationAllocate
			}
		}
	}
	return patchPool(ctx, c, c.PodIPPools[t.pool], edit, false)
}

// target is the subject of a drain: one block, or ranges of a pool.
type target struct {
	name   string
	block  *crd.Block // nil: ranges
	pool   string
	ranges []netip.Prefix
	// outside: the blocks outside ranges, too, which may have been taken out of the pool.
	outside bool
}

// parseTarget parses the argument: a block, a pool's CIDR, or a pool.
func parseTarget(c *clusterview.Cluster, name string) (target, error) {
	cidr, err := netip.ParsePrefix(name)
	if block, blockErr := crd.ParseBlockName(name); err != nil && blockErr == nil {
		cidr = block
		err = nil
	}
	if err == nil {
		if pool, ok := poolOfRange(c, cidr); ok {
			return target{name: fmt.Sprintf("CIDR %s of pool %s", cidr, pool), pool: pool, ranges: []netip.Prefix{cidr}}, nil
		}
		if b, ok := c.State.Ledger.Block(cidr); ok {
			return target{name: "block " + b.Name, block: &b, pool: b.Pool, ranges: []netip.Prefix{cidr}}, nil
		}
	}
	if pool := c.PodIPPools[name]; pool != nil {
		return target{name: "pool " + name, pool: name, ranges: crd.CIDRsIn(&pool.Spec), outside: true}, nil
	}
	return target{}, fmt.Errorf("%s is neither a block, nor a CIDR in the spec of a pool, nor a pool", name)
}

func poolOfRange(c *clusterview.Cluster, cidr netip.Prefix) (string, bool) {
	for _, name := range c.State.Pools.Names() {
		if slices.Contains(crd.CIDRsIn(&c.PodIPPools[name].Spec), cidr) {
			return name, true
		}
	}
	return "", false
}

// entriesIn returns the entries of a pool's spec with these ranges, to be modified in place.
func entriesIn(pool *v1alpha1.PodIPPool, ranges []netip.Prefix) []*v1alpha1.PoolCIDR {
	var entries []*v1alpha1.PoolCIDR
	for _, r := range crd.RangesIn(&pool.Spec) {
		for i := range *r.CIDRs {
			if isOneOf(ranges)((*r.CIDRs)[i]) {
				entries = append(entries, &(*r.CIDRs)[i])
			}
		}
	}
	return entries
}

// isOneOf reports whether an entry of a pool's spec is one of these ranges.
func isOneOf(ranges []netip.Prefix) func(v1alpha1.PoolCIDR) bool {
	return func(entry v1alpha1.PoolCIDR) bool {
		p, err := netip.ParsePrefix(entry.CIDR)
		return err == nil && slices.Contains(ranges, p)
	}
}

// leavingRows returns the blocks of the target that do not cool down yet.
func leavingRows(c *clusterview.Cluster, t target) []list.BlockRow {
	var rows []list.BlockRow
	for _, r := range list.BlockRows(c, list.BlockFilter{Pool: t.pool}) {
		if r.Phase != ipalloc.CoolingDown.String() && (t.outside || ipalloc.Covered(r.CIDR, t.ranges)) {
			rows = append(rows, r)
		}
	}
	return rows
}
