//go:build linux

package main

import (
	"cmp"
	"context"
	"embed"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium-pool/cilium-pool-operator/test/e2e/bed"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
	"github.com/cilium-pool/cilium-pool-operator/test/harness/script"
)

//go:embed testdata/*.txtar
var scripts embed.FS

// script runs the scenario's script. Without an error of a command it judges the rules in
// the end.
func (e *env) script(ctx context.Context) error {
	text, err := scripts.ReadFile("testdata/" + e.scenario.Script())
	if err != nil {
		return fmt.Errorf("read script: %w", err)
	}
	r := script.Run{
		Name: e.scenario.Name, Text: text, Dir: e.options.Logs, Logf: e.logf, Commands: map[string]script.Command{},
		Conditions: map[string]bool{"patched": e.patched},
		Env: map[string]string{
			"PATH":       e.options.BinDir + ":" + os.Getenv("PATH"),
			"KUBECONFIG": filepath.Join(e.options.Logs, "controlplane", "admin.kubeconfig"),
			"POOLS":      filepath.Join(harness.Root(), "test/e2e/testdata"),
		},
	}
	for name, run := range commands() {
		r.Commands[name] = func(ctx context.Context, a *script.Arguments) error { return run(ctx, e, a) }
	}
	err = r.Do(ctx)
	stopped := e.stopOperators()
	if err := cmp.Or(err, stopped); err != nil {
		return err
	}
	return e.judge(ctx)
}

// node returns the node that the next word names.
func (e *env) nodeAt(a *script.Arguments) (*bed.Node, error) {
	name := a.Word()
	if n := e.nodes[name]; n != nil {
		return n, nil
	}
	return nil, fmt.Errorf("no node %q", name)
}

// nodeAndPods returns the node that the next argument names, and the pods of all groups after it.
func (e *env) nodeAndPods(a *script.Arguments) (*bed.Node, []*bed.Pod, error) {
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
func (e *env) groups(a *script.Arguments) (pods []*bed.Pod, err error) {
	for name := a.Word(); name != "" && err == nil; name = a.Word() {
		var more []*bed.Pod
		more, err = e.group(name)
		pods = append(pods, more...)
	}
	return pods, err
}
