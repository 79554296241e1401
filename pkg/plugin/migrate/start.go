package migrate

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/adopt"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cli"
	"github.com/cilium-pool/cilium-pool-operator/pkg/suggest"
)

type migratePlan struct {
	Nodes    []migrateNode   `json:"nodes"`
	Findings []adopt.Finding `json:"findings"`
}

type migrateNode struct {
	Node     string         `json:"node"`
	From     adopt.Source   `json:"from"`
	Blocks   []adopt.Block  `json:"blocks"`
	Withdraw []netip.Prefix `json:"withdraw,omitempty"`
	// Addresses is the number of addresses of its blocks that pods can have, InUse the number in
	// use.
	Addresses int `json:"addresses"`
	InUse     int `json:"inUse"`
	Findings  int `json:"findings"`
}

func newPlan(e *cli.Env) *cobra.Command {
	o := cli.Output{Kind: "MigrationPlan"}
	var s choice
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Show the blocks that nodes would get, and the obstacles, without a write",
		Long: `Shows the PodIPBlocks that would be made of the nodes' addresses: podCIDRs of
CiliumNodes or Nodes, allocations of multi-pool mode, or pools that people filled.

It names obstacles, such as two nodes with the same addresses or settings of Cilium,
and the fix of each. Fix blocking findings before migrate start; warnings do not block
it.`,
		Example: cli.Examples("migrate plan", "migrate plan -l zone=a", "migrate plan -o json | jq '.findings[]'"),
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			m, err := readMigration(cmd.Context(), e, &s)
			if err != nil {
				return err
			}
			plan := adopt.Make(m.input())
			out := m.planRows(plan)
			if err := printPlan(e, &o, out); err != nil {
				return err
			}
			if plan.Blocked() {
				return cli.NotReached
			}
			return nil
		},
	}
	o.AddFlags(cmd)
	s.addFlags(e, cmd, false)
	return cmd
}

func (m *migration) planRows(plan adopt.Plan) migratePlan {
	out := migratePlan{Nodes: []migrateNode{}, Findings: append([]adopt.Finding{}, plan.Findings...)}
	for _, n := range plan.Nodes {
		row := migrateNode{Node: n.Name, From: n.From, Blocks: append([]adopt.Block{}, n.Blocks...), Withdraw: crd.CIDRs(n.Withdraw), InUse: len(m.cluster.Users(n.Name))}
		for _, b := range n.Blocks {
			if pool := m.cluster.State.Pools.Get(b.Pool); pool != nil {
				row.Addresses += pool.UsableCount(b.CIDR)
			}
		}
		for _, f := range plan.Findings {
			if f.Node == n.Name {
				row.Findings++
			}
		}
		out.Nodes = append(out.Nodes, row)
	}
	return out
}

func printPlan(e *cli.Env, o *cli.Output, p migratePlan) error {
	t := cli.TableOf("nodes", p.Nodes, func(n *migrateNode) []any {
		var cidrs []string
		for _, b := range n.Blocks {
			cidrs = append(cidrs, b.CIDR.String())
		}
		return []any{n.Node, cli.Dash(string(n.From)), cli.Dash(suggest.Few(cidrs)), n.Addresses, n.InUse, n.Findings}
	}, "Node", "From", "Blocks", "Addresses", "In use", "Findings")
	return e.Describe(o, p, func(s *cli.Text) {
		s.Table(o, t)
		for _, f := range p.Findings {
			s.Line("%s", f)
		}
	})
}

func newStart(e *cli.Env) *cobra.Command {
	var s choice
	dryRun := false
	cmd := &cobra.Command{
		Use:   "start --node NODE|-l SELECTOR|--all",
		Short: "Create the blocks of nodes that will move",
		Long: `Makes the PodIPBlocks of the nodes' addresses, as migrate plan shows them: only if no
finding blocks any of these nodes.

Once blocks cover all of a node's addresses, the operator publishes them, and takes no
other action, until the node's agent reports that it runs in crd mode. An agent of
another mode does not read them.`,
		Example: cli.Examples("migrate start --all", "migrate start --node edge-01 --dry-run", "migrate start -l zone=a"),
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			m, err := readMigration(cmd.Context(), e, &s)
			if err != nil {
				return err
			}
			plan := adopt.Make(m.input())
			if plan.Blocked() {
				for _, f := range plan.Findings {
					if f.Severity == adopt.Blocked {
						fmt.Fprintln(e.ErrOut, f)
					}
				}
				fmt.Fprintln(e.ErrOut, "nothing was written")
				return cli.NotReached
			}
			return m.start(cmd.Context(), plan, dryRun)
		},
	}
	s.addFlags(e, cmd, true)
	cmd.Flags().BoolVar(&dryRun, "dry-run", dryRun, "print the blocks that would be made, without a write")
	return cmd
}

func (m *migration) start(ctx context.Context, plan adopt.Plan, dryRun bool) error {
	for _, n := range plan.Nodes {
		for _, b := range n.Withdraw {
			if err := m.withdraw(ctx, n, b, dryRun); err != nil {
				return err
			}
		}
	}
	for _, n := range plan.Nodes {
		for _, b := range n.Blocks {
			if err := m.makeBlock(ctx, n, b, dryRun); err != nil {
				return err
			}
		}
	}
	return nil
}

