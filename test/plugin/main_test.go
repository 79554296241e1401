// Package plugin runs kubectl cilium-pool against the real API server, by the
// scripts in testdata. go test ./test/plugin -update writes what they expect.
//
// Only it finds wrong output of kubectl cilium-pool, its exit codes, and the rights
// that it lacks.
package plugin

import (
	"flag"
	"os"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"github.com/rogpeppe/go-internal/testscript"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin"
	"github.com/cilium-pool/cilium-pool-operator/test/controlplane/cptest"
)

const root = "../.."

var (
	update = flag.Bool("update", false, "write what the scripts and pages should be")
	shared cptest.Shared
)

// program is the test's own binary as kubectl-cilium_pool.
func program() {
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	cmd := plugin.New(streams, "v0.0.0-test")
	cmd.SetContext(ctrl.SetupSignalHandler())
	os.Exit(plugin.Run(cmd, streams))
}

// run lets the tests share a control plane.
type run struct{ *testing.M }

func (r run) Run() int { return shared.Main(r.M) }

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	testscript.Main(run{m}, map[string]func(){"kubectl-cilium_pool": program})
}

// TestScripts gives each script the cluster for itself, empty at first.
func TestScripts(t *testing.T) {
	w := newWorld(t)
	var alone sync.Mutex
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			alone.Lock()
			e.Defer(alone.Unlock)
			return w.setup(e)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"pool":     w.cmdPool,
			"node":     w.cmdNode,
			"pod":      w.cmdPod,
			"waiting":  w.cmdWaiting,
			"block":    w.cmdBlock,
			"lease":    w.cmdLease,
			"phase":    w.cmdPhase,
			"owner":    w.cmdOwner,
			"annotate": w.cmdAnnotate,
			"unlease":  w.cmdUnlease,
			"plain":    cmdPlain,
			"exits":    cmdExits,
			"admin":    w.cmdAdmin,
			"apply":    w.cmdApply,
			"history":  w.cmdHistory,

			"given":   w.cmdGiven,
			"oldpod":  w.cmdOldPod,
			"publish": w.cmdPublish,
			"report":  w.cmdReport,
			"answer":  w.cmdAnswer,
			"entry":   w.cmdEntry,
			"budget":  w.cmdBudget,
			"config":  w.cmdConfig,
			"moveto":  w.cmdMoveTo,
			"assign":  w.cmdAssign,
			"request": w.cmdRequest,
			"names":   w.cmdNames,
			"lists":   w.cmdLists,

			"assigned": w.cmdAssigned,

			"wakes":   w.cmdWakes,
			"version": w.cmdVersion,

			"withdraw": w.cmdWithdraw,
			"await":    cmdAwait,
		},
	})
}
