package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/audit"
	"github.com/cilium-pool/cilium-pool-operator/pkg/audit/live"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller"
)

const checkUsage = `cilium-pool-operator check audits a live cluster: does anybody have an address
that another has, is every address in use where its agent can restore it, do
blocks, CiliumNodes and pools agree, does anything stand still that should pass?

It only lists Nodes, Pods, CiliumNodes, PodIPPools and PodIPBlocks, and changes
nothing. It may run anywhere, beside any number of operators, or with none.

A cluster moves while it is read. So what is found is looked at again after
--again, and what is no longer so is dropped. Findings that need time (a release
entry, a drain or a rest that stands still) are told after --stuck-after, by the
times in the objects. Where these do not tell, as with marks that the operator
sets anew again and again, let it look for longer: --watch-for.

  cilium-pool-operator check                         with your kubeconfig
  cilium-pool-operator check --context prod
  cilium-pool-operator check -o json | jq '.findings[].reason'
  cilium-pool-operator check --fail-on error         warnings do not fail
  cilium-pool-operator check --watch-for 6m --again 30s
                                                     agents that never answer, too
  kubectl -n kube-system exec deploy/cilium-pool-operator -- \
      /cilium-pool-operator check                    within the cluster

Each finding has a reason, the object and what to do. Reasons are stable; all
are explained in docs/check.md.

Exit codes: 0 nothing is wrong, 1 something is, 2 wrong command line, or the
cluster could not be read.

Flags:
`

// checkOptions are the command line of check.
type checkOptions struct {
	kubeconfig, context string
	output, failOn      string
	agentSelector       string
	reader              live.Reader
	settings            audit.Settings
	patience            live.Patience
}

func defaultCheckOptions() *checkOptions {
	o := defaultOptions()
	s := &o.settings
	return &checkOptions{
		output: "text", failOn: string(audit.Warning), agentSelector: o.agentSelector,
		reader: live.Reader{AgentNamespace: s.AgentNamespace},
		settings: audit.Settings{
			Cooldown: s.Defaults.Cooldown, NodeGoneCooldown: s.Defaults.NodeGoneCooldown,
			MaxAddresses: s.Defaults.Policy.MaxAddresses, StuckAfter: 5 * time.Minute,
		},
		patience: live.Patience{Again: 5 * time.Second},
	}
}

func (o *checkOptions) addFlags(fs *pflag.FlagSet) {
	s := &o.settings
	fs.StringVar(&o.kubeconfig, "kubeconfig", o.kubeconfig, "path of a kubeconfig; empty: as kubectl finds it, or the pod's service account")
	fs.StringVar(&o.context, "context", o.context, "context of the kubeconfig; empty: the current one")
	fs.StringVarP(&o.output, "output", "o", o.output, "text or json")
	fs.StringVar(&o.failOn, "fail-on", o.failOn, "what gives exit code 1: warning (any finding) or error (errors alone)")
	fs.DurationVar(&o.patience.Again, "again", o.patience.Again, "how long after a look the cluster is looked at again")
	fs.DurationVar(&o.patience.WatchFor, "watch-for", o.patience.WatchFor, "look for so long, every --again, before judging")
	fs.DurationVar(&s.StuckAfter, "stuck-after", s.StuckAfter, "how long something that should pass by itself may stand")
	fs.DurationVar(&s.Cooldown, "cooldown", s.Cooldown, "the operator's --cooldown")
	fs.DurationVar(&s.NodeGoneCooldown, "node-gone-cooldown", s.NodeGoneCooldown, "the operator's --node-gone-cooldown")
	fs.IntVar(&s.MaxAddresses, "max-addresses-per-node", s.MaxAddresses, "the operator's --max-addresses-per-node")
	fs.StringSliceVar(&s.IgnoreTaints, "ignore-node-taints", s.IgnoreTaints, "the operator's --ignore-node-taints")
	fs.StringVar(&o.reader.AgentNamespace, "cilium-namespace", o.reader.AgentNamespace, "namespace of the Cilium agents")
	fs.StringVar(&o.agentSelector, "agent-selector", o.agentSelector, "label selector of the Cilium agents' pods")
}

