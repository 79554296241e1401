package check

import (
	"errors"
	"io"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/cilium-pool/cilium-pool-operator/pkg/audit"
	"github.com/cilium-pool/cilium-pool-operator/pkg/clusterread"
	"github.com/cilium-pool/cilium-pool-operator/pkg/config"
)

// ModeUsage is the usage of the flag --mode in read-only commands.
const ModeUsage = "the operator's --mode: crd, multi-pool, delegated-plugin, kubernetes, or observe for any Cilium; empty: as its Lease says, else as Cilium's ConfigMap cilium-config does, else crd"

// unlessPublished is the usage of flags with a default for operators that have not published their
// settings.
const unlessPublished = "; unset: as its Lease says"

// Options are the command line of check, except how to reach the API server.
type Options struct {
	output, failOn string
	agentSelector  string
	agents         labels.Selector // what agentSelector says
	lease          clusterread.Where
	stuckAfter     time.Duration
	patience       Patience
	// Write writes the report; nil: as -o says.
	Write func(io.Writer, *audit.Report) error
	// given reports whether a flag is on the command line.
	given func(flag string) bool
}

// NewOptions are the defaults.
func NewOptions() *Options {
	operator := config.DefaultSettings()
	return &Options{
		output: "text", failOn: string(audit.Warning), agentSelector: operator.AgentSelector.String(),
		lease:      clusterread.Where{CiliumNamespace: operator.AgentNamespace},
		stuckAfter: SettingsOf(operator).StuckAfter, patience: Patience{Again: 5 * time.Second},
	}
}

// SettingsOf returns the settings of an operator, as an audit needs them.
func SettingsOf(s config.Settings) audit.Settings {
	return audit.Settings{Settings: s, StuckAfter: 5 * time.Minute}
}

// AddFlags adds a flag for each option.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	o.AddAuditFlags(fs)
	o.given = fs.Changed
	fs.StringVarP(&o.output, "output", "o", o.output, "text or json")
	fs.StringVar(&o.lease.Mode, "mode", "", ModeUsage)
	fs.StringVar(&o.lease.LeaseNamespace, "leader-elect-namespace", o.lease.LeaseNamespace, "namespace of the operator's Lease, which has its mode and settings; empty: kube-system, else any")
	fs.StringVar(&o.lease.LeaseName, "leader-elect-name", o.lease.LeaseName, "the operator's --leader-elect-name; empty: cilium-pool-operator, else any")
	fs.StringVar(&o.lease.CiliumNamespace, "cilium-namespace", o.lease.CiliumNamespace, "namespace of the Cilium agents"+unlessPublished)
	fs.StringVar(&o.agentSelector, "agent-selector", o.agentSelector, "label selector of the Cilium agents' pods"+unlessPublished)
}

// AddAuditFlags adds the flags that do not locate the operator and the agents.
func (o *Options) AddAuditFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.failOn, "fail-on", o.failOn, "findings for exit code 1: warning (any) or error (errors alone)")
	fs.DurationVar(&o.patience.Again, "every", o.patience.Again, "time after a look until the next one")
	fs.DurationVar(&o.patience.WatchFor, "watch-for", o.patience.WatchFor, "look for so long, every --every, before judging")
	fs.DurationVar(&o.stuckAfter, "stuck-after", o.stuckAfter, "longest time of a state that should pass by itself")
}

// Locate sets where the operator and the agents are, in place of the flags for it. given reports whether
// cilium-namespace or agent-selector is on the command line.
func (o *Options) Locate(where clusterread.Where, agentSelector string, given func(flag string) bool) {
	o.lease = where
	o.agentSelector = agentSelector
	o.given = given
}

// Validate reports all errors of the command line.
func (o *Options) Validate() error {
	var p config.Problems
	if o.output != "text" && o.output != "json" {
		p.Bad("output", o.output, "must be text or json")
	}
	if o.failOn != string(audit.Warning) && o.failOn != string(audit.Error) {
		p.Bad("fail-on", o.failOn, "must be warning or error")
	}
	p.Between("every", o.patience.Again, time.Second, time.Hour)
	p.Between("watch-for", o.patience.WatchFor, 0, 24*time.Hour)
	p.Between("stuck-after", o.stuckAfter, 0, 24*time.Hour)
	if err := clusterread.CheckModeFlag(o.lease.Mode); err != nil {
		p.Bad("mode", o.lease.Mode, err.Error())
	}
	var err error
	if o.agents, err = labels.Parse(o.agentSelector); err != nil {
		p.Bad("agent-selector", o.agentSelector, "must be a label selector, as in k8s-app=cilium: "+err.Error())
	}
	return errors.Join(p...)
}
