// Package plugin runs kubectl cilium-pool against the real API server, by the scripts in
// testdata. go test ./test/plugin -update writes their expected output.
//
// Only this suite finds wrong output of kubectl cilium-pool, wrong exit codes, and rights that
// it lacks.
package plugin

import (
	"flag"
	"os"
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
	planes cptest.Pool
)

// program runs the test binary as kubectl-cilium_pool.
func program() {
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	cmd := plugin.New(streams, "v0.0.0-test")
	cmd.SetContext(ctrl.SetupSignalHandler())
	os.Exit(plugin.Run(cmd, streams))
}

// run lets the tests take turns at control planes.
type run struct{ *testing.M }

func (r run) Run() int { return planes.Main(r.M) }

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	testscript.Main(run{m}, map[string]func(){"kubectl-cilium_pool": program})
}

// TestScripts runs each script with the cluster to itself, empty at first.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup:               func(e *testscript.Env) error { return newWorld(e.T().(testing.TB)).setup(e) },
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"pool":     of((*world).cmdPool),
			"node":     of((*world).cmdNode),
			"pod":      of((*world).cmdPod),
			"waiting":  of((*world).cmdWaiting),
			"block":    of((*world).cmdBlock),
			"lease":    of((*world).cmdLease),
			"phase":    of((*world).cmdPhase),
			"waits":    of((*world).cmdWaits),
			"owner":    of((*world).cmdOwner),
			"mapped":   of((*world).cmdMapped),
			"annotate": of((*world).cmdAnnotate),
			"unlease":  of((*world).cmdUnlease),
			"plain":    cmdPlain,
			"exits":    cmdExits,
			"admin":    of((*world).cmdAdmin),
			"apply":    of((*world).cmdApply),

			"given":   of((*world).cmdGiven),
			"oldpod":  of((*world).cmdOldPod),
			"publish": of((*world).cmdPublish),
			"report":  of((*world).cmdReport),
			"answer":  of((*world).cmdAnswer),
			"entry":   of((*world).cmdEntry),
			"budget":  of((*world).cmdBudget),
			"config":  of((*world).cmdConfig),
			"moveto":  of((*world).cmdMoveTo),
			"assign":  of((*world).cmdAssign),
			"request": of((*world).cmdRequest),
			"repeats": of((*world).cmdRepeats),
			"names":   of((*world).cmdNames),
			"lists":   of((*world).cmdLists),

			"assigned": of((*world).cmdAssigned),

			"wakes":   of((*world).cmdWakes),
			"version": of((*world).cmdVersion),

			"withdraw": of((*world).cmdWithdraw),
			"await":    cmdAwait,
		},
	})
}

// worldKey is the key of the world in a script's environment.
type worldKey struct{}

// of returns a command that runs in the world of its script.
func of(cmd func(*world, *testscript.TestScript, bool, []string)) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, neg bool, args []string) {
		cmd(ts.Value(worldKey{}).(*world), ts, neg, args)
	}
}
