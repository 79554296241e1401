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

// Routes are the destinations of the node's main table, with a prefix length.
func (n *Node) Routes(ctx context.Context) ([]netip.Prefix, error) {
	argv := n.enter("ip", "-json", "route")
	out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).Output()
	if err != nil {
		return nil, fmt.Errorf("read routes of %s: %w", n.Name, err)
	}
	var routes []struct{ Dst string }
	if err := json.Unmarshal(out, &routes); err != nil {
		return nil, fmt.Errorf("read routes of %s: %w", n.Name, err)
	}
	var prefixes []netip.Prefix
	for _, r := range routes {
		if p, err := netip.ParsePrefix(r.Dst); err == nil {
			prefixes = append(prefixes, p)
		} else if a, err := netip.ParseAddr(r.Dst); err == nil {
			prefixes = append(prefixes, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	slices.SortFunc(prefixes, netip.Prefix.Compare)
	return prefixes, nil
}
