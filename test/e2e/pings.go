//go:build linux

package main

import (
	"errors"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/test/e2e/bed"
)

const rapid = 5 * time.Millisecond

// judgePings stops the flows and checks that no packet was lost.
func (e *env) judgePings(flows []*bed.Pings, what string) {
	total := e.countPings(flows)
	e.Check(total.Lost == 0 && total.Sent > 0, what, "%d of %d, slowest %d ms", total.Lost, total.Sent, total.Slowest.Milliseconds())
}

// countPings stops the flows and adds up their counts.
func (e *env) countPings(flows []*bed.Pings) (total bed.Count) {
	for _, f := range flows {
		c, err := f.Stop()
		if err != nil {
			e.logf("%v", err)
		}
		if c.Lost > 0 {
			e.logf("%d of %d pings to %s lost, the first %.1f s ago", c.Lost, c.Sent, f.Target(), time.Since(c.FirstLost).Seconds())
		}
		total.Sent += c.Sent
		total.Lost += c.Lost
		total.Slowest = max(total.Slowest, c.Slowest)
	}
	return total
}

func (e *env) judgeStreams(streams []*bed.Stream, what string) {
	echoes, slowest := 0, time.Duration(0)
	var errs []error
	for _, s := range streams {
		n, slow, err := s.Stop()
		if n == 0 {
			err = errors.Join(err, errors.New("no echo"))
		}
		errs, echoes, slowest = append(errs, err), echoes+n, max(slowest, slow)
	}
	err := errors.Join(errs...)
	if err != nil {
		e.logf("%v", err)
	}
	e.Check(err == nil, what, "%d; %d ms", echoes, slowest.Milliseconds())
}
