package invariant

import (
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// podCIDRs is rule 3 and, for foreign entries, rule 7. Only changes of the spec are judged: a
// person's creating or removing a block while the CiliumNode does not change breaks no rule.
func (j *judgement) podCIDRs() {
	var before []netip.Prefix
	if j.old != nil {
		before = j.old.podCIDRs
		if slices.Equal(before, j.now.podCIDRs) && len(without(j.now, j.old)) == 0 && len(without(j.old, j.now)) == 0 {
			return
		}
	}
	after := j.now.podCIDRs
	j.listed(before, after)
	if kept, now := common(before, after), common(after, before); !slices.Equal(kept, now) {
		j.find(3, "podCIDRs entries that stay were reordered, from %v to %v%s", kept, now, j.since)
	}
	if j.objects[KindNode][j.node] == nil {
		return
	}
	for _, cidr := range before {
		if b := j.blocks[cidr]; !slices.Contains(after, cidr) && (b == nil || b.node != j.node) {
			j.find(7, "foreign podCIDRs entry %s was removed%s", cidr, j.since)
		}
	}
}

// listed checks that exactly the node's blocks with an IP in the pool are listed, each once, in
// addition to earlier entries. A write decided on before a block of published addresses was
// created need not list it.
func (j *judgement) listed(before, after []netip.Prefix) {
	published := map[netip.Prefix]bool{}
	for addr := range j.now.pool {
		if b := j.heldBy(j.node, addr); b != nil {
			published[b.cidr] = true
		}
	}
	was := j.putBack()
	seen := map[netip.Prefix]bool{}
	for _, cidr := range after {
		if seen[cidr] {
			j.find(3, "podCIDRs lists %s twice", cidr)
		}
		seen[cidr] = true
		b := j.blocks[cidr]
		switch {
		case b != nil && b.node == j.node:
			if !published[cidr] {
				j.find(3, "podCIDRs lists block %s, of which no IP is in the pool%s", cidr, j.since)
			}
		case slices.Contains(before, cidr), was != nil && slices.Contains(was.podCIDRs, cidr):
		default:
			j.find(3, "podCIDRs came to list %s, which is no block of the node%s", cidr, j.since)
		}
	}
	for cidr := range published {
		if !seen[cidr] && !j.unknown(cidr) {
			j.find(3, "podCIDRs does not list block %s, of which IPs are in the pool%s", cidr, j.since)
		}
	}
}

// unknown reports whether a block may have been created after the CiliumNode's change was
// decided on: it is newer than the previous version, or the writer had not seen it, and all its
// published addresses had been published before.
func (j *judgement) unknown(cidr netip.Prefix) bool {
	young := !j.seen(j.blocks[cidr].made) || j.unshown != nil && j.unshown(cidr)
	return young && !slices.ContainsFunc(without(j.now, j.old), cidr.Contains)
}

// common returns the entries of a that are also in b.
func common(a, b []netip.Prefix) []netip.Prefix {
	var out []netip.Prefix
	for _, cidr := range a {
		if slices.Contains(b, cidr) {
			out = append(out, cidr)
		}
	}
	return out
}

// judgeBlock is rule 1 for a block object that is created or deleted.
func (m *model) judgeBlock(c Change, from origin, cooldown time.Duration) []Violation {
	var out []Violation
	find := func(name, format string, args ...any) {
		out = append(out, Violation{Rule: 1, Subject: "PodIPBlock " + name, Version: c.Version, Text: fmt.Sprintf(format, args...)})
	}
	old, now := blockOf(c.Old), blockOf(c.New)
	switch {
	case old == nil && now != nil:
		for node, addrs := range m.publishedIn(now.cidr) {
			if node != now.node {
				find(now.name, "made for node %s while %s of it stand in the pool of node %s", now.node, list(addrs), node)
			}
		}
	case old != nil && now == nil:
		for node, addrs := range m.publishedIn(old.cidr) {
			find(old.name, "deleted while %s of it stand in the pool of node %s (resourceVersion %s)",
				list(addrs), node, m.objects[KindCiliumNode][node].GetResourceVersion())
		}
		switch rested := c.Received.Sub(old.since); {
		case from == bridged:
		case !old.cooling:
			find(old.name, "deleted without having cooled down (was resourceVersion %s)", c.Old.GetResourceVersion())
		case cooldown > 0 && rested < cooldown:
			find(old.name, "deleted after a cooldown of %s, which must be %s", rested.Round(time.Millisecond), cooldown)
		}
	}
	return out
}

// publishedIn returns the published addresses in a CIDR, by node.
func (m *model) publishedIn(cidr netip.Prefix) map[string][]netip.Addr {
	out := map[string][]netip.Addr{}
	take := func(addr netip.Addr) {
		for _, node := range m.published[addr] {
			out[node] = append(out[node], addr)
		}
	}
	if cidr.Addr().BitLen()-cidr.Bits() <= 12 { // as most are: fewer than are published
		for addr := cidr.Addr(); cidr.Contains(addr); addr = addr.Next() {
			take(addr)
		}
		return out
	}
	for addr := range m.published {
		if cidr.Contains(addr) {
			take(addr)
		}
	}
	for _, addrs := range out {
		slices.SortFunc(addrs, netip.Addr.Compare)
	}
	return out
}
