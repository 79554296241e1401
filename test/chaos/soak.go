package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/test/controlplane"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

const (
	// busyFor is the time of load in each round of a soak, and restsFor the idle time after it. A
	// soak judges at least leastRounds.
	busyFor, restsFor = 10 * time.Second, 5 * time.Second
	leastRounds       = 4
)

// sample is an operator's resource usage at the end of a round, when idle.
type sample struct {
	// Goroutines is their number; Heap is the live heap after the last garbage collection, Resident
	// the memory of the process, both in bytes.
	Goroutines, Heap, Resident float64
	// Requests counts requests of the whole round, AtRest of its idle period.
	Requests, AtRest float64
}

// limits are the permitted growth of each part of a sample from the first rounds to the last: a
// tenth plus slack.
var limits = []struct {
	what  string
	of    func(s sample) float64
	slack float64
}{
	{"goroutines", func(s sample) float64 { return s.Goroutines }, 10},
	{"bytes of live heap", func(s sample) float64 { return s.Heap }, 4 << 20},
	{"bytes of resident memory", func(s sample) float64 { return s.Resident }, 16 << 20},
	{"requests of a round", func(s sample) float64 { return s.Requests }, 100},
	{"requests at rest", func(s sample) float64 { return s.AtRest }, 5},
}

// grown compares the second quarter of rounds with the last, as caches and connection pools
// fill in the first. It takes the least value of each, which no burst raises.
func grown(samples []sample) error {
	if len(samples) < leastRounds {
		return fmt.Errorf("%w: %d rounds", errIdle, len(samples))
	}
	quarter := len(samples) / 4
	var err error
	for _, l := range limits {
		least := func(part []sample) float64 {
			return l.of(slices.MinFunc(part, func(a, b sample) int { return cmp.Compare(l.of(a), l.of(b)) }))
		}
		first, last := least(samples[quarter:2*quarter]), least(samples[len(samples)-quarter:])
		if last > first*11/10+l.slack {
			err = errors.Join(err, fmt.Errorf("%.0f %s have become %.0f", first, l.what, last))
		}
	}
	return err
}

// soakLease is the operator's default: no operator loses the Lease on a busy machine.
const soakLease = 15 * time.Second

// soakFlags makes an operator serve its metrics.
func soakFlags(o *operator) ([]string, error) {
	port, err := controlplane.FreePort("127.0.0.1")
	o.metrics = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	return []string{"--metrics-bind-address=" + o.metrics, "--metrics-secure=false", "--leader-elect-lease-duration=" + soakLease.String()}, err
}

// soak repeats rounds of the same load and the same idle period, for at least c.duration and
// leastRounds. No operator may exit, and none may grow.
func (c *chaos) soak(ctx context.Context) error {
	if err := c.network.plenty(ctx); err != nil {
		return err
	}
	samples := map[string][]sample{}
	random := rand.New(rand.NewPCG(c.seed, 10))
	starts := c.starts()
	for end := time.Now().Add(c.duration); time.Now().Before(end) || len(samples[c.operator[0].name]) < leastRounds; {
		if err := c.round(ctx, random, samples); err != nil {
			return err
		}
		if now := c.starts(); now != starts {
			return fmt.Errorf("operators have started %d times, not %d times", now, starts)
		}
	}
	var err error
	for name, all := range samples {
		first, last := all[len(all)/4], all[len(all)-1]
		c.say("  %s after %d rounds: %.0f goroutines, before %.0f; heap %.1f MB, before %.1f; resident %.1f MB, before %.1f; %.0f requests at rest, before %.0f",
			name, len(all), last.Goroutines, first.Goroutines, last.Heap/1e6, first.Heap/1e6, last.Resident/1e6, first.Resident/1e6, last.AtRest, first.AtRest)
		if e := grown(all); e != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", name, e))
		}
	}
	return err
}

func (c *chaos) starts() int {
	n := 0
	for _, o := range c.operator {
		n += o.started()
	}
	return n
}

// round loads the cluster, waits until it is back to its initial state, and takes samples.
func (c *chaos) round(ctx context.Context, random *rand.Rand, samples map[string][]sample) error {
	before, err := c.measure(ctx)
	if err != nil {
		return err
	}
	busy, calm := context.WithTimeout(ctx, busyFor)
	defer calm()
	if err := errors.Join(c.network.drain(ctx, random), c.restartAgents(ctx, random)); err != nil {
		return err
	}
	c.load.run(busy)
	for _, step := range []struct {
		what  string
		holds func(context.Context) error
	}{
		{"drains end", func(ctx context.Context) error { return c.network.undrain(ctx, random) }}, {"every pod has an address", c.demandMet}, {"all pods are gone", c.podsGone},
		{"blocks are back", c.blocksBack}, {"nothing moves", harness.Still(c.client, time.Second)},
	} {
		if err := until(ctx, patience, step.holds); err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
	}
	rest, err := c.measure(ctx)
	if err != nil {
		return err
	}
	if err := harness.Sleep(ctx, restsFor); err != nil {
		return err
	}
	after, err := c.measure(ctx)
	if err != nil {
		return err
	}
	for name, s := range after {
		s.AtRest, s.Requests = s.Requests-rest[name].Requests, s.Requests-before[name].Requests
		samples[name] = append(samples[name], s)
	}
	return nil
}

// measure reads the metrics of all operators. Requests counts from the start of each process.
func (c *chaos) measure(ctx context.Context) (map[string]sample, error) {
	out := map[string]sample{}
	for _, o := range c.operator {
		values, err := readMetrics(ctx, "http://"+o.metrics+"/metrics")
		if err != nil {
			return nil, err
		}
		out[o.name] = sample{
			Goroutines: values["go_goroutines"], Heap: values["go_gc_heap_live_bytes"],
			Resident: values["process_resident_memory_bytes"], Requests: values["rest_client_requests_total"],
		}
	}
	return out, nil
}

// readMetrics returns the sum of each metric over its labels.
func readMetrics(ctx context.Context, url string) (map[string]float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	out := map[string]float64{}
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		series, text, found := cutLast(lines.Text())
		name, _, _ := strings.Cut(series, "{")
		if value, err := strconv.ParseFloat(text, 64); found && err == nil {
			out[name] += value
		}
	}
	for _, name := range []string{"go_goroutines", "go_gc_heap_live_bytes", "process_resident_memory_bytes", "rest_client_requests_total"} {
		if _, found := out[name]; !found {
			return nil, fmt.Errorf("%s has no %s", url, name)
		}
	}
	return out, lines.Err()
}

// cutLast cuts a line at its last space.
func cutLast(line string) (before, after string, found bool) {
	i := strings.LastIndexByte(line, ' ')
	if i < 0 || line[0] == '#' {
		return "", "", false
	}
	return line[:i], line[i+1:], true
}
