// Package whois is kubectl cilium-pool whois: who has an address.
package whois

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cilium-pool/cilium-pool-operator/pkg/clusterview"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/frrconfig"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cli"
)

// New returns the command whois.
func New(e *cli.Env) *cobra.Command {
	o := cli.Output{Kind: "Owner"}
	var at string
	var logs []string
	cmd := &cobra.Command{
		Use:   "whois ADDRESS",
		Short: "Find who has an address, or had it: block, node, pod, and since when",
		Long: `Shows who has an address now: the pools with a range that holds it, its block and the
node that holds that, the CiliumNodes that publish it (in kubernetes mode, Nodes),
and the pod that uses it, by the agent's report and by the pod's own status. Since
when is the block's creation, and the pod's start.

--at shows who had it at a time, from the operator's log, and reads no cluster. --log
is the output of kubectl logs or the export of a log store, plain or by gzip; repeat it
for more files. A pod is in the log only if its name keeps the address (podAddresses).`,
		Example: cli.Examples("whois 10.20.0.5", "whois fd00:10::45 -o json", "whois 10.20.0.5 --at 2026-11-20T14:05:00Z --log operator.log.1.gz --log operator.log"),
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			addr, err := netip.ParseAddr(args[0])
			if err != nil {
				return fmt.Errorf("%s is no IP address", args[0])
			}
			if at != "" {
				found, err := formerOwnerOf(e, addr.Unmap(), at, logs)
				if err != nil {
					return err
				}
				if err := e.Describe(&o, found, found.describe); err != nil || found.isKnown() {
					return err
				}
				return cli.Failed
			}
			c, err := e.Read(cmd.Context())
			if err != nil {
				return err
			}
			found := ownerOf(c, addr.Unmap())
			return e.Describe(&o, found, func(s *cli.Text) { found.describe(s, c.Now) })
		},
	}
	o.AddFlags(cmd)
	cmd.Flags().StringVar(&at, "at", "", "show who had it at this time, as in 2026-11-20T14:05:00Z, by --log")
	cmd.Flags().StringArrayVar(&logs, "log", nil, "with --at: file with the operator's log; - is standard input")
	cmd.MarkFlagsRequiredTogether("at", "log")
	return cmd
}

// owner is who has an address, as far as the cluster's current state shows.
type owner struct {
	Address string `json:"address"`
	// Pools are the pools with a CIDR that contains it.
	Pools []string `json:"pools"`
	// Block, and the node that holds it; empty: no block contains the address.
	Block      string    `json:"block,omitempty"`
	Node       string    `json:"node,omitempty"`
	Phase      string    `json:"phase,omitempty"`
	BlockSince time.Time `json:"blockSince,omitzero"`
	// KeptFor is the owner that a PodIPPin keeps it for, as NAMESPACE/POD or NAMESPACE/KEY=VALUE; empty: none.
	KeptFor string `json:"keptFor,omitempty"`
	// PublishedBy are the nodes with agents that may assign it, by their CiliumNode or, in
	// kubernetes mode, by the Node: more than one is wrong.
	PublishedBy []string `json:"publishedBy"`
	// AnnouncedBy are the nodes with an FRRConfiguration of the operator that announces its block;
	// nil: the operator writes none, or they may not be read.
	AnnouncedBy []string `json:"announcedBy,omitempty"`
	// Users are its users, according to agents and pods.
	Users []addressUser `json:"users"`
	// Release is its state in the release handshake.
	Release string `json:"release,omitempty"`

	carrier string // the kind of the sources of PublishedBy
}

// addressUser is a pod, or an agent's own use such as "router".
type addressUser struct {
	Name string `json:"name"`
	Node string `json:"node"`
	// Says is the source: agent, pod or both.
	Says  string    `json:"says"`
	Since time.Time `json:"since,omitzero"`
}

func ownerOf(c *clusterview.Cluster, a netip.Addr) owner {
	found := owner{Address: a.String(), Pools: poolsWith(c, a), PublishedBy: []string{}, Users: []addressUser{}, carrier: c.AllocationObject()}
	found.KeptFor = c.State.Ledger.Pins.OwnerOf(netip.PrefixFrom(a, a.BitLen()))
	if b, ok := blockOf(c, a); ok {
		found.Block = b.Name
		found.Node = b.Node
		found.Phase = b.Phase.String()
		found.BlockSince = b.Created
	}
	for _, name := range c.NodeNames() {
		view := c.State.Ledger.CiliumNode(name)
		if view == nil {
			continue
		}
		named := slices.ContainsFunc(view.PodRanges(), func(p netip.Prefix) bool { return p.Contains(a) })
		if named || view.Addresses != nil && slices.Contains(view.Addresses.NonCanonical, a) {
			found.PublishedBy = append(found.PublishedBy, name)
		}
		if state, ok := view.Release[a]; ok {
			found.Release = string(state)
		}
	}
	if routes := c.Objects.Routes; routes != nil {
		found.AnnouncedBy = []string{}
		for _, name := range routes.Nodes() {
			if slices.ContainsFunc(routes.OfNode(name), func(v *frrconfig.View) bool {
				return slices.ContainsFunc(v.Prefixes, func(p netip.Prefix) bool { return p.Contains(a) })
			}) {
				found.AnnouncedBy = append(found.AnnouncedBy, name)
			}
		}
		slices.Sort(found.AnnouncedBy)
	}
	found.Users = append(found.Users, usersOf(c, a)...)
	starts := c.PodStarts()
	for i := range found.Users {
		found.Users[i].Since = starts[found.Users[i].Name]
	}
	return found
}

