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

// routeOrder compares the times at which prefixes were announced and withdrawn with those at
// which their blocks were assigned and freed.
type routeOrder struct {
	announced, withdrawn int
	// up is the time from assigned to announced, for blocks assigned while the
	// router already had a session with their node; first is the same for blocks
	// assigned before that. down is from no longer assigned to withdrawn, free from
	// withdrawn to the block's deletion.
	up, first, down, free []time.Duration
	wrong                 []string
}

// judgeRoutes compares a router's events with the life of the blocks. Two separate watchers
// saw them, so slack is allowed.
func judgeRoutes(events []bed.RouteEvent, moments []whole.Moment) routeOrder {
	j := routeOrder{}
	there := map[netip.Prefix]bool{}
	session := map[netip.Addr]time.Time{} // start of the first session of each
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
		case e.What == "announce" && !before: // a restarted agent announces again
			j.announced++
			assigned, ok := lastBefore(moments, e.Prefix, whole.IsAssigned, e.At.Add(slack))
			off, gone := lastBefore(moments, e.Prefix, whole.IsUnassigned, e.At.Add(-slack))
			switch {
			case !ok || gone && off.After(assigned):
				j.find("%s announced at %s, while assigned to no node", e.Prefix, e.At.Format(time.TimeOnly))
			case assigned.Before(session[e.Peer]):
				j.first = append(j.first, e.At.Sub(assigned))
			default:
				j.up = append(j.up, max(0, e.At.Sub(assigned)))
			}
		case e.What == "withdraw":
			j.withdrawn++
			j.withdraw(e, moments)
		}
	}
	return j
}

func (j *routeOrder) withdraw(e bed.RouteEvent, moments []whole.Moment) {
	assigned, _ := lastBefore(moments, e.Prefix, whole.IsAssigned, e.At)
	off, ok := lastBefore(moments, e.Prefix, whole.IsUnassigned, e.At.Add(slack))
	if !ok || off.Before(assigned) {
		j.find("%s withdrawn at %s, while assigned to its node", e.Prefix, e.At.Format(time.TimeOnly))
		return
	}
	j.down = append(j.down, max(0, e.At.Sub(off)))
	if end, ended := firstAfter(moments, e.Prefix, whole.IsDeleted, off); ended {
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

// lastBefore returns when something last happened to a block before a time.
func lastBefore(moments []whole.Moment, cidr netip.Prefix, what whole.Happening, before time.Time) (at time.Time, ok bool) {
	for _, m := range moments {
		if m.CIDR == cidr && m.What == what && m.At.Before(before) {
			at, ok = m.At, true
		}
	}
	return at, ok
}

// firstAfter returns when something first happened to a block at or after a time.
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
