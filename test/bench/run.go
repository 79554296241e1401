package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/test/bench/bed"
)

// run runs the measures of a full benchmark.
func (b *bench) run(ctx context.Context) error {
	if err := b.fits(); err != nil {
		return err
	}
	if err := b.clear(); err != nil {
		return err
	}
	if b.peers {
		b.store.Install = installCilium
	}
	for _, name := range strings.Split(b.measures, ",") {
		if err := b.measureNamed(ctx, name); err != nil {
			return err
		}
	}
	if err := b.save(); err != nil {
		return err
	}
	b.say("results are in %s; bench report writes tables from them", filepath.Join(b.resultsDir, b.results.file()))
	return nil
}

// fits checks the worlds of all measures first, as some of them run for an hour.
func (b *bench) fits() error {
	for _, name := range strings.Split(b.measures, ",") {
		for _, m := range b.measuresOf(name) {
			w := b.adapted(m).world
			w.Nodes = b.nodes
			if err := w.Fits(); err != nil {
				return fmt.Errorf("-measures=%s: %w", name, err)
			}
		}
	}
	return nil
}

// measuresOf returns the measures of a name that run at the number of nodes on the command
// line.
func (b *bench) measuresOf(name string) []measure {
	if b.mode == multiPoolOnly {
		return multiPoolMeasures(b.peers)[name]
	}
	return b.usual()[name]
}

func (b *bench) clear() error {
	if b.keep {
		return os.RemoveAll(filepath.Join(b.out, "run"))
	}
	return errors.Join(os.RemoveAll(filepath.Join(b.out, "worlds")), os.RemoveAll(filepath.Join(b.out, "run")))
}

const (
	modesRequests = 200
	modesRate     = 20 // requests per second
	restRate      = 400
	restReports   = 1 // per node
	// growthSeconds is for how long the growth curve binds pods.
	growthSeconds = 10
)

// measureNames is the default of -measures.
func measureNames() []string {
	return []string{"cold", "join", "restart", "failover", "storm", "reclaim", "react", "rest", "modes", "patches", "growth", "sizes"}
}

func (b *bench) measureNamed(ctx context.Context, name string) error {
	if measures := b.measuresOf(name); len(measures) > 0 {
		var err error
		for _, m := range measures {
			if err = b.all(ctx, m, b.nodes); err != nil {
				break
			}
		}
		if name == "restart" && b.mode == "" {
			err = errors.Join(err, b.all(ctx, alone(), 1))
		}
		return err
	}
	if b.mode != "" {
		return fmt.Errorf("no measure %q with -mode=%s: there are %s", name, b.mode, strings.Join(slices.Sorted(maps.Keys(multiPoolMeasures(b.peers))), ", "))
	}
	switch name {
	case "growth":
		return b.growth(ctx)
	case "sizes":
		return b.sizes(ctx)
	case "pools":
		return b.manyPools(ctx)
	case "settings":
		return b.settings(ctx)
	}
	return fmt.Errorf("no measure %q: there are %s, pools, settings", name, strings.Join(measureNames(), ", "))
}

// usual returns the measures that run only at the number of nodes on the command line.
func (b *bench) usual() map[string][]measure {
	return map[string][]measure{
		"cold": {cold(b.peers)}, "join": {join()}, "restart": {restart(b.peers)}, "failover": {failover()}, "storm": {storm(), stormInMultiPool(b.peers)}, "reclaim": {reclaim()},
		"react": reactions(reactSeconds), "rest": {rest(b.peers, restRate, restReports)},
		"modes": {modes(b.peers, modesRequests, modesRate)}, "patches": {encodings()},
	}
}

// growth runs half, a quarter and an eighth of the full size, by default once each.
func (b *bench) growth(ctx context.Context) error {
	for _, m := range growthMeasures() {
		for part := fullSize / growthBase; part > 1; part /= 2 {
			if err := b.all(ctx, m, fullSize/part); err != nil {
				return err
			}
		}
	}
	return nil
}

