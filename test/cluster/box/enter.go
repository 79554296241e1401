//go:build linux

package box

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
)

// Command returns a command that runs in a box: in all its namespaces, but in the cgroups of
// this process. It ends with ctx.
func (s State) Command(ctx context.Context, name string, argv ...string) (*exec.Cmd, error) {
	pid := s.PID(name)
	if pid == 0 {
		return nil, fmt.Errorf("%s does not run", name)
	}
	flags := []string{"--target", strconv.Itoa(pid), "--mount", "--net", "--uts", "--ipc", "--pid", "--cgroup", "--"}
	return exec.CommandContext(ctx, "nsenter", append(flags, argv...)...), nil
}

// Run runs a command in a box and returns its output.
func (s State) Run(ctx context.Context, name string, argv ...string) (string, error) {
	cmd, err := s.Command(ctx, name, argv...)
	if err != nil {
		return "", err
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s in %s: %w: %s", strings.Join(argv, " "), name, err, strings.TrimSpace(string(out)))
	}
	return string(out), nil
}
