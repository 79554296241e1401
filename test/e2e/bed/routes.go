//go:build linux

package bed

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
)

// Route is a route in a node's main table.
type Route struct {
	To     netip.Prefix
	Via    netip.Addr // invalid if there is none
	Device string
}

// Routes returns the routes in the node's main table that have a destination, of both
// families.
func (n *Node) Routes(ctx context.Context) ([]Route, error) {
	var all []Route
	for _, family := range []string{"-4", "-6"} {
		argv := n.enter("ip", family, "-json", "route")
		out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).Output()
		if err != nil {
			return nil, fmt.Errorf("read routes of %s: %w", n.Name, err)
		}
		var routes []struct{ Dst, Gateway, Dev string }
		if err := json.Unmarshal(out, &routes); err != nil {
			return nil, fmt.Errorf("read routes of %s: %w", n.Name, err)
		}
		for _, r := range routes {
			via, _ := netip.ParseAddr(r.Gateway) // Most have none.
			if p, err := netip.ParsePrefix(r.Dst); err == nil {
				all = append(all, Route{p, via, r.Dev})
			} else if a, err := netip.ParseAddr(r.Dst); err == nil {
				all = append(all, Route{netip.PrefixFrom(a, a.BitLen()), via, r.Dev})
			}
		}
	}
	slices.SortFunc(all, func(a, b Route) int { return a.To.Compare(b.To) })
	return all, nil
}
