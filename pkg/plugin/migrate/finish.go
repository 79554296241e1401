package migrate

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/util/retry"

	"github.com/cilium-pool/cilium-pool-operator/pkg/adopt"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/config"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cli"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/pkg/suggest"
)

func newFinish(e *cli.Env) *cobra.Command {
	var s choice
	dryRun := false
	settle := config.DefaultSettings().AgentSettle
	cmd := &cobra.Command{
		Use:   "finish",
		Short: "End a move: remove the old mode's leftovers; after it there is no way back",
		Long: `Verifies that the agents of these nodes run steadily in the new mode, reported their
addresses or requests there, and will start in it again; then removes the leftovers of
the old mode from their CiliumNodes. Until then the operator assigns blocks that they
name to no other node:

  in crd mode         spec.ipam.pools, and the labels of blocks that name their source.
                      After it, migrate abort has no effect
  in multi-pool mode  addresses in spec.ipam.pool, podCIDRs, and the agent's report in
                      status.ipam, but only CIDRs and addresses that lie in a block or
                      a PodIPPool

It writes only once every node that came from another IPAM has settled. A node that
moved between two modes of this operator (docs/modes.md) waits for itself alone.`,
		Example: cli.Examples("migrate finish --dry-run", "migrate finish", "migrate finish -l zone=a"),
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			m, err := readMigration(cmd.Context(), e, &s)
			if err != nil {
				return err
			}
			if reasons := m.unfinished(settle); len(reasons) > 0 {
				for _, r := range reasons {
					fmt.Fprintln(e.ErrOut, r)
				}
				fmt.Fprintln(e.ErrOut, "nothing was written")
				return cli.NotReached
			}
			return m.finish(cmd.Context(), settle, dryRun)
		},
	}
	s.addFlags(e, cmd, false)
	cmd.Flags().BoolVar(&dryRun, "dry-run", dryRun, "print the changes, without a write")
	cmd.Flags().DurationVar(&settle, "settle-time", settle, "time that an agent must have been Ready, and that pods must have run to be expected in its report")
	return cmd
}

func (m *migration) unfinished(settle time.Duration) []string {
	var out []string
	for _, r := range m.rows(settle) {
		if m.finishing(r.Node, settle).betweenModes() {
			continue
		}
		if !r.Step.Reached(adopt.Settled) {
			out = append(out, fmt.Sprintf("node %s is %s: %s", r.Node, r.Step, r.Next))
		} else if r.Step == adopt.Settled && r.Mode != "" && r.Mode != m.newMode.String() {
			out = append(out, fmt.Sprintf("node %s: its agent would start in %s mode: set ipam=%s in cilium-config, or in the CiliumNodeConfig that is for it", r.Node, r.Mode, m.newMode))
		}
	}
	return out
}

func (m *migration) finish(ctx context.Context, settle time.Duration, dryRun bool) error {
	done := map[bool]string{false: "finished", true: "would be finished"}[dryRun]
	code := error(nil)
	idle := true
	for _, name := range m.names() {
		f := m.finishing(name, settle)
		if len(f.adopted) == 0 && f.left(m.cluster.State.Ledger.CiliumNode(name)) == "" {
			continue
		}
		var leftovers, refused string
		err := retry.RetryOnConflict(retry.DefaultBackoff, func() (err error) {
			leftovers, refused, err = f.once(ctx, dryRun)
			return err
		})
		if err != nil {
			return err
		}
		if len(f.adopted) == 0 && leftovers == "" { // none of it is ours
			continue
		}
		idle = false
		if refused != "" {
			fmt.Fprintf(m.env.ErrOut, "node/%s stays as it is: %s\n", name, refused)
			code = cli.NotReached
			continue
		}
		// The labels last: they mark this as unfinished.
		for _, b := range f.adopted {
			if !dryRun {
				if err := m.unlabel(ctx, b); err != nil {
					return err
				}
			}
		}
		var parts []string
		if len(f.adopted) > 0 {
			parts = append(parts, suggest.Count(len(f.adopted), "block"))
		}
		if leftovers != "" {
			parts = append(parts, "removed: "+leftovers)
		}
		fmt.Fprintf(m.env.Out, "node/%s %s (%s)\n", name, done, strings.Join(parts, "; "))
	}
	if idle {
		fmt.Fprintln(m.env.ErrOut, "nothing to finish")
	}
	return code
}

