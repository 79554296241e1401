//go:build linux

package main

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

func TestLostByStaying(t *testing.T) {
	flows := []flow{{from: "a", to: "b", fromID: "1", toID: "2", address: "10.0.0.2"}, {from: "b", to: "c", fromID: "2", toID: "3", address: "10.0.0.3"}}
	results := map[string]map[string]losses{
		"a": {"10.0.0.2": {Sent: 100}},
		"b": {"10.0.0.3": {Sent: 90, Lost: 7, LongestGapMs: 350}},
	}
	all := map[string]types.UID{"a": "1", "b": "2", "c": "3"}
	if sum, judged := lostByStaying(flows, all, results); sum.Sent != 190 || sum.Lost != 7 || sum.LongestGapMs != 350 || judged != 2 {
		t.Errorf("a planted loss: %+v of %d flows", sum, judged)
	}
	moved := map[string]types.UID{"a": "1", "b": "2", "c": "4"} // c is another pod now
	if sum, judged := lostByStaying(flows, moved, results); sum.Sent != 100 || sum.Lost != 0 || judged != 1 {
		t.Errorf("a pod that was evicted: %+v of %d flows", sum, judged)
	}
}

// Each way to fail is reported as a failure.
func TestRenumberedFails(t *testing.T) {
	good := renumbered{flows: 2, judged: 2, pings: losses{Sent: 100}}
	if !good.passed() {
		t.Error("nothing is wrong, and it fails")
	}
	for name, plant := range map[string]func(*renumbered){
		"a ping is lost":              func(r *renumbered) { r.pings.Lost = 1 },
		"nothing was sent":            func(r *renumbered) { r.pings.Sent = 0 },
		"a pod that was to stay went": func(r *renumbered) { r.judged = 1 },
		"nothing was to stay":         func(r *renumbered) { r.flows, r.judged = 0, 0 },
		"a budget is broken":          func(r *renumbered) { r.broken = []string{"1 pod of store is Ready"} },
		"a route is left":             func(r *renumbered) { r.left = []string{"n1 routes 100.66.224.32/27"} },
	} {
		r := good
		if plant(&r); r.passed() {
			t.Errorf("%s, and it passes", name)
		}
	}
}
