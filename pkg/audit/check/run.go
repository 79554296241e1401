// Package check is the command check: its flags, output and exit codes. The operator and the
// kubectl plugin both have it.
package check

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/apiclient"
	"github.com/cilium-pool/cilium-pool-operator/pkg/audit"
	"github.com/cilium-pool/cilium-pool-operator/pkg/clusterread"
	"github.com/cilium-pool/cilium-pool-operator/pkg/termsafe"
)

// RequestTimeout bounds one request to the API server.
const RequestTimeout = time.Minute

// Run audits the cluster, prints the findings, and returns the exit code: 0 no
// finding, 1 findings, 2 the cluster could not be read. The options must be valid.
// name begins each message on stderr. Libraries log to the process's logger, which the caller
// discards.
func (o *Options) Run(ctx context.Context, name string, config *rest.Config, stdout, stderr io.Writer) int {
	progress := NewProgress(stderr) // it moves a terminal's cursor
	stdout = termsafe.Writer(stdout)
	stderr = termsafe.Writer(stderr)
	report, err := o.look(ctx, name, config, progress, stderr)
	if err != nil {
		fmt.Fprintf(stderr, "%s: the cluster was not audited: %v\n", name, err)
		return 2
	}
	if err := o.write(stdout, &report); err != nil {
		fmt.Fprintf(stderr, "%s: writing the report: %v\n", name, err)
		return 2
	}
	if report.Errors > 0 || report.Warnings > 0 && o.failOn == string(audit.Warning) {
		return 1
	}
	return 0
}

func (o *Options) write(stdout io.Writer, report *audit.Report) error {
	if o.Write != nil {
		return o.Write(stdout, report)
	}
	if o.output == "json" {
		return report.JSON(stdout)
	}
	return report.Text(stdout)
}

func (o *Options) look(ctx context.Context, name string, config *rest.Config, p *Progress, stderr io.Writer) (audit.Report, error) {
	scheme, err := apiclient.Scheme()
	if err != nil {
		return audit.Report{}, err
	}
	direct, err := apiclient.NewClient(config, client.Options{Scheme: scheme})
	if err != nil {
		return audit.Report{}, clusterread.CannotRead(config.Host, err)
	}
	lease := o.lease
	if !o.given("cilium-namespace") {
		lease.CiliumNamespace = ""
	}
	operator, err := clusterread.Find(ctx, direct, lease, time.Now())
	if err != nil {
		return audit.Report{}, clusterread.CannotRead(config.Host, err)
	}
	for _, words := range append([]string{operator.ModeUnknown(), operator.SettingsUnknown()}, operator.OtherCRDs...) {
		if words != "" {
			fmt.Fprintf(stderr, "%s: %s\n", name, words)
		}
	}
	// Flags override the operator's settings.
	settings := SettingsOf(operator.Settings)
	settings.StuckAfter = o.stuckAfter
	if o.given("cilium-namespace") {
		settings.AgentNamespace = o.lease.CiliumNamespace
	}
	if o.given("agent-selector") {
		settings.AgentSelector = o.agents
	}
	reader := clusterread.Reader{
		Client: direct, Mode: operator.Mode, Observe: operator.Observe, Config: true, Progress: p.Read,
		AgentNamespace: settings.AgentNamespace, AgentSelector: settings.AgentSelector, FRRNamespace: settings.FRRNamespace, Lease: operator.Lease, LeaseOptional: operator.ModeGiven(),
	}
	report, err := auditCluster(ctx, &reader, settings, o.patience)
	p.Clear()
	if err != nil {
		err = clusterread.CannotRead(config.Host, err)
	}
	return report, err
}

// Progress prints to a terminal the number of objects read, if reading takes long.
type Progress struct {
	terminal io.Writer // nil: not a terminal
	begun    time.Time
	printed  bool
}

// NewProgress returns a silent Progress if output is not a terminal.
func NewProgress(output io.Writer) *Progress {
	p := &Progress{begun: time.Now()}
	if f, ok := output.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			p.terminal = output
		}
	}
	return p
}

// Read prints the number of objects of a kind that have been read.
func (p *Progress) Read(kind string, n int) {
	if p.terminal != nil && time.Since(p.begun) > 2*time.Second {
		p.printed = true
		fmt.Fprintf(p.terminal, "\r\033[Kreading %s: %d", kind, n)
	}
}

// Clear erases the progress line.
func (p *Progress) Clear() {
	if p.printed {
		fmt.Fprint(p.terminal, "\r\033[K")
	}
}
