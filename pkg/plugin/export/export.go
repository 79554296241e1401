// Package export is kubectl cilium-pool export.
package export

import (
	"bytes"
	"context"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cli"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/output"
)

const exportLong = `Writes the prefixes that nodes have, with the node's address as the next hop, in a
shape that routers, firewalls and inventories read. A prefix is there from before
its first pod until after its last: while the node lists it, in podCIDRs of its
CiliumNode, or where else the mode has it.

With --watch it writes everything again as soon as anything has changed, but no more
often than --every. While the API server cannot be reached, it says so, and the last
output stands.

With --output-file it replaces that file in one step, and then runs --exec. If either
fails under --watch, it says so and tries again.

Shapes: json; csv; bird (a static protocol per family, to include in bird.conf);
frr (ip route lines); netbox (JSON for POST /api/ipam/prefixes/).`

// exportFlags are the flags of export.
type exportFlags struct {
	format, file, exec string
	watch              bool
	every              time.Duration
}

// New returns the command export.
func New(e *cli.Env) *cobra.Command {
	f := exportFlags{format: "json", every: time.Second}
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write the prefixes and the nodes they are routed to, for routers and firewalls",
		Long:  exportLong,
		Example: cli.Examples("export", "export --format csv --watch", "export --format bird > pods.conf",
			"export --format bird --watch --output-file pods.conf --exec 'birdc configure'"),
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.validate(); err != nil {
				return err
			}
			return runExport(cmd.Context(), e, f)
		},
	}
	cmd.Flags().StringVar(&f.format, "format", f.format, "json, csv, bird, frr or netbox")
	cmd.Flags().BoolVarP(&f.watch, "watch", "w", f.watch, "go on, and write everything again once anything has changed")
	cmd.Flags().DurationVar(&f.every, "every", f.every, "with --watch: the least time between two writes")
	cmd.Flags().StringVar(&f.file, "output-file", f.file, "file to replace each time; empty: standard output")
	cmd.Flags().StringVar(&f.exec, "exec", f.exec, "with --output-file: program to run after each write, with arguments; split at spaces, no shell")
	names := []string{"json", "csv", "bird", "frr", "netbox"}
	_ = cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (f *exportFlags) validate() error {
	switch {
	case shapes()[f.format] == nil:
		return output.Usagef("--format is %s: must be json, csv, bird, frr or netbox", f.format)
	case f.every <= 0:
		return output.Usagef("--every is %s: must be more than 0s", f.every)
	case f.exec != "" && f.file == "":
		return output.Usagef("--exec needs --output-file: the program would have nothing to read")
	}
	return nil
}

func runExport(ctx context.Context, e *cli.Env, f exportFlags) error {
	c, err := e.Client()
	if err != nil {
		return err
	}
	to := &sink{out: e.Out, errOut: e.ErrOut, file: f.file, command: strings.Fields(f.exec)}
	write := shapes()[f.format]
	operator, err := e.FindOperator(ctx)
	if err != nil {
		return err
	}
	now, err := exported(ctx, c, operator.Mode, write)
	if err != nil {
		return e.CannotRead(err)
	}
	err = to.put(ctx, now)
	if !f.watch {
		return err
	}
	follow := &follower{to: to, every: f.every, errOut: e.ErrOut}
	if err := follow.delivered(now, err); err != nil {
		return err
	}
	cached, changed, err := watchPrefixes(ctx, e)
	if err != nil {
		return e.CannotRead(err)
	}
	return follow.run(ctx, changed, func() ([]byte, error) { return exported(ctx, cached, operator.Mode, write) })
}

// shape writes prefixes in one output format.
type shape func(io.Writer, []prefixRow) error

// exported returns the current output.
func exported(ctx context.Context, from client.Reader, mode ciliumnode.Mode, write shape) ([]byte, error) {
	rows, err := readPrefixes(ctx, from, mode)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = write(&b, rows)
	return b.Bytes(), err
}
