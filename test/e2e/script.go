//go:build linux

package main

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/cilium-pool/cilium-pool-operator/test/e2e/bed"
)

//go:embed testdata/*.txtar
var scripts embed.FS

// script runs the scenario's script. Without an error of a command it judges the rules in
// the end.
func (e *env) script(ctx context.Context) error {
	name := e.file
	text, err := scripts.ReadFile("testdata/" + name)
	if err != nil {
		return fmt.Errorf("read script: %w", err)
	}
	path := filepath.Join(e.options.Logs, name)
	if err := os.WriteFile(path, text, 0o644); err != nil {
		return fmt.Errorf("write script: %w", err)
	}
	work := filepath.Join(e.options.Logs, "work")
	if err := os.MkdirAll(work, 0o755); err != nil {
		return fmt.Errorf("make folder of script: %w", err)
	}
	s := &scriptRun{env: e}
	cmds := map[string]func(*testscript.TestScript, bool, []string){}
	for name, run := range commands() {
		cmds[name] = func(ts *testscript.TestScript, neg bool, args []string) {
			e.Logf("> %s %s", name, strings.Join(args, " "))
			if neg {
				ts.Fatalf("%s knows no !", name)
			}
			if err := run(ctx, e, &arguments{rest: args, ts: ts}); err != nil {
				s.err = err
				ts.Fatalf("%s: %v", name, err)
			}
		}
	}
	testscript.RunT(s, testscript.Params{
		Files: []string{path}, WorkdirRoot: work, Cmds: cmds, RequireExplicitExec: true,
		Setup: func(s *testscript.Env) error {
			s.Setenv("PATH", e.options.BinDir+":"+os.Getenv("PATH"))
			s.Setenv("KUBECONFIG", filepath.Join(e.options.Logs, "controlplane", "admin.kubeconfig"))
			return nil
		},
		Condition: func(cond string) (bool, error) {
			if cond == "patched" {
				return e.patched, nil
			}
			return e.name == cond, nil
		},
	})
	stopped := e.stopOperators()
	if s.failed {
		return fmt.Errorf("%s: %w", name, s.err)
	}
	if stopped != nil {
		return stopped
	}
	if e.rules == nil {
		return nil
	}
	if e.whole != nil {
		return e.judgeWhole(ctx)
	}
	return e.judgeRules(ctx)
}

// scriptRun is a testscript.T without a test.
type scriptRun struct {
	env    *env
	failed bool
	err    error
}

func (s *scriptRun) Skip(...any)   { s.Fatal("a scenario is never skipped") }
func (s *scriptRun) Parallel()     {}
func (s *scriptRun) Verbose() bool { return true }

func (s *scriptRun) Log(args ...any) { s.env.Logf("%s", fmt.Sprint(args...)) }

func (s *scriptRun) Fatal(args ...any) {
	s.Log(args...)
	s.FailNow()
}

func (s *scriptRun) FailNow() {
	if s.failed = true; s.err == nil {
		s.err = errors.New("a command failed, see the log")
	}
	runtime.Goexit()
}

func (s *scriptRun) Run(_ string, f func(testscript.T)) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(s)
	}()
	<-done
}

// arguments holds a command's words, and values by name.
type arguments struct {
	rest []string
	ts   *testscript.TestScript
}

// word returns the next word, and "" after the last.
func (a *arguments) word() string {
	if len(a.rest) == 0 {
		return ""
	}
	w := a.rest[0]
	a.rest = a.rest[1:]
	return w
}

// take removes a word, wherever it stands.
func (a *arguments) take(word string) bool {
	for i, w := range a.rest {
		if w == word {
			a.rest = append(a.rest[:i:i], a.rest[i+1:]...)
			return true
		}
	}
	return false
}

// value removes NAME=VALUE, wherever it stands, and returns the value, or the default.
func (a *arguments) value(name, or string) string {
	for _, w := range a.rest {
		if v, found := strings.CutPrefix(w, name+"="); found {
			a.take(w)
			return v
		}
	}
	return or
}

// node returns the node that the next word names.
func (e *env) nodeAt(a *arguments) (*bed.Node, error) {
	name := a.word()
	if n := e.nodes[name]; n != nil {
		return n, nil
	}
	return nil, fmt.Errorf("no node %q", name)
}

// nodeAndPods returns the node that the next argument names, and the pods of all groups after it.
func (e *env) nodeAndPods(a *arguments) (*bed.Node, []*bed.Pod, error) {
	n, err := e.nodeAt(a)
	if err != nil {
		return nil, nil, err
	}
	pods, err := e.groups(a)
	return n, pods, err
}

// group returns the pods of a group.
func (e *env) group(name string) ([]*bed.Pod, error) {
	if pods, ok := e.pods[name]; ok {
		return pods, nil
	}
	return nil, fmt.Errorf("no group of pods %q", name)
}

// groups returns the pods of all groups that the remaining words name.
func (e *env) groups(a *arguments) (pods []*bed.Pod, err error) {
	for name := a.word(); name != "" && err == nil; name = a.word() {
		var more []*bed.Pod
		more, err = e.group(name)
		pods = append(pods, more...)
	}
	return pods, err
}
