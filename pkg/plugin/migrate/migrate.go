// Package migrate is kubectl cilium-pool migrate.
package migrate

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/adopt"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumconfig"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/clusterread"
	"github.com/cilium-pool/cilium-pool-operator/pkg/clusterview"
	"github.com/cilium-pool/cilium-pool-operator/pkg/config"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cli"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// New returns the command migrate.
func New(e *cli.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "migrate plan|start|status|finish|abort",
		Short: "Move a running cluster from another IPAM mode, every pod keeping its address",
		Long: `Moves nodes from Cilium's cluster-pool, kubernetes or multi-pool mode, or from pools
that people filled, to crd mode, or from the first two to multi-pool mode, if the
operator runs in that. No pod restarts: each node's addresses become its blocks.
docs/migration.md has the whole way, and the way back.

Each command can be stopped at any point and run again.`,
		Example: cli.Examples("migrate plan", "migrate start --all", "migrate status --until settled --timeout 10m", "migrate finish", "migrate abort --node edge-01"),
		RunE: func(*cobra.Command, []string) error {
			return cli.Usagef("say what to do: plan, start, status, finish or abort")
		},
	}
	cmd.AddCommand(newPlan(e), newStart(e), newStatus(e), newFinish(e), newAbort(e))
	return cmd
}

type choice struct {
	nodes    []string
	selector string
}

// addFlags adds the flags of a choice; where it must be made, with --all.
func (s *choice) addFlags(e *cli.Env, cmd *cobra.Command, must bool) {
	cmd.Flags().StringSliceVar(&s.nodes, "node", s.nodes, "these nodes alone; may be repeated")
	cmd.Flags().StringVarP(&s.selector, "selector", "l", s.selector, "nodes with these labels alone")
	_ = cmd.RegisterFlagCompletionFunc("node", e.CompleteNodes)
	if must {
		cmd.Flags().Bool("all", false, "all nodes")
		cmd.MarkFlagsOneRequired("node", "selector", "all")
		cmd.MarkFlagsMutuallyExclusive("node", "all")
		cmd.MarkFlagsMutuallyExclusive("selector", "all")
	}
}

func (s *choice) of(c *clusterview.Cluster) (map[string]bool, error) {
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

// migration is a cluster, the configuration of its agents, and the selected nodes.
type migration struct {
	cluster *clusterview.Cluster
	env     *cli.Env
	config  *ciliumconfig.Config
	// newMode is the mode that nodes move to: crd or multi-pool.
	newMode ciliumnode.Mode
	chosen  map[string]bool
	// started is since when each pod runs.
	started map[string]time.Time
	// agents are the agents' pods of each node.
	agents map[string][]*corev1.Pod
}

func readMigration(ctx context.Context, e *cli.Env, s *choice) (*migration, error) {
	// Cilium's settings name the mode that is being left. Unless the operator says that it runs in
	// multi-pool mode, the blocks are for crd mode.
	operator := clusterread.Operator{Settings: config.DefaultSettings()}
	if e.Place == nil {
		var err error
		if operator, err = e.FindOperator(ctx); err != nil {
			return nil, err
		}
	}
	if operator.Declares(ciliumnode.DelegatedPlugin) {
		return nil, cli.Usagef("nodes move from and to delegated-plugin mode without pods: docs/modes.md, Between multi-pool and delegated-plugin mode")
	}
	if !operator.Declares(ciliumnode.MultiPool) {
		operator.Mode = ciliumnode.CRD
	}
	c, err := e.ReadAs(ctx, operator)
	if err != nil {
		return nil, err
	}
	e.WarnNoLeader(c)
	chosen, err := s.of(c)
	if err != nil {
		return nil, err
	}
	m := &migration{cluster: c, env: e, config: c.Objects.CiliumConfig, newMode: operator.Mode, chosen: chosen, started: c.PodStarts(), agents: map[string][]*corev1.Pod{}}
	for i := range c.Objects.Agents {
		pod := &c.Objects.Agents[i]
		m.agents[pod.Spec.NodeName] = append(m.agents[pod.Spec.NodeName], pod)
	}
	return m, nil
}

// ciliumNodes reads and writes CiliumNodes as those of crd mode, with all fields.
func (m *migration) ciliumNodes() *ciliumnode.Client {
	return &ciliumnode.Client{Writer: m.cluster.Client, Reader: m.cluster.Client}
}

func (m *migration) names() []string { return slices.Sorted(maps.Keys(m.chosen)) }

// input returns the input of a plan: all nodes, some of them selected.
func (m *migration) input() adopt.Input {
	known := &m.cluster.State
	input := adopt.Input{Blocks: m.cluster.Blocks(), Policy: known.Defaults.Policy, Config: m.config, Whole: m.newMode == ciliumnode.MultiPool}
	for _, name := range slices.Sorted(maps.Keys(m.cluster.Nodes)) {
		input.Nodes = append(input.Nodes, m.adoptNode(name))
	}
	for _, name := range known.Pools.Names() {
		if pool := known.Pools.Get(name); pool != nil {
			input.Pools = append(input.Pools, pool)
		}
	}
	input.Free = func(pool *crd.Pool, f ipalloc.Family) uint64 {
		cut, ok := pool.Cut(f)
		if !ok {
			return 0
		}
		return known.Ledger.Free(cut)
	}
	return input
}

// adoptNode returns a Node in the terms of package adopt.
func (m *migration) adoptNode(name string) adopt.Node {
	known := &m.cluster.State
	node := m.cluster.Nodes[name]
	view := known.Ledger.CiliumNode(name)
	n := adopt.Node{Name: name, Chosen: m.chosen[name], Used: m.cluster.Users(name), Pods: known.Pods.On(name), Agent: m.agentImage(name)}
	facts := adopt.Facts{Mode: m.config.Mode(node.Labels), NodePodCIDRs: nodePodCIDRs(node), Blocks: known.Ledger.NodeBlocks(name)}
	if view != nil {
		if a := view.Addresses; a != nil {
			n.Reported = len(view.Used) > 0
			n.NonCanonical = a.NonCanonical
			facts.Reported = n.Reported
			facts.PodCIDRs = view.PodCIDRs
			facts.Published = slices.SortedFunc(maps.Keys(a.Pool), netip.Addr.Compare)
		} else {
			w := view.BlockAssignment
			n.Reported = w.Reported() && len(view.Allocated) > 0 // requests without a CIDR are older than the other IPAM
			facts.Reported = n.Reported || w.LeftReport
			facts.PodCIDRs = w.LeftCIDRs
		}
		for _, a := range view.Allocated {
			facts.Allocated = append(facts.Allocated, a.CIDR)
		}
		n.Own = view.Own
		n.Limits = view.Limits
	}
	n.Published = facts.Published
	n.From, n.AssignedCIDRs = adopt.SourceOf(facts)
	o := state.Cluster{Ledger: known.Ledger, Pools: known.Pools, Defaults: known.Defaults}
	for _, f := range ipalloc.Families() {
		pools, _, paused := o.Policy(node, f, "")
		for _, pool := range pools {
			if !slices.Contains(n.Pools, pool) {
				n.Pools = append(n.Pools, pool)
			}
		}
		n.Paused = cmp.Or(n.Paused, paused)
	}
	return n
}

func nodePodCIDRs(node *corev1.Node) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range node.Spec.PodCIDRs {
		if p, err := netip.ParsePrefix(s); err == nil {
			out = append(out, p.Masked())
		}
	}
	return out
}

