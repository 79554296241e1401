// Command cilium-pool-operator assigns pod addresses from pools to nodes. It runs alongside
// Cilium with ipam.mode=crd, where it writes spec.ipam.pool of CiliumNodes, and with
// multi-pool or kubernetes, where it assigns whole blocks.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/go-logr/zapr"
	"github.com/spf13/pflag"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

const usage = `cilium-pool-operator assigns pod addresses to nodes from pools that select
nodes by label. It runs beside Cilium with ipam.mode=crd, multi-pool,
delegated-plugin or kubernetes.

It watches PodIPPools, Nodes, Pods and CiliumNodes, claims PodIPBlocks, and
writes spec.ipam of the CiliumNodes (in kubernetes mode: annotations of Nodes).

  kubectl get podippools               how full each pool is, and whether it is fine
  kubectl get podipblocks              which node holds what
  kubectl get podipblocks --field-selector spec.nodeName=NODE
  kubectl explain podippool.spec       what can be set

  cilium-pool-operator check           audit a live cluster; see check --help

Exit codes: 0 asked to stop, 1 cannot run or lost the lead, 2 wrong command line.

Flags:
`

func main() { os.Exit(run(ctrl.SetupSignalHandler(), os.Args[1:], os.Stdout, os.Stderr)) }

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) > 0 && args[0] == "check" {
		return runCheck(ctx, args[1:], stdout, stderr)
	}
	if len(args) > 0 && args[0] == "node-agent" {
		return runNodeAgent(ctx, args[1:], stdout, stderr)
	}
	o := defaultOptions()
	fs := pflag.NewFlagSet("cilium-pool-operator", pflag.ContinueOnError)
	fs.SortFlags = false
	fs.Usage = func() {}
	o.addFlags(fs)
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			fmt.Fprint(stdout, usage, fs.FlagUsages())
			return 0
		}
		fmt.Fprintf(stderr, "cilium-pool-operator: %v\nSee cilium-pool-operator --help.\n", err)
		return 2
	}
	if o.version {
		fmt.Fprintln(stdout, versionLine())
		return 0
	}
	if fs.NArg() > 0 {
		fmt.Fprintf(stderr, "cilium-pool-operator: unexpected argument %q. See cilium-pool-operator --help.\n", fs.Arg(0))
		return 2
	}
	if err := o.validate(); err != nil {
		fmt.Fprintf(stderr, "cilium-pool-operator: %v\nSee cilium-pool-operator --help.\n", err)
		return 2
	}
	logger, err := o.logger()
	if err != nil {
		fmt.Fprintf(stderr, "cilium-pool-operator: %v\n", err)
		return 1
	}
	log := zapr.NewLogger(logger)
	ctrl.SetLogger(log)
	klog.SetLogger(log)
	log.Info("starting", "version", versionLine())
	if err := serve(ctx, o); err != nil {
		log.Error(err, "stopping")
		return 1
	}
	return 0
}

func (o *options) logger() (*zap.Logger, error) {
	config := zap.NewProductionConfig()
	config.Encoding = o.logFormat
	config.Sampling = nil
	if o.logFormat == "console" {
		config.EncoderConfig = zap.NewDevelopmentEncoderConfig()
	}
	config.EncoderConfig.EncodeTime = zapTime
	config.DisableStacktrace = true
	level, err := zap.ParseAtomicLevel(o.logLevel)
	if err != nil {
		return nil, err
	}
	config.Level = level
	return config.Build(lazily)
}

// lazily makes loggers encode their fields lazily.
var lazily = zap.WrapCore(func(core zapcore.Core) zapcore.Core { return lazyFields{core} })

// lazyFields encodes a logger's fields only when it writes a line. Every reconcile has a logger
// with its own fields, and nearly all of these loggers write no line.
type lazyFields struct{ zapcore.Core }

// With returns a core with more fields.
func (l lazyFields) With(fields []zapcore.Field) zapcore.Core {
	return lazyFields{zapcore.NewLazyWith(l.Core, fields)}
}
