//go:build linux

package main

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/test/e2e/bed"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant/whole"
)

// routeOrder is what became of prefixes beside their blocks.
type routeOrder struct {
	announced, withdrawn int
	// up is from told to announced, of blocks that were told while the router already
	// had a session with their node; first, of those before. down is from told no
	// more to withdrawn, free from withdrawn to the block's end.
	up, first, down, free []time.Duration
	wrong                 []string
}

// judgeRoutes compares what a router was told with what became of the blocks. Both
// saw it by watches of their own, so slack is allowed.
func judgeRoutes(events []bed.RouteEvent, moments []whole.Moment) routeOrder {
	j := routeOrder{}
	there := map[netip.Prefix]bool{}
	session := map[netip.Addr]time.Time{} // when each began first
	for _, e := range events {
		if e.What == "up" {
			if _, known := session[e.Peer]; !known {
				session[e.Peer] = e.At
			}
			continue
		}
		before := there[e.Prefix]
		there[e.Prefix] = e.What == "announce"
		switch {
		case e.What == "announce" && !before: // or it is told again, after a restart
			j.announced++
			told, ok := lastBefore(moments, e.Prefix, whole.IsTold, e.At.Add(slack))
			off, gone := lastBefore(moments, e.Prefix, whole.NotTold, e.At.Add(-slack))
			switch {
			case !ok || gone && off.After(told):
				j.find("%s announced at %s, while nobody was told it", e.Prefix, e.At.Format(time.TimeOnly))
			case told.Before(session[e.Peer]):
				j.first = append(j.first, e.At.Sub(told))
			default:
				j.up = append(j.up, max(0, e.At.Sub(told)))
			}
		case e.What == "withdraw":
			j.withdrawn++
			j.withdraw(e, moments)
		}
	}
	return j
}

func (j *routeOrder) withdraw(e bed.RouteEvent, moments []whole.Moment) {
	told, _ := lastBefore(moments, e.Prefix, whole.IsTold, e.At)
	off, ok := lastBefore(moments, e.Prefix, whole.NotTold, e.At.Add(slack))
	if !ok || off.Before(told) {
		j.find("%s withdrawn at %s, while its node is told it", e.Prefix, e.At.Format(time.TimeOnly))
		return
	}
	j.down = append(j.down, max(0, e.At.Sub(off)))
	if end, ended := firstAfter(moments, e.Prefix, whole.IsUnmade, off); ended {
		if end.Before(e.At) {
			j.find("%s withdrawn at %s, after its block was free for others", e.Prefix, e.At.Format(time.TimeOnly))
			return
		}
		j.free = append(j.free, end.Sub(e.At))
	}
}

func (j *routeOrder) find(format string, args ...any) {
	j.wrong = append(j.wrong, fmt.Sprintf(format, args...))
}

// lastBefore is when something last became of a block before a time.
func lastBefore(moments []whole.Moment, cidr netip.Prefix, what whole.Happening, before time.Time) (at time.Time, ok bool) {
	for _, m := range moments {
		if m.CIDR == cidr && m.What == what && m.At.Before(before) {
			at, ok = m.At, true
		}
	}
	return at, ok
}

// firstAfter is when it first did after that.
func firstAfter(moments []whole.Moment, cidr netip.Prefix, what whole.Happening, after time.Time) (time.Time, bool) {
	for _, m := range moments {
		if m.CIDR == cidr && m.What == what && !m.At.Before(after) {
			return m.At, true
		}
	}
	return time.Time{}, false
}

func median(d []time.Duration) time.Duration {
	if len(d) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(d))[len(d)/2]
}

func longest(d []time.Duration) time.Duration {
	if len(d) == 0 {
		return 0
	}
	return slices.Max(d)
}

func shortest(d []time.Duration) time.Duration {
	if len(d) == 0 {
		return 0
	}
	return slices.Min(d)
}