// agentPod returns the only pod of a node's agent; nil: there is none, or it is being replaced.
func (m *migration) agentPod(node string) *corev1.Pod {
	if pods := m.agents[node]; len(pods) == 1 {
		return pods[0]
	}
	return nil
}

// agentImage returns the image of a node's agent; "": no agent is Ready.
func (m *migration) agentImage(node string) string {
	pod := m.agentPod(node)
	if pod == nil || state.ReadySince(pod).IsZero() {
		return ""
	}
	for _, c := range pod.Spec.Containers {
		if c.Name == "cilium-agent" {
			return c.Image
		}
	}
	return "unknown"
}

// progressOf returns the state that determines a node's progress. Pods and agents count once they
// have run for settle.
func (m *migration) progressOf(name string, settle time.Duration) adopt.Progress {
	known := &m.cluster.State
	s := adopt.Progress{
		Node: m.adoptNode(name), Blocks: known.Ledger.NodeBlocks(name),
		Back: m.cluster.Nodes[name].Annotations[v1alpha1.ReturningAnnotation], Whole: m.newMode == ciliumnode.MultiPool,
	}
	view := known.Ledger.CiliumNode(name)
	s.Listed = view.CIDRsAgentReads(ciliumnode.MultiPool)
	s.Publishable = func(b crd.Block) []netip.Addr {
		if pool := known.Pools.Get(b.Pool); pool != nil && !pool.Drains(b.CIDR) {
			return known.Publishable(view, pool, b.CIDR)
		}
		return nil
	}
	if pod := m.agentPod(name); pod != nil {
		ready := state.ReadySince(pod)
		s.Settled = !ready.IsZero() && m.cluster.Now.Sub(ready) >= settle
	}
	for _, pod := range known.Pods.On(name) {
		if view == nil || s.Whole || m.cluster.Now.Sub(m.started[pod.Name]) < settle {
			continue // reports lag, and in multi-pool mode they name no addresses
		}
		for _, a := range pod.IPs {
			if _, reported := view.Used[a]; !reported {
				s.Unreported++
			}
		}
	}
	return s
}

// operatorSteps returns the operator's next step on a node without its memory; "-": none.
func (m *migration) operatorSteps(name string, s *adopt.Progress) string {
	var words []string
	say := func(n int, verb string) {
		if n > 0 {
			words = append(words, fmt.Sprintf("%s %d", verb, n))
		}
	}
	uncovered := len(ipalloc.Uncovered(s.AssignedCIDRs, crd.CIDRs(s.Blocks)))
	say(uncovered, "adopt")
	if uncovered == 0 {
		claims := 0
		drains := 0
		frees := 0
		for _, d := range m.cluster.Decide(name) {
			d.State.Adopting = false // the steps once its agent runs in crd mode
			plan, _ := expand.Decide(d.At, d.Policy, d.State, expand.Budget{}, expand.Memory{})
			claims += min(plan.Claim.Addresses, 1)
			drains += len(plan.Drain)
			frees += len(plan.CoolDown)
		}
		say(claims, "claim")
		say(drains, "drain")
		say(frees, "free")
	}
	return cli.Dash(strings.Join(words, ", "))
}
