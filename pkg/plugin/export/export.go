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

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cli"
)

const exportLong = `Writes the prefixes that nodes have, with the node's address as the next hop, in a
shape that routers, firewalls and inventories read. A prefix is there from before its
first pod until after its last: while the node lists it in podCIDRs of its CiliumNode,
or where else the mode has it.

With --watch it writes everything again once anything has changed, but no more often
than --every. While the API server cannot be reached, the last output stands. With
--output-file it replaces that file in one step, and then runs --exec: under --watch it
tries again if either fails.

With --withdraw-after it leaves out prefixes of dead nodes: the kubelet has not renewed its
Lease for so long, and for half of its leaseDurationSeconds. While fewer than half of
the Leases are renewed, it withdraws no more.

Shapes: json; csv; bird (a static protocol per family, to include in bird.conf);
frr (ip route lines); netbox (JSON for POST /api/ipam/prefixes/).`

type exportFlags struct {
	format, file, exec string
	watch              bool
	every, withdraw    time.Duration
}

// New returns the command export.
func New(e *cli.Env) *cobra.Command {
	f := exportFlags{format: "json", every: time.Second}
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write the prefixes and the nodes they are routed to, for routers and firewalls",
		Long:  exportLong,
		Example: cli.Examples("export", "export -o csv --watch", "export -o bird > pods.conf",
			"export -o bird --watch --withdraw-after 30s --output-file pods.conf --exec 'birdc configure'"),
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.validate(); err != nil {
				return err
			}
			return runExport(cmd.Context(), e, f)
		},
	}
	cmd.Flags().StringVarP(&f.format, "output", "o", f.format, "json, csv, bird, frr or netbox")
	cmd.Flags().BoolVarP(&f.watch, "watch", "w", f.watch, "go on, and write everything again once anything has changed")
	cmd.Flags().DurationVar(&f.every, "every", f.every, "with --watch: the least time between two writes")
	cmd.Flags().DurationVar(&f.withdraw, "withdraw-after", f.withdraw, "with --watch: leave out prefixes of nodes with a Lease that old; 0s: never")
	cmd.Flags().StringVar(&f.file, "output-file", f.file, "file to replace each time; empty: standard output")
	cmd.Flags().StringVar(&f.exec, "exec", f.exec, "with --output-file: program to run after each write, with arguments; split at spaces, no shell")
	cli.CompleteFlag(cmd, "output", "json", "csv", "bird", "frr", "netbox")
	return cmd
}

func (f *exportFlags) validate() error {
	if shapes()[f.format] == nil {
		return cli.Usagef("--output is %s: must be json, csv, bird, frr or netbox", f.format)
	}
	if f.every <= 0 {
		return cli.Usagef("--every is %s: must be more than 0s", f.every)
	}
	if f.withdraw < 0 || f.withdraw > 0 && !f.watch {
		return cli.Usagef("--withdraw-after is %s: must be 0s, or more together with --watch", f.withdraw)
	}
	if f.exec != "" && f.file == "" {
		return cli.Usagef("--exec needs --output-file: the program would have nothing to read")
	}
	return nil
}

func runExport(ctx context.Context, e *cli.Env, f exportFlags) error {
	c, err := e.Client()
	if err != nil {
		return err
	}
	target := &sink{out: e.Out, errOut: e.ErrOut, file: f.file, command: strings.Fields(f.exec)}
	write := shapes()[f.format]
	dead := &silence{timeout: f.withdraw}
	if _, err := dead.read(ctx, c); err != nil {
		return e.CannotRead(err)
	}
	now, err := exported(ctx, c, dead, write)
	if err != nil {
		return e.CannotRead(err)
	}
	err = target.put(ctx, now)
	if !f.watch {
		return err
	}
	follow := &follower{target: target, every: f.every, errOut: e.ErrOut, dead: dead}
	if err := follow.delivered(now, err); err != nil {
		return err
	}
	if follow.watched, err = watchPrefixes(ctx, e, f.withdraw > 0); err != nil {
		return e.CannotRead(err)
	}
	return follow.run(ctx, func() ([]byte, error) { return exported(ctx, follow.watched, dead, write) })
}

type shape func(*bytes.Buffer, []prefixRow) error

func exported(ctx context.Context, reader client.Reader, dead *silence, write shape) ([]byte, error) {
	rows, err := readPrefixes(ctx, reader)
	if err != nil {
		return nil, err
	}
	rows = slices.DeleteFunc(rows, func(r prefixRow) bool { return dead.is(r.Node) })
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
	// KeptFor is the owner of its address, as NAMESPACE/POD or NAMESPACE/KEY=VALUE; empty: it is for any pod.
	KeptFor string `json:"keptFor,omitempty"`
	// Phase is InService or Draining: pods may use either.
	Phase string `json:"phase"`
}

