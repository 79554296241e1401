//go:build linux

package main

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/test/e2e/bed"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant/whole"
)

// routeOrder counts a router's events, and names the ones out of order.
type routeOrder struct {
	announced, withdrawn int
	wrong                []string
}

// judgeRoutes compares a router's events with the life of the blocks. Two separate watchers
// saw them, so slack is allowed.
func judgeRoutes(events []bed.RouteEvent, moments []whole.Moment) routeOrder {
	j := routeOrder{}
	there := map[netip.Prefix]bool{}
	for _, e := range events {
		if e.What == "up" {
			continue
		}
		before := there[e.Prefix]
		there[e.Prefix] = e.What == "announce"
		switch {
		case e.What == "announce" && !before: // a restarted agent announces again
			j.announced++
			assigned, ok := lastBefore(moments, e.Prefix, whole.IsAssigned, e.At.Add(slack))
			off, gone := lastBefore(moments, e.Prefix, whole.IsUnassigned, e.At.Add(-slack))
			if !ok || gone && off.After(assigned) {
				j.find("%s announced at %s, while assigned to no node", e.Prefix, e.At.Format(time.TimeOnly))
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
	if end, ended := firstAfter(moments, e.Prefix, whole.IsDeleted, off); ended && end.Before(e.At) {
		j.find("%s withdrawn at %s, after its block was free for others", e.Prefix, e.At.Format(time.TimeOnly))
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
