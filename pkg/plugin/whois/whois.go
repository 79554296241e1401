// Package whois is kubectl cilium-pool whois: who has an address, or had it.
package whois

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/spf13/cobra"

	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cli"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/output"
)

// New returns the command whois.
func New(e *cli.Env) *cobra.Command {
	var o output.Flags
	var at string
	cmd := &cobra.Command{
		Use:   "whois ADDRESS",
		Short: "Find who has an address, or had it: block, node, pod, and since when",
		Long: `Shows who has an address now: the pools whose ranges hold it, its block and the
node that holds that, the CiliumNodes that publish it (in kubernetes mode, Nodes),
and the pod that uses it, by the agent's report and by the pod's own status. Since when is the block's
creation, and the pod's start.

With --at it shows who had it then. The PodIPPoolHistory of each pool has the last
128 blocks that nodes gave back: how far back that goes depends on how often that
happens, and the answer says it. Of pods it knows those that there still are,
ended ones too, and what events about pods name the address. Pods that were
deleted leave nothing else in the API. An instant is a time of day by the clock
here (of the last 24 hours), a day and a time, or how long ago.`,
		Example: cli.Examples("whois 10.20.0.5", "whois fd00:10::45 -o json", "whois 10.20.0.5 --at 14:05", "whois 10.20.0.5 --at '2026-11-20 14:05'", "whois 10.20.0.5 --at 90m"),
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			addr, err := netip.ParseAddr(args[0])
			if err != nil {
				return fmt.Errorf("%s is no IP address", args[0])
			}
			if cmd.Flags().Changed("at") {
				return whowas(cmd.Context(), e, addr.Unmap(), at, o)
			}
			c, err := e.Read(cmd.Context())
			if err != nil {
				return err
			}
			who := ownerOf(c, addr.Unmap())
			if err := readPodStarts(cmd.Context(), c, who.Users); err != nil {
				return err
			}
			return e.Print(&o, who, func(s *output.Text) { who.describe(s, c.Now) })
		},
	}
	o.AddFlags(cmd)
	cmd.Flags().StringVar(&at, "at", "", "who had it then: 14:05, 2026-11-20 14:05, 2026-11-20T14:05:00Z, or how long ago")
	return cmd
}

// whowas returns who had an address at an instant.
func whowas(ctx context.Context, e *cli.Env, a netip.Addr, instant string, o output.Flags) error {
	at, err := parseInstant(instant, time.Now())
	if err != nil {
		return err
	}
	c, err := e.Read(ctx)
	if err != nil {
		return err
	}
	p := heldAt(c, a, at)
	if err := addPastUsers(ctx, c, a, &p); err != nil {
		return err
	}
	return e.Print(&o, p, p.describe)
}
