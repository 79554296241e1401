// Package migrate is kubectl cilium-pool migrate.
package migrate

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/cilium-pool/cilium-pool-operator/pkg/audit/clusterread"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumconfig"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/config"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cli"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cluster"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/output"
)

// New returns the command migrate.
func New(e *cli.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "migrate plan|start|status|finish|abort",
		Short: "Move a running cluster from another IPAM mode, every pod keeping its address",
		Long: `Moves nodes from Cilium's cluster-pool, kubernetes or multi-pool mode, or from pools
that people filled, without restarting a pod: each node's addresses become its blocks.
docs/migration.md has the whole way, and the way back. finish also ends a move between
two modes of this operator (docs/modes.md).

Each command can be stopped at any point and run again.`,
		Example: cli.Examples("migrate plan", "migrate start --all", "migrate status --until settled --timeout 10m", "migrate finish", "migrate abort --node edge-01"),
		RunE: func(*cobra.Command, []string) error {
			return output.Usagef("say what to do: plan, start, status, finish or abort")
		},
	}
	cmd.AddCommand(newPlan(e), newStart(e), newStatus(e), newFinish(e), newAbort(e))
	return cmd
}

// choice selects the nodes of a command.
type choice struct {
	nodes    []string
	selector string
	all      bool
	// asked: the command needs a selection.
	asked bool
}

func (s *choice) addFlags(e *cli.Env, cmd *cobra.Command) {
	cmd.Flags().StringSliceVar(&s.nodes, "node", s.nodes, "these nodes alone; may be repeated")
	cmd.Flags().StringVarP(&s.selector, "selector", "l", s.selector, "nodes with these labels alone")
	if s.asked {
		cmd.Flags().BoolVar(&s.all, "all", s.all, "all nodes")
	}
	_ = cmd.RegisterFlagCompletionFunc("node", e.CompleteNodes)
}

// validate rejects contradictory selections.
func (s *choice) validate() error {
	if s.asked && !s.all && len(s.nodes) == 0 && s.selector == "" {
		return output.Usagef("say which nodes: --node, -l or --all")
	}
	if s.all && (len(s.nodes) > 0 || s.selector != "") {
		return output.Usagef("--all goes with neither --node nor -l")
	}
	return nil
}

// of returns the selected nodes.
func (s *choice) of(c *cluster.Cluster) (map[string]bool, error) {
	if err := s.validate(); err != nil {
		return nil, err
	}
	for _, name := range s.nodes {
		if c.Nodes[name] == nil {
			return nil, fmt.Errorf("there is no Node %s", name)
		}
	}
	selector, err := labels.Parse(s.selector)
	if err != nil {
		return nil, fmt.Errorf("--selector is %s: %w", s.selector, err)
	}
	chosen := map[string]bool{}
	for name, node := range c.Nodes {
		if (len(s.nodes) == 0 || slices.Contains(s.nodes, name)) && selector.Matches(labels.Set(node.Labels)) {
			chosen[name] = true
		}
	}
	return chosen, nil
}

// move is a cluster, the configuration of its agents, and the selected nodes.
type move struct {
	*cluster.Cluster
	env    *cli.Env
	config *ciliumconfig.Config
	chosen map[string]bool
	// started is since when each pod runs.
	started map[string]time.Time
	// agents are the agents' pods of each node.
	agents map[string][]*corev1.Pod
}

func readMove(ctx context.Context, e *cli.Env, s *choice) (*move, error) {
	// Cilium's settings name the mode that is being left. The blocks are for crd mode.
	operator := clusterread.Operator{Settings: config.DefaultSettings()}
	if e.Place == nil {
		var err error
		if operator, err = e.FindOperator(ctx); err != nil {
			return nil, err
		}
	}
	operator.Mode = ciliumnode.CRD
	c, err := e.ReadAs(ctx, operator)
	if err != nil {
		return nil, err
	}
	chosen, err := s.of(c)
	if err != nil {
		return nil, err
	}
	m := &move{Cluster: c, env: e, config: c.Objects.CiliumConfig, chosen: chosen, started: c.PodStarts(), agents: map[string][]*corev1.Pod{}}
	for i := range c.Objects.Agents {
		pod := &c.Objects.Agents[i]
		m.agents[pod.Spec.NodeName] = append(m.agents[pod.Spec.NodeName], pod)
	}
	return m, nil
}

// ciliumNodes reads and writes CiliumNodes of crd mode.
func (m *move) ciliumNodes() *ciliumnode.Client {
	return &ciliumnode.Client{Writer: m.Client, Reader: m.Client}
}

// names returns the selected nodes, sorted.
func (m *move) names() []string { return slices.Sorted(maps.Keys(m.chosen)) }
