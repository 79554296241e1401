// Package whois is kubectl cilium-pool whois: who has an address.
package whois

import (
	"fmt"
	"net/netip"

	"github.com/spf13/cobra"

	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cli"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/output"
)

// New returns the command whois.
func New(e *cli.Env) *cobra.Command {
	var o output.Flags
	cmd := &cobra.Command{
		Use:   "whois ADDRESS",
		Short: "Find who has an address: block, node, pod, and since when",
		Long: `Shows who has an address now: the pools with a range that holds it, its block and the
node that holds that, the CiliumNodes that publish it (in kubernetes mode, Nodes),
and the pod that uses it, by the agent's report and by the pod's own status. Since
when is the block's creation, and the pod's start. Who had it before is in the
operator's log (docs/operations.md).`,
		Example: cli.Examples("whois 10.20.0.5", "whois fd00:10::45 -o json"),
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			addr, err := netip.ParseAddr(args[0])
			if err != nil {
				return fmt.Errorf("%s is no IP address", args[0])
			}
			c, err := e.Read(cmd.Context())
			if err != nil {
				return err
			}
			who := ownerOf(c, addr.Unmap())
			return e.Print(&o, who, func(s *output.Text) { who.describe(s, c.Now) })
		},
	}
	o.AddFlags(cmd)
	return cmd
}