// makeBlock creates a block, or checks that an existing one is the node's. That may have been
// returned since.
func (m *migration) makeBlock(ctx context.Context, n adopt.NodePlan, b adopt.Block, dryRun bool) error {
	say := func(message string) {
		fmt.Fprintf(m.env.Out, "podipblock/%s %s (node %s, pool %s)\n", crd.BlockName(b.CIDR), message, n.Name, b.Pool)
	}
	if dryRun {
		say(map[bool]string{false: "would be created", true: "is there already"}[b.Exists])
		return nil
	}
	var live *v1alpha1.PodIPBlock
	var err error
	if b.Exists {
		if live, err = m.readBlock(ctx, crd.BlockName(b.CIDR)); err != nil {
			return err
		}
	}
	if live == nil {
		err := m.cluster.Client.Create(ctx, crd.AdoptedBlock(b.CIDR, b.Pool, n.Name, m.cluster.Nodes[n.Name].UID, string(n.From)))
		if err == nil {
			say("created")
			return nil
		}
		if !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("creating block %s: %w", b.CIDR, err)
		}
		if live, err = m.readBlock(ctx, crd.BlockName(b.CIDR)); err != nil {
			return err
		}
	}
	if live == nil {
		return fmt.Errorf("block %s came and went meanwhile: run migrate plan again", b.CIDR)
	}
	if live.Spec.NodeName != n.Name || live.DeletionTimestamp != nil {
		return fmt.Errorf("block %s has come meanwhile for node %s: run migrate plan again", live.Name, live.Spec.NodeName)
	}
	if live.Labels[v1alpha1.AdoptedLabel] == "" { // a person pinned it
		if err := m.label(ctx, live, string(n.From)); err != nil {
			return err
		}
	}
	say("is there already")
	return nil
}

func (m *migration) readBlock(ctx context.Context, name string) (*v1alpha1.PodIPBlock, error) {
	block := &v1alpha1.PodIPBlock{}
	err := m.cluster.Client.Get(ctx, types.NamespacedName{Name: name}, block)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading block %s: %w", name, err)
	}
	return block, nil
}

// label records where a block was adopted from, or with "" that it no longer matters,
// conditional on the version read.
func (m *migration) label(ctx context.Context, block *v1alpha1.PodIPBlock, source string) error {
	var value any
	if source != "" {
		value = source
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"resourceVersion": block.ResourceVersion, "labels": map[string]any{v1alpha1.AdoptedLabel: value},
	}})
	if err != nil {
		return err
	}
	if err := m.cluster.Client.Patch(ctx, block, client.RawPatch(types.MergePatchType, body)); err != nil {
		return fmt.Errorf("labelling block %s: %w", block.Name, err)
	}
	return nil
}

// withdraw deletes a block that no agent has read, without a drain, if the node has returned its
// CIDR. If it has been published in the meantime, it is left to drain, because an agent that has
// just started may have read it.
func (m *migration) withdraw(ctx context.Context, n adopt.NodePlan, b crd.Block, dryRun bool) error {
	if dryRun {
		fmt.Fprintf(m.env.Out, "podipblock/%s would be withdrawn (node %s has given it back)\n", b.Name, n.Name)
		return nil
	}
	if err := m.cluster.DeleteBlock(ctx, b); err != nil {
		return err
	}
	probe := []netip.Addr{probeAddress()}
	live, err := m.setEntries(ctx, n.Name, ciliumnode.ReleaseChange{Mark: probe}, ciliumnode.ReleaseChange{Clear: probe})
	if err != nil {
		return err
	}
	if live != nil && (len(live.PublishedIn(b.CIDR)) > 0 || slices.Contains(live.CIDRsAgentReads(ciliumnode.MultiPool), b.CIDR)) {
		fmt.Fprintf(m.env.Out, "podipblock/%s drains (node %s has given it back, and it was published meanwhile)\n", b.Name, n.Name)
		return nil
	}
	if err := m.deleteAtOnce(ctx, b); err != nil {
		return err
	}
	fmt.Fprintf(m.env.Out, "podipblock/%s withdrawn (node %s has given it back)\n", b.Name, n.Name)
	return nil
}

// setEntries changes release entries in a node's CiliumNode, one write after the other, and returns
// it: patches of older versions conflict. A missing one is nil.
func (m *migration) setEntries(ctx context.Context, node string, changes ...ciliumnode.ReleaseChange) (*ciliumnode.View, error) {
	nodes := m.ciliumNodes()
	var live *ciliumnode.View
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		var err error
		if live, err = nodes.Live(ctx, node); err != nil || live == nil {
			return err
		}
		for _, change := range changes {
			written, err := nodes.PatchReleaseIPs(ctx, live, change)
			if err != nil {
				return err
			}
			if written != nil {
				live = written
			}
		}
		return nil
	})
	return live, err
}

// stillThere reads a block; nil: it is gone, or is another object.
func (m *migration) stillThere(ctx context.Context, b crd.Block) (*v1alpha1.PodIPBlock, error) {
	live, err := m.readBlock(ctx, b.Name)
	if err != nil || live == nil || live.UID != b.UID {
		return nil, err
	}
	return live, nil
}

// deleteAtOnce deletes a block at once, in use or not.
func (m *migration) deleteAtOnce(ctx context.Context, b crd.Block) error {
	if err := m.cluster.DeleteBlock(ctx, b); err != nil {
		return err
	}
	live, err := m.stillThere(ctx, b)
	if err != nil || live == nil {
		return err
	}
	body := fmt.Appendf(nil, `{"metadata":{"resourceVersion":%q,"finalizers":null}}`, live.ResourceVersion)
	err = m.cluster.Client.Patch(ctx, live, client.RawPatch(types.MergePatchType, body))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("removing finalizer of block %s: %w", b.Name, err)
	}
	return nil
}
