//go:build linux

package bed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/cilium-pool/cilium-pool-operator/test/harness/process"
)

const (
	operatorName       = "cilium-pool-operator"
	ciliumOperatorName = "cilium-operator"
)

// StartOperator starts an operator with its defaults, except for flags, and with
// the rights of the chart.
func (b *Bed) StartOperator(flags ...string) (*process.Process, error) {
	argv := append([]string{
		filepath.Join(b.opts.BinDir, operatorName),
		"--kubeconfig=" + b.operatorKubeconfig(modeOf(flags)),
		"--metrics-bind-address=0", "--health-probe-bind-address=0",
		"--log-format=console", "--log-level=debug",
	}, flags...)
	return b.spawn("operator", argv...)
}

// StartCiliumOperator starts Cilium's own operator with the agents' configuration, as its pod
// does, and flags, which take precedence. In a cluster that moves between modes it
// uses the configuration in the API server.
func (b *Bed) StartCiliumOperator(ctx context.Context, flags ...string) (*process.Process, error) {
	dir := b.configDir()
	if b.moves() {
		config, err := b.readConfig(ctx)
		if err != nil {
			return nil, err
		}
		dir = filepath.Join(b.opts.Logs, ciliumOperatorName+"-config")
		if err := writeConfig(dir, config); err != nil {
			return nil, err
		}
	}
	argv := []string{filepath.Join(b.opts.CiliumDir, ciliumOperatorName), "--k8s-kubeconfig-path=" + b.kubeconfig, "--config-dir=" + dir}
	return b.spawn(ciliumOperatorName, append(argv, flags...)...)
}

// Shell runs a command line of a page with kubectl and its plugin, in the folder of the logs.
// If ctx ends first, it is killed with SIGKILL. Shell returns the output and the exit code,
// which is -1 if it was killed.
func (b *Bed) Shell(ctx context.Context, line string) (out string, code int, err error) {
	cmd := exec.CommandContext(ctx, "bash", "-c", line)
	cmd.Dir = b.opts.Logs
	cmd.Env = append(os.Environ(), "PATH="+b.opts.BinDir+":"+searchPath(), "KUBECONFIG="+b.kubeconfig, "HOME="+stateDir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	printed, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return string(printed), exit.ExitCode(), nil
	}
	if err != nil && ctx.Err() == nil {
		return string(printed), -1, fmt.Errorf("%s: %w", line, err)
	}
	return string(printed), cmd.ProcessState.ExitCode(), nil
}
