// Package process starts the child processes of tests, the demo and the
// benchmark.
package process

import (
	"os/exec"
	"runtime"
)

// Start starts cmd and reaps it; the channel is closed once it has ended. A
// detached child outlives this process. Any other ends with it, however that
// ends (on Linux), and Ctrl-C does not reach it.
func Start(cmd *exec.Cmd, detached bool) (stopped chan struct{}, err error) {
	cmd.SysProcAttr = sysProcAttr(detached)
	stopped, started := make(chan struct{}), make(chan error, 1)
	go func() {
		// The parent-death signal comes when the thread that forked ends, so
		// that thread is kept until then.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // How it ended is in its log.
			close(stopped)
		}
	}()
	return stopped, <-started
}
