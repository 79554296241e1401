package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/cilium-pool/cilium-pool-operator/pkg/audit/check"
)

const checkUsage = `cilium-pool-operator check audits a live cluster: do two nodes or pods
have the same address, can agents restore every address in use, do blocks,
CiliumNodes and pools agree, is anything stuck?

It only reads: it lists Nodes, Pods, Services, ServiceCIDRs, CiliumNodes,
CiliumLoadBalancerIPPools, PodIPPools and PodIPBlocks, and gets the operator's Lease,
Cilium's ConfigMap and the operator's CRDs. It may run anywhere, beside any number of operators, or with none. Mode
and settings are those of the operator, by its Lease; where that says nothing, the
mode that Cilium's settings name, and default settings.

A cluster moves while it is read. So it checks findings again after --every and
drops those that are gone. Stuck release entries, drains and cooldowns are reported
after --stuck-after, by the times in the objects. Where these do not show it, as with
marks that the operator sets again and again, check for longer: --watch-for.

  cilium-pool-operator check                         with your kubeconfig
  cilium-pool-operator check --context prod
  cilium-pool-operator check -o json | jq '.findings[].reason'
  cilium-pool-operator check --fail-on error         warnings do not fail
  cilium-pool-operator check --watch-for 6m --every 30s
                                                     agents that never answer, too
  kubectl -n kube-system exec deploy/cilium-pool-operator -- \
      /cilium-pool-operator check                    within the cluster

Each finding has a reason, the object and what to do. Reasons are stable; all
are explained in docs/reference/check.md.

Exit codes: 0 nothing is wrong, 1 something is, 2 wrong command line, or the
cluster could not be read.

Flags:
`

// checkOptions holds the command line of the subcommand check.
type checkOptions struct {
	kubeconfig, context string
	*check.Options
}

func (o *checkOptions) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.kubeconfig, "kubeconfig", o.kubeconfig, "path of a kubeconfig; empty: as kubectl finds it, or the pod's service account")
	fs.StringVar(&o.context, "context", o.context, "context of the kubeconfig; empty: the current one")
	o.AddFlags(fs)
}

// runCheck runs the subcommand check.
func runCheck(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	const name = "cilium-pool-operator check"
	o := &checkOptions{Options: check.NewOptions()}
	if code, ends := parseSubcommand(name, checkUsage, args, o.addFlags, o.Validate, stdout, stderr); ends {
		return code
	}
	config, err := restConfig(o.kubeconfig, o.context, "--kubeconfig or --context")
	if err != nil {
		fmt.Fprintf(stderr, "%s: the cluster was not audited: %v\n", name, err)
		return 2
	}
	config.QPS = -1
	config.Timeout = check.RequestTimeout
	config.UserAgent = "cilium-pool-operator-check/" + version
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	return o.Run(ctx, name, bounded(ctx, config), stdout, stderr)
}

// parseSubcommand reads the command line of a subcommand. If it ends the process, as by --help, it returns the exit code.
func parseSubcommand(name, usage string, args []string, addFlags func(*pflag.FlagSet), validate func() error, stdout, stderr io.Writer) (code int, ends bool) {
	fs := pflag.NewFlagSet(name, pflag.ContinueOnError)
	fs.SortFlags = false
	fs.Usage = func() {}
	addFlags(fs)
	err := fs.Parse(args)
	if errors.Is(err, pflag.ErrHelp) {
		fmt.Fprint(stdout, usage, fs.FlagUsages())
		return 0, true
	}
	if err == nil && fs.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	if err == nil {
		err = validate()
	}
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v\nSee %s --help.\n", name, err, name)
		return 2, true
	}
	return 0, false
}
