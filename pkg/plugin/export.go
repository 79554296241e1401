package plugin

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"time"

	"github.com/spf13/cobra"
)

// prefixRow is a prefix that is to be routed to a node.
type prefixRow struct {
	Prefix string `json:"prefix"`
	Node   string `json:"node"`
	// NextHop is the Node's InternalIP of the prefix's family; empty: it has none.
	NextHop string `json:"nextHop"`
	Pool    string `json:"pool"`
	// Phase is InService or Draining: pods may use either.
	Phase string `json:"phase"`
}

// lowestEvery keeps --watch from reading the whole cluster without pause.
const lowestEvery = 2 * time.Second

func (e *env) export() *cobra.Command {
	format, watch, every := "json", false, 10*time.Second
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write out which prefix is routed to which node, for routers and firewalls",
		Long: `Writes the prefixes that nodes have, with the node's address as the next hop, in a
shape that routers, firewalls and inventories read. A prefix is there from before
its first pod until after its last: while the node's CiliumNode lists it in
podCIDRs. Blocks that rest are not.

With --watch it reads the cluster every --every, and writes everything again once
anything has changed. Nothing is written that was not read whole: where reading
fails, it says so and tries again.

Shapes: json; csv; bird (a static protocol per family, to include in bird.conf);
frr (ip route lines); netbox (JSON for POST /api/ipam/prefixes/).`,
		Example: examples("export", "export --format bird > pods.conf", "export --format csv --watch"),
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			write, ok := shapes()[format]
			if !ok {
				return fmt.Errorf("--format is %s: must be json, csv, bird, frr or netbox", format)
			}
			if every < lowestEvery {
				return fmt.Errorf("--every is %s: must be %s or more", every, lowestEvery)
			}
			last, err := e.exported(cmd.Context(), write)
			if err != nil {
				return err
			}
			if _, err := e.Out.Write(last); err != nil || !watch {
				return err
			}
			return e.exportAgain(cmd.Context(), write, last, every)
		},
	}
	cmd.Flags().StringVar(&format, "format", format, "json, csv, bird, frr or netbox")
	cmd.Flags().BoolVarP(&watch, "watch", "w", watch, "go on, and write everything again once anything has changed")
	cmd.Flags().DurationVar(&every, "every", every, "with --watch: how often the cluster is read")
	names := []string{"json", "csv", "bird", "frr", "netbox"}
	_ = cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// shape writes prefixes for somebody.
type shape func(io.Writer, []prefixRow) error

// exported is what there is to write now.
func (e *env) exported(ctx context.Context, write shape) ([]byte, error) {
	c, err := e.read(ctx)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = write(&b, c.prefixes())
	return b.Bytes(), err
}

func (e *env) exportAgain(ctx context.Context, write shape, last []byte, every time.Duration) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		now, err := e.exported(ctx, write)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			fmt.Fprintf(e.ErrOut, "kubectl cilium-pool export: %v. What was written may be old; trying again\n", err)
			continue
		}
		if bytes.Equal(now, last) {
			continue
		}
		if _, err := e.Out.Write(now); err != nil {
			return err
		}
		last = now
	}
}

// prefixes are the blocks that their nodes' podCIDRs list, sorted by address.
func (c *cluster) prefixes() []prefixRow {
	rows := []prefixRow{}
	for _, b := range c.blocks() {
		view := c.views[b.Node]
		if view == nil || !view.Lists(b.CIDR) {
			continue
		}
		row := prefixRow{Prefix: b.CIDR.String(), Node: b.Node, Pool: b.Pool, Phase: phaseName(b.Phase)}
		hops := c.kept.hops[b.Node]
		i := slices.IndexFunc(hops, func(a netip.Addr) bool { return a.Is4() == b.CIDR.Addr().Is4() })
		if i >= 0 {
			row.NextHop = hops[i].String()
		}
		rows = append(rows, row)
	}
	return rows
}
