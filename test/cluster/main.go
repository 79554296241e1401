//go:build linux

// Command cluster runs a real Kubernetes cluster on this machine: kubelets, containerd, Cilium
// from its own chart, and the operator from its image and chart. It needs root, and neither
// Docker, systemd nor a registry.
//
// Only this suite finds how kubelet, containerd, the charts and the pages work together with
// the operator: an installation, an upgrade, a day's work, a migration.
//
//	cluster up     start one and install Cilium and the operator
//	cluster down   remove what any of these commands left
//	cluster run    start one, run scenarios, print a table, remove it
//
// The installation follows docs/install.md, by the commands of that page. Differences that
// this machine requires are at forcedCilium in bed.go, with the reasons.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/cilium-pool/cilium-pool-operator/test/cluster/box"
	"github.com/cilium-pool/cilium-pool-operator/test/cluster/kube"
	"github.com/cilium-pool/cilium-pool-operator/test/harness/script"
)

type options struct {
	repository string // folder of the checkout, whose documentation and charts are used
	dir        string // of the cluster's state
	cache      string // folder of the disks that later clusters use again
	binDir     string // folder of the programs that were built
	cilium     string // folder of Cilium's chart
	oldCilium  string // folder of the chart that the scenario cilium upgrades from
	oldImage   string // file of its image
	// oldOperator and olderOperator are folders of an earlier commit's chart, image and source, which
	// the scenarios operator and versions upgrade from.
	oldOperator, olderOperator string
	// oldKubelet is the program that the scenario kubelet upgrades from.
	oldKubelet string
	helm       string
	helm3      string
	images     string
	operator   string // file of the operator's image
	nodes      int
	run        string
	timeout    time.Duration // of one scenario
}

func main() {
	box.Main(os.Args)
	ctrl.SetLogger(logr.Discard()) // the client of invariant has nothing to say
	if len(os.Args) < 2 {
		usage("say what to do: up, down or run")
	}
	o := options{repository: ".", dir: ".run/cluster", cache: ".cache/cluster", binDir: ".cache/bin"}
	fs := flag.NewFlagSet(os.Args[1], flag.ExitOnError)
	fs.StringVar(&o.cilium, "cilium", ".cache/bin/cilium-1.20.2/chart", "folder of Cilium's chart")
	fs.StringVar(&o.oldCilium, "old-cilium", ".cache/bin/cilium-1.19.5/chart", "folder of the chart of the Cilium that the scenario cilium upgrades from")
	fs.StringVar(&o.oldImage, "old-image", ".cache/cluster/images/cilium-v1.19.5.tar", "file of the image of that Cilium")
	fs.StringVar(&o.oldOperator, "old-operator", "", "folder of the operator that the scenario operator upgrades from")
	fs.StringVar(&o.olderOperator, "older-operator", "", "folder of the operator that the scenario versions upgrades from")
	fs.StringVar(&o.oldKubelet, "old-kubelet", ".cache/bin/kubelet-1.35.4/kubelet", "kubelet that the scenario kubelet upgrades from")
	fs.StringVar(&o.helm, "helm", "helm", "Helm to install with")
	fs.StringVar(&o.helm3, "helm3", "helm3", "Helm 3, for the variants that install with it")
	fs.StringVar(&o.images, "images", "", "files of the images that nodes have, separated by commas")
	fs.StringVar(&o.operator, "operator", "", "file of the operator's image")
	fs.IntVar(&o.nodes, "nodes", 3, "how many nodes")
	fs.StringVar(&o.run, "run", "ci", "scenarios, separated by commas; ci: those of every change; all: all of them")
	fs.DurationVar(&o.timeout, "timeout", 30*time.Minute, "how long one scenario may take")
	_ = fs.Parse(os.Args[2:]) // It exits on errors.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := execute(ctx, os.Args[1], o)
	stop()
	os.Exit(code)
}

func usage(what string) {
	fmt.Fprintln(os.Stderr, "cluster:", what)
	os.Exit(script.ExitUsage)
}

func execute(ctx context.Context, name string, o options) int {
	if err := o.absolute(); err != nil {
		usage(err.Error())
	}
	if o.nodes < 1 || o.nodes > kube.MaxNodes {
		usage(fmt.Sprintf("-nodes is %d: 1 to %d", o.nodes, kube.MaxNodes))
	}
	b := newBed(o)
	var err error
	switch name {
	case "up":
		err = up(ctx, b)
	case "down":
		err = b.cluster.Down()
	case "run":
		return runScenarios(ctx, b)
	default:
		usage(name + " is no command: up, down or run")
	}
	return code(err)
}

// code returns the exit code and prints the error, prominently if no cluster was tried at all.
func code(err error) int {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, box.ErrCannot):
		script.Banner(os.Stderr, err)
		return script.ExitCannot
	default:
		fmt.Fprintln(os.Stderr, "cluster:", err)
		return script.ExitFailed
	}
}

func (o *options) absolute() error {
	for _, path := range []*string{&o.repository, &o.dir, &o.cache, &o.binDir, &o.cilium, &o.oldCilium, &o.oldImage, &o.oldOperator, &o.olderOperator, &o.oldKubelet, &o.helm, &o.helm3, &o.operator} {
		if *path == "" {
			continue
		}
		absolute, err := filepath.Abs(*path)
		if err != nil {
			return err
		}
		*path = absolute
	}
	return nil
}

// up starts a cluster and leaves it running.
func up(ctx context.Context, b *bed) (err error) {
	if err := b.cluster.Check(); err != nil {
		return err
	}
	if names, err := b.cluster.State.Names(); err != nil || len(names) > 0 {
		return errors.Join(err, fmt.Errorf("a cluster is there already: %s (make cluster-down removes it)", strings.Join(names, ", ")))
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.cluster.Down())
		}
	}()
	if err := errors.Join(os.RemoveAll(b.cluster.Logs()), b.start(ctx)); err != nil {
		return err
	}
	if err := b.install(ctx); err != nil {
		return err
	}
	b.say("up; logs are in %s", b.cluster.Logs())
	fmt.Printf("\nexport KUBECONFIG=%s PATH=%s:$PATH\nkubectl get nodes,podippools,podipblocks\n", b.cluster.Kubeconfig(), b.toolDir())
	return nil
}

// stopwatch prints each step with the time since the start.
type stopwatch struct{ began time.Time }

func (s stopwatch) say(format string, args ...any) {
	fmt.Printf("%5ds  %s\n", int(time.Since(s.began).Seconds()), fmt.Sprintf(format, args...))
}
