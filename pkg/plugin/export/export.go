// Package export is kubectl cilium-pool export.
package export

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
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

// prefixRow is a prefix to route to a node.
type prefixRow struct {
	Prefix string `json:"prefix"`
	Node   string `json:"node"`
	// NextHop is the Node's InternalIP of the prefix's family; empty: it has none.
	NextHop string `json:"nextHop"`
	Pool    string `json:"pool"`
	// Phase is InService or Draining: pods may use either.
	Phase string `json:"phase"`
}

// readPrefixes returns the blocks that their own nodes list in the field of the mode, sorted by
// address. Lists from different instants can hide a prefix for a moment, but route none to a
// node that does not hold it: block and CiliumNode must agree.
func readPrefixes(ctx context.Context, from client.Reader, mode ciliumnode.Mode) ([]prefixRow, error) {
	var (
		nodes       corev1.NodeList
		ciliumNodes ciliumv2.CiliumNodeList
		blocks      v1alpha1.PodIPBlockList
	)
	for _, list := range []client.ObjectList{&nodes, &ciliumNodes, &blocks} {
		if err := from.List(ctx, list); err != nil {
			return nil, err
		}
	}
	views := viewsOf(mode, ciliumNodes.Items, nodes.Items)
	var routed []crd.Block
	for i := range blocks.Items {
		// A malformed block with a CIDR is held nevertheless.
		b, _ := crd.BlockFrom(&blocks.Items[i])
		if view := views[b.Node]; b.CIDR.IsValid() && view != nil && slices.Contains(view.Listed(), b.CIDR) {
			routed = append(routed, b)
		}
	}
	slices.SortFunc(routed, func(a, b crd.Block) int { return a.CIDR.Compare(b.CIDR) })
	hops := map[string][]netip.Addr{}
	for i := range nodes.Items {
		hops[nodes.Items[i].Name] = internalIPs(&nodes.Items[i])
	}
	rows := []prefixRow{}
	for _, b := range routed {
		row := prefixRow{Prefix: b.CIDR.String(), Node: b.Node, Pool: b.Pool, Phase: b.Phase.String()}
		is4 := b.CIDR.Addr().Is4()
		if i := slices.IndexFunc(hops[b.Node], func(a netip.Addr) bool { return a.Is4() == is4 }); i >= 0 {
			row.NextHop = hops[b.Node][i].String()
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// viewsOf reads the objects that assign blocks to agents, by node.
func viewsOf(mode ciliumnode.Mode, ciliumNodes []ciliumv2.CiliumNode, nodes []corev1.Node) map[string]*ciliumnode.View {
	read, views := ciliumnode.NewViews(mode), map[string]*ciliumnode.View{}
	for i := range ciliumNodes {
		if view := read.CiliumNode(&ciliumNodes[i]); view != nil {
			views[view.Name] = view
		}
	}
	for i := range nodes {
		if view := read.Node(&nodes[i]); view != nil {
			views[view.Name] = view
		}
	}
	return views
}

func internalIPs(node *corev1.Node) []netip.Addr {
	var ips []netip.Addr
	for _, a := range node.Status.Addresses {
		if ip, err := netip.ParseAddr(a.Address); err == nil && a.Type == corev1.NodeInternalIP {
			ips = append(ips, ip.Unmap())
		}
	}
	return ips
}

func shapes() map[string]shape {
	return map[string]shape{
		"json":   func(w io.Writer, rows []prefixRow) error { return output.WriteJSON(w, rows) },
		"csv":    writeCSV,
		"bird":   writeBIRD,
		"frr":    writeFRR,
		"netbox": writeNetBox,
	}
}

func writeCSV(w io.Writer, rows []prefixRow) error {
	c := csv.NewWriter(w)
	// Error returns any write error at the end.
	_ = c.Write([]string{"prefix", "node", "next_hop", "pool", "phase"})
	for _, r := range rows {
		_ = c.Write([]string{r.Prefix, r.Node, r.NextHop, r.Pool, r.Phase})
	}
	c.Flush()
	return c.Error()
}

// writeBIRD writes static protocols for BIRD 2 and 3. A prefix without a next hop becomes a
// comment.
func writeBIRD(w io.Writer, rows []prefixRow) error {
	var s strings.Builder
	for _, family := range []struct{ channel, sign string }{{"ipv4", "."}, {"ipv6", ":"}} {
		fmt.Fprintf(&s, "protocol static cilium_pool_%s {\n  %s;\n", family.channel, family.channel)
		for _, r := range rows {
			switch {
			case !strings.Contains(r.Prefix, family.sign):
			case r.NextHop == "":
				fmt.Fprintf(&s, "  # %s: node %s has no address of this family\n", r.Prefix, r.Node)
			default:
				fmt.Fprintf(&s, "  route %s via %s; # %s\n", r.Prefix, r.NextHop, r.Node)
			}
		}
		s.WriteString("}\n")
	}
	_, err := io.WriteString(w, s.String())
	return err
}

func writeFRR(w io.Writer, rows []prefixRow) error {
	var s strings.Builder
	for _, r := range rows {
		command := "ip route"
		if strings.Contains(r.Prefix, ":") {
			command = "ipv6 route"
		}
		if r.NextHop == "" {
			fmt.Fprintf(&s, "! %s: node %s has no address of this family\n", r.Prefix, r.Node)
			continue
		}
		fmt.Fprintf(&s, "! node %s\n%s %s %s\n", r.Node, command, r.Prefix, r.NextHop)
	}
	_, err := io.WriteString(w, s.String())
	return err
}

// netBoxPrefix is the form that NetBox 4 accepts at /api/ipam/prefixes/.
type netBoxPrefix struct {
	Prefix      string `json:"prefix"`
	Status      string `json:"status"`
	Description string `json:"description"`
	IsPool      bool   `json:"is_pool"`
}

func writeNetBox(w io.Writer, rows []prefixRow) error {
	out := []netBoxPrefix{}
	for _, r := range rows {
		p := netBoxPrefix{Prefix: r.Prefix, Status: "active", Description: fmt.Sprintf("pods of node %s, pool %s", r.Node, r.Pool), IsPool: true}
		if r.Phase != ipalloc.InService.String() {
			p.Status = "deprecated"
		}
		out = append(out, p)
	}
	return output.WriteJSON(w, out)
}

// commandLimit ends a program that hangs, because it would block all further writes.
const commandLimit = time.Minute

// sink is where prefixes go.
type sink struct {
	out, errOut io.Writer
	file        string   // empty: out
	command     []string // run after each write of the file
}

func (s *sink) put(ctx context.Context, content []byte) error {
	if s.file == "" {
		_, err := s.out.Write(content)
		return err
	}
	if err := replaceFile(s.file, content); err != nil {
		return err
	}
	if len(s.command) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, commandLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.command[0], s.command[1:]...)
	cmd.Stdout, cmd.Stderr = s.out, s.errOut
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("--exec %s: %w", s.command[0], errors.Join(err, ctx.Err()))
	}
	return nil
}

// replaceFile replaces a file by a new one with its mode.
func replaceFile(path string, content []byte) error {
	mode := fs.FileMode(0o644)
	if old, err := os.Stat(path); err == nil {
		mode = old.Mode().Perm()
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, errors.Join(err, os.Remove(f.Name())))
	}
	return nil
}
