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
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cli"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/exit"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/output"
)

func newTidy(e *cli.Env) *cobra.Command {
	s := choice{asked: true}
	dryRun, settle := false, controller.DefaultSettings().AgentSettle
	cmd := &cobra.Command{
		Use:   "tidy --node NODE|-l SELECTOR|--all",
		Short: "After a move between crd and multi-pool mode: take away what the other mode left",
		Long: `For nodes that moved between two modes of this operator (docs/modes.md), and whose
agents run in the new one. No agent reads what the old mode left in their CiliumNodes,
and while it is there, the operator assigns blocks that it names to no other node:

  in multi-pool mode  addresses in spec.ipam.pool, podCIDRs, and what the agent had
                      reported in status.ipam
  in crd mode         spec.ipam.pools

In multi-pool mode, what lies in no block and no PodIPPool stays; in crd mode all of
spec.ipam.pools goes. A node is left alone where it is not sure which mode its agent
runs in: cilium-config (and CiliumNodeConfigs) must name the mode it starts in, it must
have been Ready for --settle-time, and have reported in that mode's fields what it
uses or requests.

Exit codes: 0 nothing of another mode is left, 3 some nodes still have it: the output says why,
1 it failed; run it again.`,
		Example: cli.Examples("migrate tidy --all --dry-run", "migrate tidy --node edge-01", "migrate tidy --all"),
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			m, err := readMove(cmd.Context(), e, &s)
			if err != nil {
				return err
			}
			return m.tidy(cmd.Context(), settle, dryRun)
		},
	}
	s.addFlags(e, cmd)
	cmd.Flags().BoolVar(&dryRun, "dry-run", dryRun, "say what would be taken away, and write nothing")
	cmd.Flags().DurationVar(&settle, "settle-time", settle, "how long an agent must have been Ready, and pods have run to be expected in its report")
	return cmd
}

func (m *move) tidy(ctx context.Context, settle time.Duration, dryRun bool) error {
	code := error(nil)
	for _, name := range m.names() {
		t := tidying{move: m, name: name, settled: m.standing(name, settle)}
		var left, refused string
		err := retry.RetryOnConflict(retry.DefaultBackoff, func() (err error) {
			left, refused, err = t.once(ctx, dryRun)
			return err
		})
		switch {
		case err != nil:
			return err
		case refused != "":
			fmt.Fprintf(m.env.ErrOut, "node/%s stays as it is: %s\n", name, refused)
			code = exit.NotReached
		case left != "" && dryRun:
			fmt.Fprintf(m.env.Out, "node/%s would lose %s\n", name, left)
		case left != "":
			fmt.Fprintf(m.env.Out, "node/%s has lost %s\n", name, left)
		default:
			fmt.Fprintf(m.env.Out, "node/%s has nothing left of another mode\n", name)
		}
	}
	return code
}

// tidying is one node, as read together with all others.
type tidying struct {
	*move
	name    string
	settled adopt.Standing
}

// once reads the live CiliumNode, and removes from exactly that version what the other mode
// left. left describes that, and refused why it must stay.
func (t *tidying) once(ctx context.Context, dryRun bool) (left, refused string, err error) {
	nodes := t.ciliumNodes()
	live, err := nodes.Live(ctx, t.name)
	if err != nil || live == nil {
		return "", "", err
	}
	mode := ciliumnode.Mode(t.config.Mode(t.Nodes[t.name].Labels))
	left, refused, err = t.leftovers(ctx, mode, live)
	switch {
	case left == "" || refused != "" || err != nil || dryRun:
	case mode == ciliumnode.CRD:
		_, err = nodes.DropPools(ctx, live)
	default:
		err = t.retract(ctx, nodes, live)
	}
	return left, refused, err
}

// leftovers describes what another mode than the agent's left, and why it must stay.
func (t *tidying) leftovers(ctx context.Context, mode ciliumnode.Mode, live *ciliumnode.View) (left, refused string, err error) {
	switch mode {
	case ciliumnode.CRD:
		if left = poolsLeft(live); left != "" {
			refused = t.notInCRD(live)
		}
	case ciliumnode.MultiPool:
		if left = t.addressesLeft(live); left != "" {
			refused, err = t.notInMultiPool(ctx, live)
		}
	default:
		refused = fmt.Sprintf("its agent starts in mode %q, which leaves nothing to tidy", mode)
	}
	return left, refused, err
}