// growthMeasures returns the measures that the growth tables show, with the contenders
// shown there.
func growthMeasures() []measure {
	all := append([]measure{cold(false), join(), restart(false), storm(), reclaim(), rest(false, restRate, restReports)}, reactions(growthSeconds)...)
	for i := range all {
		all[i].rounds = 1
		all[i].contenders = slices.DeleteFunc(all[i].contenders, func(c contender) bool { return c.rounds > 0 || c.name == oursMultiPool })
	}
	return all
}

func (b *bench) onlyNames() []string { return strings.Split(b.only, ";") }

// installCilium makes cilium-operator install its CRDs, so that no peer does so within a
// measured run.
func installCilium(ctx context.Context, st *bed.Stage) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 3*time.Minute, errors.New("cilium-operator did not install its CRDs"))
	defer cancel()
	for _, mode := range []bed.Mode{bed.ClusterPool, bed.MultiPool} {
		p, err := ciliumOperator("install", mode, false).start(st, bed.World{})
		if err != nil {
			return err
		}
		// It logs this once its hooks, including that of the CRDs, have run.
		if err := st.Until(ctx, p, "Started hive"); err != nil {
			return fmt.Errorf("%w; its log ends:\n%s", err, p.LogTail())
		}
		if _, err := st.Idle(ctx, p); err != nil {
			return err
		}
		if err := p.Stop(); err != nil {
			return err
		}
	}
	return dropLeases(ctx, st.Client)
}

// settle lets the operator add its finalizer and status to the pool. It fails if the
// operator finds anything else to do, because then the world is not as the operator would
// have created it.
func settle(ctx context.Context, st *bed.Stage, w bed.World) error {
	before, err := st.Usage(ctx, nil)
	if err != nil {
		return err
	}
	c := operator("--reclaim-disabled")
	if w.Mode == bed.OwnMultiPool {
		c = inMultiPool("--reclaim-disabled")
	}
	p, err := c.start(st, w)
	if err != nil {
		return err
	}
	if err := st.Until(ctx, p, c.says...); err != nil {
		return err
	}
	if _, err := st.Idle(ctx, p); err != nil {
		return err
	}
	after, err := st.Usage(ctx, p)
	if err != nil {
		return err
	}
	counts := after.Counts.Sub(before.Counts)
	if n := counts.Writes("ciliumnodes", "podipblocks"); n > 0 {
		return fmt.Errorf("the operator had %s writes to make in a settled world: %s", number(n), counts)
	}
	return errors.Join(p.Stop(), dropLeases(ctx, st.Client))
}

// dropLeases deletes Leases so that the next candidate does not wait for the old holder.
func dropLeases(ctx context.Context, c client.Client) error {
	var leases coordinationv1.LeaseList
	if err := c.List(ctx, &leases); err != nil {
		return err
	}
	for i := range leases.Items {
		if strings.HasPrefix(leases.Items[i].Name, "cilium") {
			if err := c.Delete(ctx, &leases.Items[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// brief formats the values in one line.
func brief(values map[string]float64) string {
	order := []string{"seconds", "first s", "rest s", "p50 ms", "p99 ms", "max ms", "pods/s reached", "cpu s", "cpu ms per 1000 reports",
		"peak MiB", "settled MiB", "apiserver cpu s", "writes", "own writes", "writes per block", "writes per burst", "pool writes", "events", "refused writes", "versions"}
	var out []string
	for _, k := range order {
		if v, ok := values[k]; ok {
			out = append(out, fmt.Sprintf("%s %s", k, number(v)))
		}
	}
	return strings.Join(out, ", ")
}

// number formats a value with three significant digits.
func number(v float64) string {
	switch {
	case v == float64(int64(v)) && v < 1e9:
		return fmt.Sprintf("%.0f", v)
	case v >= 100 || v <= -100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10 || v <= -10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// percentile returns percentile p of values by nearest rank.
func percentile(values []float64, p float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	rank := int(p/100*float64(len(sorted))+0.999999) - 1
	return sorted[min(max(rank, 0), len(sorted)-1)]
}

// median returns the median of values: the mean of the middle two if their number is even.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
