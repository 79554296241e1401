//go:build linux

package main

import (
	"errors"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/test/e2e/bed"
)

const (
	pingEvery = 10 * time.Millisecond
	rapid     = 5 * time.Millisecond
	probeTime = 2 * time.Second
)

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

// flowsBetween pings in both directions between one pod and the others, in each family.
func flowsBetween(one *bed.Pod, others []*bed.Pod, interval time.Duration) ([]*bed.Pings, error) {
	var flows []*bed.Pings
	for _, other := range others {
		for i, a := range other.Addresses {
			there, err := one.Ping(a, interval)
			if err != nil {
				return nil, err
			}
			back, err := other.Ping(one.Addresses[i], interval)
			if err != nil {
				return nil, err
			}
			flows = append(flows, there, back)
		}
	}
	return flows, nil
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
