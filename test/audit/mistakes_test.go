package audit

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/cilium-pool/cilium-pool-operator/pkg/audit"
	"github.com/cilium-pool/cilium-pool-operator/test/agent"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
	"github.com/cilium-pool/cilium-pool-operator/test/harness/fleet"
	"github.com/cilium-pool/cilium-pool-operator/test/harness/process"
)

// A script of mistakes has a cluster with agents and a running operator, and all rights there.
type mistakes struct {
	*bed
	//nolint:containedctx // commands of scripts are passed none
	alive    context.Context // until the machines are switched off
	machines *fleet.Fleet
	operates *process.Process
	address  netip.Addr            // of the last Node
	found    audit.ReportedFinding // by the last command finds
}

// Each mistake of the scripts is found, and its advice, carried out word by word, ends the finding.
func TestMistakes(t *testing.T) {
	key := new(int)
	do := func(cmd func(*mistakes, *testscript.TestScript, []string)) func(*testscript.TestScript, bool, []string) {
		return func(ts *testscript.TestScript, neg bool, args []string) {
			if neg {
				ts.Fatalf("no ! before a command of mistakes")
			}
			cmd(ts.Value(key).(*mistakes), ts, args)
		}
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata", RequireExplicitExec: true,
		Setup: func(e *testscript.Env) error {
			b := newBed(e.T().(testing.TB))
			b.leaderless()
			kubeconfig := filepath.Join(b.TempDir(), "admin")
			e.Values[key] = &mistakes{bed: b, address: netip.MustParseAddr("172.31.0.0")}
			e.Setenv("KUBECONFIG", kubeconfig)
			e.Setenv("PATH", b.cluster.BinDir()+":"+os.Getenv("PATH"))
			return b.cluster.WriteKubeconfig(kubeconfig)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"operator": do((*mistakes).operator),
			"stop":     do((*mistakes).stop),
			"node":     do((*mistakes).node),
			"pods":     do((*mistakes).pods),
			"finds":    do((*mistakes).finds),
			"advises":  do((*mistakes).advises),
			"follow":   do((*mistakes).follow),
			"clean":    do((*mistakes).clean),
		},
	})
}

// operator MODE [FLAG...] runs an operator, and agents for the Nodes to come.
func (m *mistakes) operator(ts *testscript.TestScript, args []string) {
	m.operates = m.startOperator(append([]string{"--leader-elect=true", "--mode=" + args[0]}, args[1:]...)...)
	if m.machines != nil {
		return
	}
	options := fleet.Quick()
	options.IPAM = agent.IPAM(args[0])
	m.machines = fleet.New(m.Client, fleet.Options{Agent: options, Retry: patience / 100})
	alive, off := context.WithCancel(context.Background())
	m.alive = alive
	var running sync.WaitGroup
	running.Go(func() { m.machines.Run(alive) })
	ts.Defer(func() { off(); running.Wait() })
}

// stop stops the operator.
func (m *mistakes) stop(ts *testscript.TestScript, _ []string) { ts.Check(m.operates.Stop(patience)) }

// node NAME [LABEL=VALUE...] joins a Node with an agent.
func (m *mistakes) node(ts *testscript.TestScript, args []string) {
	labels := map[string]string{}
	for _, label := range args[1:] {
		key, value, _ := strings.Cut(label, "=")
		labels[key] = value
	}
	m.address = m.address.Next()
	ts.Check(harness.JoinNode(m.alive, m.Client, args[0], m.address.String(), labels))
	m.machines.Boot(m.alive, args[0])
}

// pods NODE N binds N pods to a Node.
func (m *mistakes) pods(ts *testscript.TestScript, args []string) {
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	for range n {
		ts.Check(m.Client.Create(m.alive, harness.BoundPod(args[0], args[0]+"-", nil)))
	}
}

// finds REASON KIND/[NAMESPACE/]NAME [FLAG...] waits until check finds it.
func (m *mistakes) finds(ts *testscript.TestScript, args []string) {
	m.until(ts, args[2:], func(findings []audit.ReportedFinding) error {
		for _, f := range findings {
			if string(f.Reason) == args[0] && f.Object.String() == args[1] {
				m.found = f
				return nil
			}
		}
		return errors.New("not found")
	})
	ts.Logf("%s\nfix: %s", m.found.Message, m.found.Fix)
}

// clean [FLAG...] waits until check finds nothing.
func (m *mistakes) clean(ts *testscript.TestScript, flags []string) {
	m.until(ts, flags, func(findings []audit.ReportedFinding) error {
		if len(findings) > 0 {
			return errors.New("not clean")
		}
		return nil
	})
}

func (m *mistakes) until(ts *testscript.TestScript, flags []string, holds func([]audit.ReportedFinding) error) {
	ctx, cancel := context.WithTimeout(m.alive, patience)
	defer cancel()
	ts.Check(harness.Until(ctx, 0, func(context.Context) error {
		got := m.check(append(flags, "-o", "json")...)
		if err := holds(m.report(got).Findings); err != nil {
			return fmt.Errorf("%w:\n%s", err, got.stdout)
		}
		return nil
	}))
}

// advises REGEXP holds if the message or the fix of the finding matches.
func (m *mistakes) advises(ts *testscript.TestScript, args []string) {
	if text := m.found.Message + "\n" + m.found.Fix; !regexp.MustCompile(args[0]).MatchString(text) {
		ts.Fatalf("no %q in:\n%s", args[0], text)
	}
}

// follow COMMAND runs a command that the fix has word by word. An edit is made by KUBE_EDITOR.
func (m *mistakes) follow(ts *testscript.TestScript, args []string) {
	if !strings.Contains(m.found.Fix, args[0]) {
		ts.Fatalf("no %q in: %s", args[0], m.found.Fix)
	}
	ts.Check(ts.Exec("bash", "-c", args[0]))
}
