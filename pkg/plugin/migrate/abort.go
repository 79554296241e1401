package migrate

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/adopt"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumconfig"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cli"
	"github.com/cilium-pool/cilium-pool-operator/pkg/suggest"
)

func newAbort(e *cli.Env) *cobra.Command {
	var s choice
	target := ""
	dryRun := false
	patience := 45 * time.Second
	cmd := &cobra.Command{
		Use:   "abort --node NODE|-l SELECTOR|--all",
		Short: "Take nodes back to the IPAM mode they came from",
		Long: `Takes nodes back to the IPAM mode they came from, every pod keeping its address; at
any step until finish.

If the agent does not run in the new mode, what was published for it leaves its
CiliumNode, and the blocks are deleted at once.

If it does, abort first prepares the node: it pauses the operator there, and for
multi-pool mode writes its blocks to spec.ipam.pools. Then restart its agent in the old
mode, and run abort again. It refuses if the old mode cannot express the node's
addresses: cluster-pool and kubernetes mode know one CIDR of a family, the node's old
one.

An agent in the new mode answers the question for a report within its update rate, in
multi-pool mode within a minute more; --answer-timeout is the time to wait for that.`,
		Example: cli.Examples("migrate abort --node edge-01", "migrate abort --all --to-mode multi-pool", "migrate abort -l zone=a --dry-run"),
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !slices.Contains([]adopt.Source{adopt.None, adopt.ClusterPool, adopt.Kubernetes, adopt.MultiPool}, adopt.Source(target)) {
				return cli.Usagef("--to-mode is %s: must be cluster-pool, kubernetes or multi-pool", target)
			}
			m, err := readMigration(cmd.Context(), e, &s)
			if err != nil {
				return err
			}
			if m.newMode == ciliumnode.MultiPool && !cmd.Flags().Changed("answer-timeout") {
				patience += refreshInterval
			}
			a := aborting{env: e, m: m, nodes: m.ciliumNodes(), patience: patience}
			return a.run(cmd.Context(), adopt.Source(target), dryRun)
		},
	}
	s.addFlags(e, cmd, true)
	cmd.Flags().StringVar(&target, "to-mode", target, "cluster-pool, kubernetes or multi-pool; empty: where each node came from")
	cmd.Flags().DurationVar(&patience, "answer-timeout", patience, "time to wait for an agent's answer; at least three times the agents' --ipam-cilium-node-update-rate, in multi-pool mode a minute more")
	cmd.Flags().BoolVar(&dryRun, "dry-run", dryRun, "print the nodes that would be taken back, without a write")
	return cmd
}

type aborting struct {
	env      *cli.Env
	m        *migration
	nodes    *ciliumnode.Client
	patience time.Duration
}

type returning struct {
	name    string
	oldMode adopt.Source
	blocks  []crd.Block
	// refused is why it cannot be taken back, ready that it waits for its agent to restart.
	refused string
	ready   bool
}

// run takes all nodes through each step together, so that it waits for all agents at the same
// time.
func (a *aborting) run(ctx context.Context, target adopt.Source, dryRun bool) error {
	nodes := a.returning(target)
	if len(nodes) == 0 {
		fmt.Fprintln(a.env.ErrOut, "nothing to go back from")
		return nil
	}
	if dryRun {
		for _, r := range nodes {
			fmt.Fprintf(a.env.Out, "node/%s would go back to %s (%s)\n", r.name, r.oldMode, suggest.Count(len(r.blocks), "block"))
		}
		return nil
	}
	for _, r := range nodes {
		if r.refused = a.refusedAtOnce(r); r.refused == "" {
			if err := a.pause(ctx, r); err != nil {
				return err
			}
		}
	}
	modes, err := a.ask(ctx, nodes)
	if err != nil {
		return err
	}
	if err := a.readAgain(ctx, nodes); err != nil {
		return err
	}
	code := error(nil)
	for _, r := range nodes {
		if r.refused == "" {
			if err := a.takeBack(ctx, r, modes[r.name]); err != nil {
				return err
			}
		}
		if !a.report(r) {
			code = cli.NotReached
		}
	}
	return code
}

// report prints the outcome for a node, and returns whether it is back.
func (a *aborting) report(r *returning) bool {
	switch {
	case r.refused != "":
		fmt.Fprintf(a.env.ErrOut, "node/%s stays: %s\n", r.name, r.refused)
	case r.ready:
		fmt.Fprintf(a.env.Out, "node/%s is ready to go back: restart its agent in %s mode, then run this again\n", r.name, r.oldMode)
	default:
		fmt.Fprintf(a.env.Out, "node/%s is back (%s deleted)\n", r.name, suggest.Count(len(r.blocks), "block"))
		return true
	}
	return false
}

// returning returns the selected nodes that have anything to go back from.
func (a *aborting) returning(target adopt.Source) []*returning {
	var out []*returning
	for _, name := range a.m.names() {
		r := &returning{name: name, oldMode: target, blocks: a.m.cluster.State.Ledger.NodeBlocks(name)}
		begun := a.backTo(name)
		i := slices.IndexFunc(r.blocks, func(b crd.Block) bool { return b.AdoptedFrom != "" })
		if i < 0 && begun == "" {
			continue
		}
		if r.oldMode == adopt.None {
			r.oldMode = adopt.Source(begun)
		}
		if r.oldMode == adopt.None {
			r.oldMode = adopt.Source(r.blocks[i].AdoptedFrom)
		}
		out = append(out, r)
	}
	return out
}

