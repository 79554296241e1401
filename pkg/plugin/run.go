package plugin

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/output"
	"github.com/cilium-pool/cilium-pool-operator/pkg/termsafe"
)

// failure is an error of a command that has begun.
type failure struct{ error }

func (e failure) Unwrap() error { return e.error }

// markFailures distinguishes errors of commands that have begun from cobra's own, which concern
// the command line.
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
	var code output.Code
	switch {
	case err == nil:
		return 0
	case errors.As(err, &code):
		return int(code)
	}
	errOut := termsafe.Writer(streams.ErrOut)
	fmt.Fprintf(errOut, "error: %v\n", err)
	if errors.As(err, &output.UsageError{}) || !errors.As(err, &failure{}) {
		fmt.Fprintf(errOut, "See %s --help.\n", named.CommandPath())
		return int(output.Usage)
	}
	return int(output.Failed)
}
