//go:build linux

package main

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/test/e2e/bed"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant/whole"
)

func TestRouteOrder(t *testing.T) {
	cidr := netip.MustParsePrefix("100.66.224.0/27")
	secondAt := func(second int) time.Time { return time.Unix(int64(second), 0) }
	event := func(what string, second int) bed.RouteEvent {
		return bed.RouteEvent{What: what, Prefix: cidr, At: secondAt(second)}
	}
	was := func(what whole.Happening, second int) whole.Moment {
		return whole.Moment{CIDR: cidr, What: what, At: secondAt(second)}
	}
	life := []whole.Moment{was(whole.IsCreated, 9), was(whole.IsAssigned, 10), was(whole.IsUnassigned, 50), was(whole.IsDeleted, 110)}
	for name, test := range map[string]struct {
		events               []bed.RouteEvent
		moments              []whole.Moment
		announced, withdrawn int
		wrong                string
	}{
		"a whole life":          {events: []bed.RouteEvent{event("announce", 12), event("withdraw", 55)}, moments: life, announced: 1, withdrawn: 1},
		"announced again":       {events: []bed.RouteEvent{event("announce", 12), event("announce", 30)}, moments: life, announced: 1},
		"sessions are no route": {events: []bed.RouteEvent{{What: "up", At: secondAt(1)}, {What: "down", At: secondAt(2)}}, moments: life},
		"too early":             {events: []bed.RouteEvent{event("announce", 5)}, moments: life, announced: 1, wrong: "while assigned to no node"},
		"when it had gone":      {events: []bed.RouteEvent{event("announce", 60)}, moments: life, announced: 1, wrong: "while assigned to no node"},
		"a second life": {
			events:  []bed.RouteEvent{event("announce", 12), event("withdraw", 55), event("announce", 203)},
			moments: append(life[:4:4], was(whole.IsCreated, 199), was(whole.IsAssigned, 200)), announced: 2, withdrawn: 1,
		},
		"while assigned":     {events: []bed.RouteEvent{event("announce", 12), event("withdraw", 30)}, moments: life, announced: 1, withdrawn: 1, wrong: "while assigned to its node"},
		"after the cooldown": {events: []bed.RouteEvent{event("announce", 12), event("withdraw", 111)}, moments: life, announced: 1, withdrawn: 1, wrong: "free for others"},
	} {
		t.Run(name, func(t *testing.T) {
			j := judgeRoutes(test.events, test.moments)
			if j.announced != test.announced || j.withdrawn != test.withdrawn {
				t.Errorf("announced %d, withdrawn %d", j.announced, j.withdrawn)
			}
			switch {
			case test.wrong == "" && len(j.wrong) > 0:
				t.Errorf("found %q", j.wrong)
			case test.wrong != "" && (len(j.wrong) != 1 || !strings.Contains(j.wrong[0], test.wrong)):
				t.Errorf("found %q, want %q", j.wrong, test.wrong)
			}
		})
	}
}
