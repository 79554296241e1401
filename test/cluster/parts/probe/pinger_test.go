package main

import (
	"testing"
	"time"
)

func TestLossesAndGaps(t *testing.T) {
	start := time.Now()
	p := newPinger()
	for i := range 100 {
		number := p.next(start.Add(time.Duration(i) * interval))
		if i != 3 && (i < 10 || i > 13) {
			p.answer(number)
		}
	}
	// Seconds later all are old enough to count, which the last ones were not before.
	if got, want := p.result(start.Add(time.Minute)), (result{Sent: 100, Lost: 5, LongestGapMs: 200}); got != want {
		t.Errorf("after a minute: %+v, want %+v", got, want)
	}
	if got, want := p.result(start.Add(overdue+5*interval)), (result{Sent: 6, Lost: 1, LongestGapMs: 50}); got != want {
		t.Errorf("early: %+v, want %+v", got, want)
	}
}