func (m *migration) unlabel(ctx context.Context, b crd.Block) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		live, err := m.stillThere(ctx, b)
		if err != nil || live == nil {
			return err
		}
		return m.label(ctx, live, "")
	})
}

// finishing is one node, as read together with all others.
type finishing struct {
	nodes    *ciliumnode.Client
	pools    *state.Pools
	progress adopt.Progress
	// mode is the mode that its agent starts in.
	mode ciliumnode.Mode
	// adopted are its blocks that say where they came from.
	adopted []crd.Block
}

func (m *migration) finishing(name string, settle time.Duration) *finishing {
	f := &finishing{
		nodes: m.ciliumNodes(), pools: m.cluster.State.Pools,
		progress: m.progressOf(name, settle), mode: ciliumnode.Mode(m.config.Mode(m.cluster.Nodes[name].Labels)),
	}
	for _, b := range f.progress.Blocks {
		if b.AdoptedFrom != "" {
			f.adopted = append(f.adopted, b)
			f.mode = m.newMode
		}
	}
	return f
}

// betweenModes reports whether the node moved from crd to multi-pool mode of this operator: blocks
// cover all its allocations.
func (f *finishing) betweenModes() bool {
	return f.mode == ciliumnode.MultiPool && len(f.adopted) == 0 && len(f.progress.Blocks) > 0 && f.progress.From != adopt.MultiPool && f.progress.Back == ""
}

// once reads the live CiliumNode, and removes from exactly that version the leftovers of the other
// mode. leftovers describes that, and refused why the node cannot be finished.
func (f *finishing) once(ctx context.Context, dryRun bool) (leftovers, refused string, err error) {
	live, err := f.nodes.Live(ctx, f.progress.Name)
	if err != nil || live == nil {
		return "", "", err
	}
	if leftovers = f.left(live); leftovers != "" || len(f.adopted) > 0 {
		refused, err = f.unsure(ctx, live)
	}
	if refused != "" || err != nil || dryRun {
		return leftovers, refused, err
	}
	if f.mode == ciliumnode.CRD {
		_, err = f.nodes.DropAllocations(ctx, live)
	} else if leftovers != "" {
		if live, err = f.nodes.Retract(ctx, live, f.ours(live), true); err == nil {
			_, err = f.nodes.ForgetReport(ctx, live)
		}
	}
	return leftovers, refused, err
}

// left describes the leftovers of another mode than the agent's in a CiliumNode.
func (f *finishing) left(view *ciliumnode.View) string {
	if view == nil {
		return ""
	}
	if view.BlockAssignment != nil { // once knows more
		if w := view.BlockAssignment; len(w.LeftCIDRs)+w.LeftAddresses+len(view.Release) > 0 || w.LeftReport {
			return "leftovers"
		}
		return ""
	}
	if f.mode == ciliumnode.MultiPool {
		return f.addressesLeft(view)
	}
	if len(view.Allocated) == 0 {
		return ""
	}
	return suggest.Count(len(view.Allocated), "CIDR") + " in spec.ipam.pools"
}

// unsure returns why it is uncertain that the agent runs in its mode with all addresses of its
// pods.
func (f *finishing) unsure(ctx context.Context, live *ciliumnode.View) (string, error) {
	switch f.mode {
	case ciliumnode.CRD:
		return f.notInCRD(live), nil
	case ciliumnode.MultiPool:
		return f.notInMultiPool(ctx, live)
	}
	return fmt.Sprintf("its agent starts in mode %q: cilium-config has to name crd or multi-pool", f.mode), nil
}