// poolsWith returns the pools with a CIDR that contains an address.
func poolsWith(c *clusterview.Cluster, a netip.Addr) []string {
	pools := []string{}
	for _, name := range c.State.Pools.Names() {
		if whole, ok := c.State.Pools.Get(name).FullCut(ipalloc.FamilyOf(a)); ok {
			if slices.ContainsFunc(whole.Ranges, func(r netip.Prefix) bool { return r.Contains(a) }) {
				pools = append(pools, name)
			}
		}
	}
	return pools
}

// blockOf returns the block that contains an address, the oldest if there are several.
func blockOf(c *clusterview.Cluster, a netip.Addr) (crd.Block, bool) {
	var found crd.Block
	for _, h := range c.State.Ledger.Overlaps(netip.PrefixFrom(a, a.BitLen())) {
		if b, ok := c.State.Ledger.Block(h.CIDR); ok && (found.Name == "" || b.Created.Before(found.Created)) {
			found = b
		}
	}
	return found, found.Name != ""
}

func usersOf(c *clusterview.Cluster, a netip.Addr) []addressUser {
	var users []addressUser
	for _, node := range c.NodeNames() {
		reported := ""
		if view := c.State.Ledger.CiliumNode(node); view != nil {
			reported = strings.TrimSuffix(view.Used[a], " [restored]")
			if reported == "" && slices.Contains(view.Own, a) {
				reported = "the agent itself"
			}
		}
		matched := false
		for _, p := range c.State.Pods.On(node) {
			if !slices.Contains(p.IPs, a) {
				continue
			}
			u := addressUser{Name: p.Name, Node: node, Says: "pod"}
			if p.Name == reported {
				u.Says = "agent and pod"
				matched = true
			}
			users = append(users, u)
		}
		if reported != "" && !matched {
			users = append(users, addressUser{Name: reported, Node: node, Says: "agent"})
		}
	}
	return users
}

func (o *owner) describe(s *cli.Text, now time.Time) {
	switch {
	case o.Block != "":
		s.Line("%s is in block %s, which node %s has held for %s (%s).", o.Address, o.Block, o.Node, cli.Age(now, o.BlockSince), o.Phase)
	case len(o.Pools) > 0:
		s.Line("%s is in no block. It lies in a CIDR of pool %s.", o.Address, strings.Join(o.Pools, " and of pool "))
	default:
		s.Line("%s is in no block and in no pool.", o.Address)
	}
	if o.Block != "" && len(o.Pools) > 0 {
		s.Line("Pool: %s.", strings.Join(o.Pools, ", "))
	}
	if o.KeptFor != "" {
		s.Line("It is kept for %s: kubectl cilium-pool get addresses %s -o wide says until when.", crd.OwnerWords(o.KeptFor), o.Address)
	}
	switch len(o.PublishedBy) {
	case 0:
		s.Line("No %s publishes it.", o.carrier)
	case 1:
		s.Line("%s %s publishes it.", o.carrier, o.PublishedBy[0])
	default:
		s.Line("%ss %s all publish it. That must not be: run kubectl cilium-pool check.", o.carrier, strings.Join(o.PublishedBy, ", "))
	}
	if len(o.AnnouncedBy) > 0 {
		s.Line("FRRConfigurations announce it from: %s.", strings.Join(o.AnnouncedBy, ", "))
	} else if o.AnnouncedBy != nil {
		s.Line("No FRRConfiguration announces it.")
	}
	if o.Release != "" {
		s.Line("It is on its way out: %s.", releaseWords(o.Release))
	}
	for _, u := range o.Users {
		age := ""
		if !u.Since.IsZero() {
			age = ", which has run for " + cli.Age(now, u.Since)
		}
		s.Line("%s on node %s uses it%s (says: %s).", u.Name, u.Node, age, u.Says)
	}
	if len(o.Users) == 0 {
		s.Line("No known user.")
	}
}

func releaseWords(state string) string {
	switch expand.ReleaseStatus(state) {
	case expand.Marked:
		return "its agent was asked to give it up (" + state + ")"
	case expand.Ready:
		return "its agent has agreed to give it up (" + state + ")"
	case expand.DoNotRelease:
		return "its agent refused to give it up (" + state + ")"
	}
	return state
}
