// Package cli is shared by all commands of kubectl cilium-pool: their flags and streams, their
// connection to the cluster, the tables and data formats that they print, and their exit codes.
package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/audit/check"
	"github.com/cilium-pool/cilium-pool-operator/pkg/config"
	"github.com/cilium-pool/cilium-pool-operator/pkg/termsafe"
)

// Env is shared by all commands.
type Env struct {
	// IOStreams write no terminal control characters; raw are the original streams.
	genericiooptions.IOStreams
	Raw     genericiooptions.IOStreams
	Flags   *genericclioptions.ConfigFlags
	Version string

	AgentNamespace, agentSelector string
	// given reports whether a shared flag is on the command line.
	given func(flag string) bool
	// warned are the warnings that have been printed.
	warned []string
	// leaderless: the last warning that no operator leads still holds.
	leaderless bool
	Place      *Place // nil: the cluster that flags name
	// mode is the flag's; "": detect it.
	mode string
	// lease is the name of the operator's Lease; "": find it.
	lease string

	client client.Client // nil: not made yet
	host   string        // of the API server
}

// NewEnv returns an Env with the defaults of all flags.
func NewEnv(streams genericiooptions.IOStreams, version string, place *Place) *Env {
	e := &Env{IOStreams: streams, Raw: streams, Flags: genericclioptions.NewConfigFlags(false), Version: version, Place: place}
	e.Flags.CacheDir = nil // no cache between two calls
	if place != nil {
		e.client = place.Client
		e.host = "a simulation"
	}
	e.Out, e.ErrOut = termsafe.Writer(e.Out), termsafe.Writer(e.ErrOut)
	return e
}

// AddFlags adds the shared flags.
func (e *Env) AddFlags(fs *pflag.FlagSet) {
	e.Flags.AddFlags(fs)
	fs.Lookup("namespace").Usage = "namespace of the operator; empty: find it"
	e.given = fs.Changed
	defaults := config.DefaultSettings()
	fs.StringVar(&e.AgentNamespace, "cilium-namespace", defaults.AgentNamespace, "namespace of the Cilium agents; if not given: as the operator's Lease says")
	fs.StringVar(&e.agentSelector, "agent-selector", defaults.AgentSelector.String(), "label selector of the Cilium agents' pods; if not given: as the operator's Lease says")
	fs.StringVar(&e.lease, "lease", "", "name of the operator's Lease; empty: find it")
	fs.StringVar(&e.mode, "mode", "", check.ModeUsage)
}

// ReadFile reads a file; "-" is standard input.
func (e *Env) ReadFile(name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(e.In)
	}
	return os.ReadFile(name)
}

// CompleteFlag completes the values of a flag.
func CompleteFlag(cmd *cobra.Command, flag string, values ...string) {
	// It fails for an unknown flag only.
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// Examples formats command lines for --help.
func Examples(lines ...string) string {
	const command = "  kubectl cilium-pool "
	return command + strings.Join(lines, "\n"+command)
}

// Place is where commands run that do not find their cluster by a kubeconfig: a simulated
// cluster with its own time. Everything that migrate and drain do goes through it;
// commands that follow a cluster with watches do not.
type Place struct {
	// Client reads and writes.
	Client client.Client
	// Now returns the time there.
	Now func() time.Time
	// Sleep lets time pass. An error ends the command.
	Sleep func(context.Context, time.Duration) error
}

// TimeNow returns the time at the cluster's place.
func (e *Env) TimeNow() time.Time {
	if e.Place != nil {
		return e.Place.Now()
	}
	return time.Now()
}

// Sleep lets time pass, and returns the context's error if that ends before.
func (e *Env) Sleep(ctx context.Context, d time.Duration) error {
	if e.Place != nil {
		return e.Place.Sleep(ctx, d)
	}
	return Sleep(ctx, d)
}

// Sleep waits, or returns the context's error if that ends before.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// CompleteNodes completes names of Nodes.
func (e *Env) CompleteNodes(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return e.names(cmd.Context(), corev1.SchemeGroupVersion.WithKind("NodeList"))
}

// CompletePools completes names of PodIPPools.
func (e *Env) CompletePools(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return e.names(cmd.Context(), v1alpha1.GroupVersion.WithKind("PodIPPoolList"))
}

// names returns the names of all objects of a kind, without reading their content. Completion
// reports no error to the shell.
func (e *Env) names(ctx context.Context, kind schema.GroupVersionKind) ([]string, cobra.ShellCompDirective) {
	c, err := e.Client()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind)
	if err := c.List(ctx, list, client.Limit(1000)); err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	names := make([]string, 0, len(list.Items))
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

var errNotConfirmed = errors.New("not confirmed: nothing was changed")

// Confirm asks the user at a terminal. It fails for any answer but yes.
func (e *Env) Confirm(warning string) error {
	return confirm(e.In, e.ErrOut, IsTerminal(e.In), warning)
}

func confirm(input io.Reader, out io.Writer, terminal bool, warning string) error {
	unasked := Usagef("%s Standard input is no terminal to ask on: add --yes to go on", warning)
	if !terminal {
		return unasked
	}
	fmt.Fprintf(out, "%s Go on? (y/N): ", warning)
	answer, err := bufio.NewReader(input).ReadString('\n')
	if errors.Is(err, io.EOF) && answer == "" { // /dev/null looks like a terminal
		fmt.Fprintln(out)
		return unasked
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("reading the answer: %w", err)
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return errNotConfirmed
}

// IsTerminal reports whether a stream is a character device.
func IsTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
