// Package script runs scenarios, which are txtar scripts, on a real bed outside of go test, and
// collects their results in a table.
//
// It adds two commands to testscript's own:
//
//	pause DURATION   wait
//	until [within=DURATION] LINE   run a line of bash until it succeeds, for three minutes unless given
package script

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

// pollTick is the pause between two tries of until.
const pollTick = 250 * time.Millisecond

// Command is a command of the scripts.
type Command func(context.Context, *Arguments) error

// Run is a script with its commands.
type Run struct {
	// Name is the scenario's name, which is also true as a condition in the script.
	Name string
	Text []byte
	// Dir is the folder of the script, its transcript and its files.
	Dir string
	// Folder is the working directory. Empty: that of the script's files, $WORK.
	Folder   string
	Env      map[string]string
	Commands map[string]Command
	// Conditions are true in the script, in addition to Name.
	Conditions map[string]bool
	Logf       func(format string, args ...any)
}

// Do runs the script until a command fails or ctx ends.
func (r Run) Do(ctx context.Context) error {
	path, work := filepath.Join(r.Dir, r.Name+".txtar"), filepath.Join(r.Dir, "work-"+r.Name)
	if err := errors.Join(os.MkdirAll(work, 0o755), os.WriteFile(path, r.Text, 0o644)); err != nil {
		return fmt.Errorf("write script: %w", err)
	}
	t := &transcript{path: strings.TrimSuffix(path, "txtar") + "transcript"}
	cmds := map[string]func(*testscript.TestScript, bool, []string){}
	for name, run := range r.Commands {
		cmds[name] = r.command(ctx, t, name, run)
	}
	cmds["pause"], cmds["until"] = r.command(ctx, t, "pause", pause), r.command(ctx, t, "until", r.until)
	deadline, _ := ctx.Deadline()
	testscript.RunT(t, testscript.Params{
		Files: []string{path}, WorkdirRoot: work, Cmds: cmds, RequireExplicitExec: true, Deadline: deadline,
		Setup: func(s *testscript.Env) error {
			if r.Folder != "" {
				s.Cd = r.Folder
			}
			for name, value := range r.Env {
				s.Setenv(name, value)
			}
			return nil
		},
		Condition: func(cond string) (bool, error) { return cond == r.Name || r.Conditions[cond], nil },
	})
	if !t.failed {
		return nil
	}
	r.Logf("the transcript is %s", t.path)
	return fmt.Errorf("%s: %w", r.Name, cmp.Or(t.err, errors.New("a command failed")))
}

func (r Run) command(ctx context.Context, t *transcript, name string, run Command) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, neg bool, args []string) {
		r.Logf("> %s %s", name, strings.Join(args, " "))
		if neg {
			ts.Fatalf("%s knows no !", name)
		}
		if err := run(ctx, &Arguments{Rest: args, Script: ts}); err != nil {
			t.err = fmt.Errorf("%s: %w", name, err)
			ts.Fatalf("%v", t.err)
		}
	}
}

func pause(ctx context.Context, a *Arguments) error {
	d, err := time.ParseDuration(a.Word())
	if err != nil {
		return err
	}
	return harness.Sleep(ctx, d)
}

func (r Run) until(ctx context.Context, a *Arguments) error {
	within, err := time.ParseDuration(a.Value("within", "3m"))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	return harness.Until(ctx, pollTick, func(ctx context.Context) error {
		cmd := exec.CommandContext(ctx, "bash", "-o", "pipefail", "-c", strings.Join(a.Rest, " "))
		cmd.Dir, cmd.Env = r.Folder, os.Environ()
		for name, value := range r.Env {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
		out, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}

// transcript is a testscript.T without a test, which writes all to a file.
type transcript struct {
	path   string
	failed bool
	err    error
}

func (t *transcript) Skip(...any)   { t.Fatal("a scenario is never skipped") }
func (t *transcript) Parallel()     {}
func (t *transcript) Verbose() bool { return true }

func (t *transcript) Log(args ...any) {
	text := fmt.Sprint(args...)
	if err := os.WriteFile(t.path, []byte(text), 0o644); err != nil && t.err == nil {
		t.err = err
	}
	if _, reason, found := strings.Cut(text, "FAIL: "); found && t.err == nil {
		t.err = errors.New(strings.TrimSpace(reason))
	}
}

func (t *transcript) Fatal(args ...any) {
	t.Log(args...)
	t.FailNow()
}

func (t *transcript) FailNow() {
	t.failed = true
	runtime.Goexit()
}

func (t *transcript) Run(_ string, f func(testscript.T)) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(t)
	}()
	<-done
}

// Arguments are a command's words, and values by name.
type Arguments struct {
	Rest   []string
	Script *testscript.TestScript
}

// Word returns the next word, and "" after the last.
func (a *Arguments) Word() string {
	if len(a.Rest) == 0 {
		return ""
	}
	w := a.Rest[0]
	a.Rest = a.Rest[1:]
	return w
}

// Take removes a word, wherever it stands.
func (a *Arguments) Take(word string) bool {
	for i, w := range a.Rest {
		if w == word {
			a.Rest = append(a.Rest[:i:i], a.Rest[i+1:]...)
			return true
		}
	}
	return false
}

// Value removes NAME=VALUE, wherever it stands, and returns the value, or the default.
func (a *Arguments) Value(name, or string) string {
	for _, w := range a.Rest {
		if v, found := strings.CutPrefix(w, name+"="); found {
			a.Take(w)
			return v
		}
	}
	return or
}
