package plugin

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/cilium-pool/cilium-pool-operator/pkg/plain"
)

// Exit codes of all commands. docs/kubectl/README.md has the table.
const (
	// exitFailed: the command failed, or what it looked for is wrong.
	exitFailed = 1
	// exitUsage: the command line is wrong, and nothing was done.
	exitUsage = 2
	// exitNotReached: the requested state needs user action first.
	exitNotReached = 3
)

// ExitCode is an error already printed, carrying an exit code.
type ExitCode int

func (e ExitCode) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// usageError is an error in the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// failure is an error of a command that has begun.
type failure struct{ error }

func (e failure) Unwrap() error { return e.error }

// markFailures tells errors of commands that have begun from those of cobra, which
// are about the command line.
func markFailures(cmd *cobra.Command) {
	if run := cmd.RunE; run != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			if err := run(cmd, args); err != nil {
				return failure{err}
			}
			return nil
		}
	}
	for _, c := range cmd.Commands() {
		markFailures(c)
	}
}

// Run runs the command and returns the exit code.
func Run(cmd *cobra.Command, streams genericiooptions.IOStreams) int {
	named, err := cmd.ExecuteC()
	var code ExitCode
	switch {
	case err == nil:
		return 0
	case errors.As(err, &code):
		return int(code)
	}
	errOut := plain.Writer(streams.ErrOut)
	fmt.Fprintf(errOut, "error: %v\n", err)
	if errors.As(err, &usageError{}) || !errors.As(err, &failure{}) {
		fmt.Fprintf(errOut, "See %s --help.\n", named.CommandPath())
		return exitUsage
	}
	return exitFailed
}