func (o *checkOptions) validate() error {
	var p problems
	if o.output != "text" && o.output != "json" {
		p.bad("output", o.output, "must be text or json")
	}
	if o.failOn != string(audit.Warning) && o.failOn != string(audit.Error) {
		p.bad("fail-on", o.failOn, "must be warning or error")
	}
	p.between("again", o.patience.Again, time.Second, time.Hour)
	p.between("watch-for", o.patience.WatchFor, 0, 24*time.Hour)
	p.between("stuck-after", o.settings.StuckAfter, 0, 24*time.Hour)
	p.between("cooldown", o.settings.Cooldown, 0, 24*time.Hour)
	p.between("node-gone-cooldown", o.settings.NodeGoneCooldown, 0, 7*24*time.Hour)
	if o.settings.MaxAddresses < 1 {
		p.bad("max-addresses-per-node", o.settings.MaxAddresses, "must be 1 or more")
	}
	selector, err := labels.Parse(o.agentSelector)
	if err != nil {
		p.bad("agent-selector", o.agentSelector, "must be a label selector, as in k8s-app=cilium: "+err.Error())
	}
	o.reader.AgentSelector = selector
	return errors.Join(p...)
}

// runCheck is the subcommand check.
func runCheck(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	const name = "cilium-pool-operator check"
	o := defaultCheckOptions()
	fs := pflag.NewFlagSet(name, pflag.ContinueOnError)
	fs.SortFlags = false
	fs.Usage = func() {}
	o.addFlags(fs)
	err := fs.Parse(args)
	if errors.Is(err, pflag.ErrHelp) {
		fmt.Fprint(stdout, checkUsage, fs.FlagUsages())
		return 0
	}
	if err == nil && fs.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	if err == nil {
		err = o.validate()
	}
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v\nSee %s --help.\n", name, err, name)
		return 2
	}
	report, err := o.look(ctx, stderr)
	if err != nil {
		fmt.Fprintf(stderr, "%s: the cluster was not audited: %v\n", name, err)
		return 2
	}
	write := report.Text
	if o.output == "json" {
		write = report.JSON
	}
	if err := write(stdout); err != nil {
		fmt.Fprintf(stderr, "%s: writing the report: %v\n", name, err)
		return 2
	}
	if report.Errors > 0 || report.Warnings > 0 && o.failOn == string(audit.Warning) {
		return 1
	}
	return 0
}

func (o *checkOptions) look(ctx context.Context, stderr io.Writer) (audit.Report, error) {
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	config, err := o.restConfig()
	if err != nil {
		return audit.Report{}, err
	}
	scheme, err := controller.Scheme()
	if err != nil {
		return audit.Report{}, err
	}
	unreachable := func(err error) error {
		return fmt.Errorf("cannot read from the API server at %s: %w", config.Host, err)
	}
	direct, err := client.New(bounded(ctx, config), client.Options{Scheme: scheme})
	if err != nil {
		return audit.Report{}, unreachable(err)
	}
	o.reader.Client = direct
	p := newProgress(stderr)
	o.reader.Progress = p.read
	report, err := o.reader.Look(ctx, o.settings, o.patience)
	p.clear()
	switch {
	case meta.IsNoMatchError(err):
		return report, fmt.Errorf("%w. Is this the right cluster (--context)? Cilium or the chart's CRDs are not installed at %s", err, config.Host)
	case err != nil:
		return report, unreachable(err)
	}
	return report, nil
}

func (o *checkOptions) restConfig() (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.kubeconfig
	overrides := &clientcmd.ConfigOverrides{CurrentContext: o.context}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("no API server to talk to: %w. Run in a cluster, or give --kubeconfig or --context", err)
	}
	config.QPS = -1
	config.Timeout = time.Minute // of one request
	config.UserAgent = "cilium-pool-operator-check/" + version
	return config, nil
}

// progress tells on a terminal how far reading is, if it takes long.
type progress struct {
	to    io.Writer // nil: nobody looks
	begun time.Time
	told  bool
}

func newProgress(to io.Writer) *progress {
	p := &progress{begun: time.Now()}
	if f, ok := to.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			p.to = to
		}
	}
	return p
}

func (p *progress) read(kind string, n int) {
	if p.to != nil && time.Since(p.begun) > 2*time.Second {
		p.told = true
		fmt.Fprintf(p.to, "\r\033[Kreading %s: %d", kind, n)
	}
}

func (p *progress) clear() {
	if p.told {
		fmt.Fprint(p.to, "\r\033[K")
	}
}
