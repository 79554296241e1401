package check

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/apiclient"
	"github.com/cilium-pool/cilium-pool-operator/pkg/audit"
	"github.com/cilium-pool/cilium-pool-operator/pkg/audit/clusterread"
	"github.com/cilium-pool/cilium-pool-operator/pkg/termsafe"
)

// RequestTimeout bounds one request to the API server.
const RequestTimeout = time.Minute

// Run audits the cluster, prints the findings, and returns the exit code: 0 no
// finding, 1 findings, 2 the cluster could not be read. The options must be valid.
// name begins each message on stderr.
func (o *Options) Run(ctx context.Context, name string, config *rest.Config, stdout, stderr io.Writer) int {
	progress := NewProgress(stderr) // it moves a terminal's cursor
	stdout, stderr = termsafe.Writer(stdout), termsafe.Writer(stderr)
	report, err := o.look(ctx, name, config, progress, stderr)
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

func (o *Options) look(ctx context.Context, name string, config *rest.Config, p *Progress, stderr io.Writer) (audit.Report, error) {
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	scheme, err := apiclient.Scheme()
	if err != nil {
		return audit.Report{}, err
	}
	unreachable := func(err error) error {
		return fmt.Errorf("cannot read from the API server at %s: %w", config.Host, err)
	}
	direct, err := apiclient.NewClient(config, client.Options{Scheme: scheme})
	if err != nil {
		return audit.Report{}, unreachable(err)
	}
	operator, err := clusterread.Find(ctx, direct, o.where)
	if err != nil {
		return audit.Report{}, unreachable(err)
	}
	for _, words := range append([]string{operator.ModeUnknown(), operator.SettingsUnknown()}, operator.OtherCRDs...) {
		if words != "" {
			fmt.Fprintf(stderr, "%s: %s\n", name, words)
		}
	}
	reader, settings := o.readerOf(operator.Settings), SettingsOf(operator.Settings)
	settings.StuckAfter, settings.AgentNamespace = o.stuckAfter, reader.AgentNamespace
	reader.Client, reader.Progress, reader.Mode = direct, p.Read, operator.Mode
	report, err := reader.Look(ctx, settings, o.patience)
	p.Clear()
	switch {
	case meta.IsNoMatchError(err):
		return report, fmt.Errorf("%w. Is this the right cluster (--context)? Cilium or the chart's CRDs are not installed at %s", err, config.Host)
	case err != nil:
		return report, unreachable(err)
	}
	return report, nil
}