// ours returns the node's blocks, and everything else in its pool and podCIDRs that lies in
// ranges of PodIPPools: blocks that it has returned since.
func (f *finishing) ours(live *ciliumnode.View) []netip.Prefix {
	out := crd.CIDRs(f.progress.Blocks)
	isOurs := func(cidr netip.Prefix) bool {
		return slices.ContainsFunc(f.pools.Names(), func(name string) bool {
			pool := f.pools.Get(name)
			return pool != nil && pool.Contains(cidr)
		})
	}
	for _, cidr := range live.PodCIDRs {
		if !slices.Contains(out, cidr) && isOurs(cidr) {
			out = append(out, cidr)
		}
	}
	for a := range live.Addresses.Pool {
		if single := netip.PrefixFrom(a, a.BitLen()); !ipalloc.Covered(single, out) && isOurs(single) {
			out = append(out, single)
		}
	}
	return out
}

// addressesLeft describes the leftovers of crd mode.
func (f *finishing) addressesLeft(live *ciliumnode.View) string {
	var parts []string
	ours := f.ours(live)
	addresses := 0
	listed := 0
	for a := range live.Addresses.Pool {
		if slices.ContainsFunc(ours, func(b netip.Prefix) bool { return b.Contains(a) }) {
			addresses++
		}
	}
	for _, cidr := range live.PodCIDRs {
		if slices.Contains(ours, cidr) {
			listed++
		}
	}
	if addresses > 0 {
		parts = append(parts, suggest.Plural(addresses, "address", "addresses")+" in spec.ipam.pool")
	}
	if listed > 0 {
		parts = append(parts, suggest.Count(listed, "podCIDR"))
	}
	if len(live.Used)+len(live.Release) > 0 {
		parts = append(parts, "an old report")
	}
	return strings.Join(parts, ", ")
}

// notInCRD returns why it is uncertain that the agent runs in crd mode with all addresses of
// its pods.
func (f *finishing) notInCRD(live *ciliumnode.View) string {
	if !f.progress.Settled {
		return "its agent has not been Ready for long enough"
	}
	if len(live.Used) == 0 {
		return "its agent reports nothing, so it does not run in crd mode: restart it"
	}
	if f.progress.Unreported > 0 {
		return fmt.Sprintf("its agent does not report %s of pods yet", suggest.Plural(f.progress.Unreported, "address", "addresses"))
	}
	return ""
}

// reports describes an agent of this image that has left a report of crd mode in its CiliumNode.
// Agents before Cilium 1.20 do not remove it in multi-pool mode. An agent in crd mode would report
// again.
func reports(node, image string) string {
	if minor, known := adopt.MinorOf(image); known && minor >= 20 {
		return "its agent reports addresses, so it runs in crd mode: restart it"
	}
	return "its agent runs in crd mode, or left its report there, as agents before Cilium 1.20 do: restart it. If it has restarted in multi-pool mode, " +
		"remove the report: kubectl patch ciliumnode " + node + ` --subresource=status --type=merge -p '{"status":{"ipam":{"used":null}}}'`
}

// notInMultiPool returns why it is uncertain that the agent runs in multi-pool mode with all
// addresses of its pods. An agent in that mode has no report, and removes an older one (Cilium
// v1.20.1, pkg/ipam/multipool_manager.go, updateLocalNode).
func (f *finishing) notInMultiPool(ctx context.Context, live *ciliumnode.View) (string, error) {
	multiPool, err := (&ciliumnode.Client{Reader: f.nodes.Reader, Mode: ciliumnode.MultiPool}).Live(ctx, f.progress.Name)
	if err != nil || multiPool == nil {
		return "it has no CiliumNode", err
	}
	if !f.progress.Settled {
		return "its agent has not been Ready for long enough", nil
	}
	if len(live.Used) > 0 {
		return reports(f.progress.Name, f.progress.Agent), nil
	}
	if !multiPool.BlockAssignment.Reported() {
		return "its agent asks for nothing in spec.ipam.pools, so it does not run in multi-pool mode: restart it", nil
	}
	ours := f.ours(live)
	for a, user := range f.progress.Used {
		if single := netip.PrefixFrom(a, a.BitLen()); ipalloc.Covered(single, ours) && !ipalloc.Covered(single, multiPool.ListedInAnyPool()) {
			return fmt.Sprintf("%s has %s, and its block is not assigned to the agent: let the operator run with --mode=multi-pool", user, a), nil
		}
	}
	return "", nil
}