func (t *tidying) retract(ctx context.Context, nodes *ciliumnode.Client, live *ciliumnode.View) error {
	live, err := nodes.Retract(ctx, live, t.ours(live), true)
	if err == nil {
		_, err = nodes.ForgetReport(ctx, live)
	}
	return err
}

// ours returns the node's blocks, and everything else in its pool and podCIDRs that lies in
// ranges of PodIPPools: blocks that it has returned since.
func (t *tidying) ours(live *ciliumnode.View) []netip.Prefix {
	out := crd.CIDRs(t.Ledger.NodeBlocks(t.name))
	of := func(cidr netip.Prefix) bool {
		return slices.ContainsFunc(t.Pools.Names(), func(name string) bool {
			pool := t.Pools.Get(name)
			return pool != nil && pool.Holds(cidr)
		})
	}
	for _, cidr := range live.PodCIDRs {
		if !slices.Contains(out, cidr) && of(cidr) {
			out = append(out, cidr)
		}
	}
	for a := range live.Pool {
		if single := netip.PrefixFrom(a, a.BitLen()); !ipalloc.Covered(single, out) && of(single) {
			out = append(out, single)
		}
	}
	return out
}

// poolsLeft describes what multi-pool mode left.
func poolsLeft(live *ciliumnode.View) string {
	if len(live.Allocated) == 0 {
		return ""
	}
	return output.Count(len(live.Allocated), "CIDR") + " in spec.ipam.pools"
}

// addressesLeft describes what crd mode left.
func (t *tidying) addressesLeft(live *ciliumnode.View) string {
	var parts []string
	ours, addresses, listed := t.ours(live), 0, 0
	for a := range live.Pool {
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
		parts = append(parts, output.Plural(addresses, "address", "addresses")+" in spec.ipam.pool")
	}
	if listed > 0 {
		parts = append(parts, output.Count(listed, "podCIDR"))
	}
	if len(live.Used)+len(live.Release) > 0 {
		parts = append(parts, "an old report")
	}
	return strings.Join(parts, ", ")
}

// notInCRD returns why it is uncertain that the agent runs in crd mode with all addresses of
// its pods.
func (t *tidying) notInCRD(live *ciliumnode.View) string {
	switch {
	case !t.settled.Settled:
		return "its agent has not been Ready for long enough"
	case len(live.Used) == 0:
		return "its agent reports nothing, so it does not run in crd mode: restart it"
	case t.settled.Unreported > 0:
		return fmt.Sprintf("its agent does not report %s of pods yet", output.Plural(t.settled.Unreported, "address", "addresses"))
	}
	return ""
}

// reports describes an agent, of this image, whose CiliumNode has a report of crd mode. Agents
// before Cilium 1.20 do not remove it in multi-pool mode. One that runs in crd mode would report
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
func (t *tidying) notInMultiPool(ctx context.Context, live *ciliumnode.View) (string, error) {
	multiPool, err := (&ciliumnode.Client{Reader: t.Client, Mode: ciliumnode.MultiPool}).Live(ctx, t.name)
	switch {
	case err != nil || multiPool == nil:
		return "it has no CiliumNode", err
	case !t.settled.Settled:
		return "its agent has not been Ready for long enough", nil
	case len(live.Used) > 0:
		return reports(t.name, t.agentImage(t.name)), nil
	case !multiPool.BlockDemand.Reported():
		return "its agent asks for nothing in spec.ipam.pools, so it does not run in multi-pool mode: restart it", nil
	}
	ours := t.ours(live)
	for a, by := range t.Users(t.name) {
		if single := netip.PrefixFrom(a, a.BitLen()); ipalloc.Covered(single, ours) && !ipalloc.Covered(single, multiPool.Listed()) {
			return fmt.Sprintf("%s has %s, and its block is not assigned to the agent: let the operator run with --mode=multi-pool", by, a), nil
		}
	}
	return "", nil
}
