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
			"less":     inWorld((*world).cmdLess),
			"pool":     inWorld((*world).cmdPool),
			"node":     inWorld((*world).cmdNode),
			"pod":      inWorld((*world).cmdPod),
			"waiting":  inWorld((*world).cmdWaiting),
			"block":    inWorld((*world).cmdBlock),
			"lease":    inWorld((*world).cmdLease),
			"phase":    inWorld((*world).cmdPhase),
			"waits":    inWorld((*world).cmdWaits),
			"owner":    inWorld((*world).cmdOwner),
			"mapped":   inWorld((*world).cmdMapped),
			"annotate": inWorld((*world).cmdAnnotate),
			"unlease":  inWorld((*world).cmdUnlease),
			"plain":    cmdPlain,
			"exits":    cmdExits,
			"admin":    inWorld((*world).cmdAdmin),
			"apply":    inWorld((*world).cmdApply),

			"given":   inWorld((*world).cmdGiven),
			"oldpod":  inWorld((*world).cmdOldPod),
			"publish": inWorld((*world).cmdPublish),
			"report":  inWorld((*world).cmdReport),
			"answer":  inWorld((*world).cmdAnswer),
			"entry":   inWorld((*world).cmdEntry),
			"budget":  inWorld((*world).cmdBudget),
			"config":  inWorld((*world).cmdConfig),
			"moveto":  inWorld((*world).cmdMoveTo),
			"assign":  inWorld((*world).cmdAssign),
			"request": inWorld((*world).cmdRequest),
			"repeats": inWorld((*world).cmdRepeats),
			"names":   inWorld((*world).cmdNames),
			"lists":   inWorld((*world).cmdLists),

			"assigned": inWorld((*world).cmdAssigned),

			"wakes":   inWorld((*world).cmdWakes),
			"version": inWorld((*world).cmdVersion),

			"withdraw": inWorld((*world).cmdWithdraw),
			"await":    cmdAwait,
		},
	})
}

// worldKey is the key of the world in a script's environment.
type worldKey struct{}

// inWorld returns a command that runs in the world of its script.
func inWorld(cmd func(*world, *testscript.TestScript, bool, []string)) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, neg bool, args []string) {
		cmd(ts.Value(worldKey{}).(*world), ts, neg, args)
	}
}