// readPrefixes returns the blocks that their own nodes list in the field of any mode, as the mode can change
// under a watch, sorted by address. Lists from different instants can hide a prefix for a moment, but route
// none to a node that does not hold it: block and CiliumNode must agree.
func readPrefixes(ctx context.Context, reader client.Reader) ([]prefixRow, error) {
	var (
		nodes       corev1.NodeList
		ciliumNodes ciliumv2.CiliumNodeList
		blocks      v1alpha1.PodIPBlockList
	)
	for _, list := range []client.ObjectList{&nodes, &ciliumNodes, &blocks} {
		if err := reader.List(ctx, list); err != nil {
			return nil, err
		}
	}
	listed := map[string][]netip.Prefix{}
	addresses := map[string][]corev1.NodeAddress{}
	list := func(view *ciliumnode.View) {
		if view != nil {
			listed[view.Name] = append(listed[view.Name], view.ListedInAnyPool()...)
		}
	}
	for i := range nodes.Items {
		addresses[nodes.Items[i].Name] = nodes.Items[i].Status.Addresses
	}
	for _, mode := range ciliumnode.Modes() {
		read := ciliumnode.NewViewReader(mode)
		for i := range ciliumNodes.Items {
			list(read.CiliumNode(&ciliumNodes.Items[i]))
		}
		for i := range nodes.Items {
			list(read.Node(&nodes.Items[i]))
		}
	}
	var routed []crd.Block
	for i := range blocks.Items {
		// A malformed block with a CIDR is held nevertheless.
		if b, _ := crd.BlockFrom(&blocks.Items[i]); b.CIDR.IsValid() && b.Phase != ipalloc.CoolingDown && slices.Contains(listed[b.Node], b.CIDR) {
			routed = append(routed, b)
		}
	}
	slices.SortFunc(routed, func(a, b crd.Block) int { return a.CIDR.Compare(b.CIDR) })
	rows := []prefixRow{}
	for _, b := range routed {
		hop := internalIP(addresses[b.Node], ipalloc.FamilyOf(b.CIDR.Addr()))
		rows = append(rows, prefixRow{Prefix: b.CIDR.String(), Node: b.Node, NextHop: hop, Pool: b.Pool, KeptFor: crd.OwnerOfPool(b.CiliumPool), Phase: b.Phase.String()})
	}
	return rows, nil
}

// internalIP returns the first InternalIP of a family; "": there is none.
func internalIP(addresses []corev1.NodeAddress, f ipalloc.Family) string {
	for _, a := range addresses {
		if ip, err := netip.ParseAddr(a.Address); err == nil && a.Type == corev1.NodeInternalIP && ipalloc.FamilyOf(ip.Unmap()) == f {
			return ip.Unmap().String()
		}
	}
	return ""
}

func shapes() map[string]shape {
	return map[string]shape{
		"json":   func(w *bytes.Buffer, rows []prefixRow) error { return cli.WriteJSON(w, rows) },
		"csv":    writeCSV,
		"bird":   writeBIRD,
		"frr":    writeFRR,
		"netbox": writeNetBox,
	}
}

func writeCSV(w *bytes.Buffer, rows []prefixRow) error {
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
func writeBIRD(w *bytes.Buffer, rows []prefixRow) error {
	for _, family := range []struct{ channel, sign string }{{"ipv4", "."}, {"ipv6", ":"}} {
		fmt.Fprintf(w, "protocol static cilium_pool_%s {\n  %s;\n", family.channel, family.channel)
		for _, r := range rows {
			if !strings.Contains(r.Prefix, family.sign) {
				continue
			}
			if r.NextHop == "" {
				fmt.Fprintf(w, "  # %s: node %s has no address of this family\n", r.Prefix, r.Node)
			} else {
				fmt.Fprintf(w, "  route %s via %s; # %s\n", r.Prefix, r.NextHop, r.Node)
			}
		}
		w.WriteString("}\n")
	}
	return nil
}

func writeFRR(w *bytes.Buffer, rows []prefixRow) error {
	for _, r := range rows {
		command := "ip route"
		if strings.Contains(r.Prefix, ":") {
			command = "ipv6 route"
		}
		if r.NextHop == "" {
			fmt.Fprintf(w, "! %s: node %s has no address of this family\n", r.Prefix, r.Node)
			continue
		}
		fmt.Fprintf(w, "! node %s\n%s %s %s\n", r.Node, command, r.Prefix, r.NextHop)
	}
	return nil
}

// netBoxPrefix is the form that NetBox 4 accepts at /api/ipam/prefixes/.
type netBoxPrefix struct {
	Prefix      string `json:"prefix"`
	Status      string `json:"status"`
	Description string `json:"description"`
	IsPool      bool   `json:"is_pool"`
}

func writeNetBox(w *bytes.Buffer, rows []prefixRow) error {
	out := []netBoxPrefix{}
	for _, r := range rows {
		p := netBoxPrefix{Prefix: r.Prefix, Status: "active", Description: fmt.Sprintf("pods of node %s, pool %s", r.Node, r.Pool), IsPool: true}
		if r.KeptFor != "" {
			p.Description += ", kept for " + crd.OwnerWords(r.KeptFor)
		}
		if r.Phase != ipalloc.InService.String() {
			p.Status = "deprecated"
		}
		out = append(out, p)
	}
	return cli.WriteJSON(w, out)
}

// commandLimit ends a program that hangs, because it would block all further writes.
const commandLimit = time.Minute

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
	cmd.Stdout = s.out
	cmd.Stderr = s.errOut
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