// readAgain picks up writes of the operator before it saw the pause: a block created since the
// first read may have pods by now.
func (a *aborting) readAgain(ctx context.Context, nodes []*returning) error {
	m, err := readMigration(ctx, a.env, &choice{})
	if err != nil {
		return err
	}
	a.m = m
	for _, r := range nodes {
		r.blocks = m.cluster.State.Ledger.NodeBlocks(r.name)
		if m.cluster.Nodes[r.name] == nil {
			r.refused = "its Node is gone"
		}
	}
	return nil
}

// backTo returns the mode that a node is returning to.
func (a *aborting) backTo(name string) string {
	return a.m.cluster.Nodes[name].Annotations[v1alpha1.ReturningAnnotation]
}

// refusedAtOnce returns the reason why no step is even begun.
func (a *aborting) refusedAtOnce(r *returning) string {
	node := a.m.cluster.Nodes[r.name]
	if r.oldMode == adopt.CRD {
		return "its pool was filled by hand, and its agent ran in crd mode before: there is no other mode to go back to (--to-mode names one)"
	}
	if r.oldMode == adopt.Source(a.m.newMode) {
		return "it moves to that mode: --to-mode has to name the old one"
	}
	if a.m.cluster.State.Ledger.CiliumNode(r.name) == nil {
		return "it has no CiliumNode"
	}
	if a.m.newMode == ciliumnode.CRD && a.listsAdopted(r) {
		return "its old block is listed in spec.ipam.pools, for an agent in multi-pool mode: run this with --mode=multi-pool"
	}
	if a.backTo(r.name) == "" && node.Annotations[v1alpha1.PausedAnnotation] == "true" {
		return "it is paused: end that first (annotation " + v1alpha1.PausedAnnotation + ")"
	}
	return ""
}

// listsAdopted reports whether multi-pool mode lists a block that the node has from a mode without lists.
func (a *aborting) listsAdopted(r *returning) bool {
	listed := a.m.cluster.State.Ledger.CiliumNode(r.name).CIDRsAgentReads(ciliumnode.MultiPool)
	return r.oldMode != adopt.MultiPool && slices.ContainsFunc(r.blocks, func(b crd.Block) bool {
		return b.AdoptedFrom != "" && b.AdoptedFrom != string(adopt.MultiPool) && slices.Contains(listed, b.CIDR)
	})
}

// takeBack takes the steps that the mode of the node's agent allows.
func (a *aborting) takeBack(ctx context.Context, r *returning, mode agentMode) error {
	switch mode {
	case agentUnknown:
		r.refused = "its agent has not been Ready for long enough to tell which mode it runs in: see to it, then run this again"
		return nil
	case agentInNewMode:
		return a.prepare(ctx, r)
	}
	if next := a.m.config.Mode(a.m.cluster.Nodes[r.name].Labels); next == a.m.newMode.String() {
		r.refused = fmt.Sprintf("its agent does not run in %s mode, and would start in it: set ipam=%s for it first", next, r.oldMode)
		return a.resume(ctx, r)
	}
	return a.deleteBlocks(ctx, r)
}

// prepare prepares a node with an agent in the new mode, or refuses.
func (a *aborting) prepare(ctx context.Context, r *returning) error {
	live, err := a.nodes.Live(ctx, r.name)
	if err != nil {
		return err
	}
	if live == nil {
		r.refused = "its CiliumNode is gone: run this again once its agent has made another"
		return nil
	}
	facts := adopt.ReturnFacts{
		To: r.oldMode, PodCIDRs: live.PodCIDRs, NodePodCIDRs: nodePodCIDRs(a.m.cluster.Nodes[r.name]), Blocks: r.blocks, Used: a.m.cluster.Users(r.name),
	}
	if r.refused = facts.Refusal(); r.refused != "" {
		return a.resume(ctx, r)
	}
	r.ready = true
	if r.oldMode == adopt.MultiPool {
		_, err = a.nodes.Allocate(ctx, live, allocationsOf(live, r.blocks, a.m.defaultPool(r.name)))
	}
	return err
}

// allocationsOf are the blocks that are not cooling down, each of the CiliumPodIPPool
// that it was of, or of the default one: pods that were made in crd mode are of
// that (Cilium v1.20.1, pkg/ipam/allocator.go, allocateNextFamily), and are
// restored from no other.
func allocationsOf(live *ciliumnode.View, blocks []crd.Block, defaultPool string) []ciliumnode.Allocation {
	var out []ciliumnode.Allocation
	for _, b := range blocks {
		if b.Phase == ipalloc.CoolingDown {
			continue
		}
		index := slices.IndexFunc(live.Allocated, func(a ciliumnode.Allocation) bool { return a.CIDR == b.CIDR })
		if index >= 0 {
			out = append(out, live.Allocated[index])
		} else {
			out = append(out, ciliumnode.Allocation{CiliumPool: defaultPool, CIDR: b.CIDR})
		}
	}
	return out
}

// deleteBlocks withdraws the operator's assignments to a node with an agent that does not read them. It
// deletes the blocks first, so that the operator publishes them no more; the change of the
// CiliumNode makes patches decided on before conflict.
func (a *aborting) deleteBlocks(ctx context.Context, r *returning) error {
	for _, b := range r.blocks {
		if err := a.m.cluster.DeleteBlock(ctx, b); err != nil {
			return err
		}
	}
	if err := a.retract(ctx, r); err != nil {
		return err
	}
	for _, b := range r.blocks {
		if err := a.m.deleteAtOnce(ctx, b); err != nil {
			return err
		}
	}
	if err := a.retract(ctx, r); err != nil { // and all changes in between
		return err
	}
	return a.resume(ctx, r)
}

// defaultPool returns the Cilium pool of pods of a node that request none.
func (m *migration) defaultPool(node string) string {
	return cmp.Or(m.config.Setting(m.cluster.Nodes[node].Labels, ciliumconfig.DefaultPoolSetting), crd.DefaultCiliumPool)
}
