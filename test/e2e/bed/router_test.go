//go:build linux

package bed

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// The format of test/bgp, among what its library logs.
const routerLog = `time=2026-11-20T21:00:00Z level=INFO msg="Add a peer configuration" Key=192.0.2.10
{"at":"2026-11-20T21:00:01.5Z","what":"up","peer":"192.0.2.10"}
{"at":"2026-11-20T21:00:02Z","what":"announce","peer":"192.0.2.10","prefix":"100.66.224.0/27","via":"192.0.2.10"}
{"at":"2026-11-20T21:00:03Z","what":"announce","peer":"192.0.2.10","prefix":"100.66.224.32/27","via":"192.0.2.10"}
{"at":"2026-11-20T21:00:04Z","what":"withdraw","peer":"192.0.2.10","prefix":"100.66.224.0/27"}
{"at":"2026-11-20T21:00:05Z","wha`

func TestRouteEvents(t *testing.T) {
	var events []RouteEvent
	for line := range strings.Lines(routerLog) {
		if e, ok := routeEvent([]byte(line)); ok {
			events = append(events, e)
		}
	}
	if len(events) != 4 || events[0].What != "up" || events[0].Peer != netip.MustParseAddr("192.0.2.10") || events[0].At.Second() != 1 {
		t.Fatalf("events %+v", events)
	}
	want := map[netip.Prefix]netip.Addr{netip.MustParsePrefix("100.66.224.32/27"): netip.MustParseAddr("192.0.2.10")}
	if diff := cmp.Diff(want, Routes(events), cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})); diff != "" {
		t.Error(diff)
	}
}
