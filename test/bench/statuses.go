package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/bench/bed"
)

// statuses records from watches when blocks change and when the statuses of their pools
// change.
type statuses struct {
	mu    sync.Mutex
	base  map[string]v1alpha1.StateCounts // of each pool, as it was when recording began
	last  map[string]v1alpha1.StateCounts
	phase map[string]v1alpha1.BlockPhase // of the blocks that have changed, by name
	// changes and seen are in the order of their events.
	changes []blockChange
	seen    []poolStatus
}

// blockChange is one step of a block.
type blockChange struct {
	pool string
	step blockStep
	at   time.Time
}

type blockStep int

// The steps of a block.
const (
	claimed blockStep = iota
	drains
	coolsDown
	deleted
	blockSteps
)

// poolStatus is a version of a pool's status.
type poolStatus struct {
	pool   string
	counts v1alpha1.StateCounts
	at     time.Time
}

// countStatuses begins to watch blocks and pools, which must be idle.
func (r *run) countStatuses(ctx context.Context, fail func(error)) (*statuses, error) {
	s := &statuses{last: map[string]v1alpha1.StateCounts{}, phase: map[string]v1alpha1.BlockPhase{}}
	for path, take := range map[string]func([]byte, time.Time) error{bed.Blocks: s.takeBlock, bed.Pools: s.takePool} {
		f, err := bed.Follow(ctx, r.Config(), path, "")
		if err != nil {
			return nil, err
		}
		go func() {
			err := f.Run(ctx, func(event []byte) {
				if err := take(event, time.Now()); err != nil {
					fail(err)
				}
			})
			if err != nil {
				fail(err)
			}
		}()
	}
	var list v1alpha1.PodIPPoolList
	if err := r.Client.List(ctx, &list); err != nil {
		return nil, err
	}
	for i := range list.Items {
		if err := s.take(&list.Items[i], time.Now()); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func isDeletion(event []byte) bool { return bytes.HasPrefix(event, []byte(`{"type":"DELETED"`)) }

// takeBlock records the steps that an event of a block shows.
func (s *statuses) takeBlock(event []byte, now time.Time) error {
	var e struct{ Object v1alpha1.PodIPBlock }
	if err := json.Unmarshal(event, &e); err != nil {
		return fmt.Errorf("an event of a block: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b := &e.Object
	was, known := s.phase[b.Name]
	from, to := stepOf(was), stepOf(b.Status.Phase)
	switch {
	case isDeletion(event):
		to = deleted
		delete(s.phase, b.Name)
	case bytes.HasPrefix(event, []byte(`{"type":"ADDED"`)):
		s.changes = append(s.changes, blockChange{b.Spec.PoolName, claimed, now})
		s.phase[b.Name] = b.Status.Phase
		return nil
	default:
		s.phase[b.Name] = b.Status.Phase
	}
	if known && to < from {
		return fmt.Errorf("block %s went from phase %q back to %q, which this measure cannot count", b.Name, was, b.Status.Phase)
	}
	for step := from + 1; step <= to; step++ {
		s.changes = append(s.changes, blockChange{b.Spec.PoolName, step, now})
	}
	return nil
}

// stepOf returns the step that leads a block into a phase.
func stepOf(phase v1alpha1.BlockPhase) blockStep {
	switch phase {
	case v1alpha1.PhaseDraining:
		return drains
	case v1alpha1.PhaseCoolingDown:
		return coolsDown
	}
	return claimed
}

func (s *statuses) takePool(event []byte, now time.Time) error {
	var e struct{ Object v1alpha1.PodIPPool }
	if err := json.Unmarshal(event, &e); err != nil {
		return fmt.Errorf("an event of a pool: %w", err)
	}
	return s.take(&e.Object, now)
}

func (s *statuses) take(pool *v1alpha1.PodIPPool, now time.Time) error {
	if pool.Status.IPv4 == nil {
		return fmt.Errorf("pool %s has no status of IPv4", pool.Name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last[pool.Name] = pool.Status.IPv4.Blocks
	s.seen = append(s.seen, poolStatus{pool.Name, pool.Status.IPv4.Blocks, now})
	return nil
}

// begin discards what was recorded. All statuses must count all blocks.
func (s *statuses) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.base = map[string]v1alpha1.StateCounts{}
	for pool, counts := range s.last {
		s.base[pool] = counts
	}
	s.changes, s.seen = nil, nil
}

// wait waits until the statuses count all changes, and returns how long each took, in
// milliseconds.
func (s *statuses) wait(ctx context.Context) ([]float64, error) {
	const look = 200 * time.Millisecond
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		s.mu.Lock()
		took, uncounted, err := statusDelays(s.base, s.changes, s.seen)
		s.mu.Unlock()
		if err != nil || uncounted == 0 {
			return took, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, fmt.Errorf("the pools' statuses do not count %d of %d changes: %w", uncounted, uncounted+len(took), context.Cause(ctx))
		}
	}
}

// statusDelays returns how many milliseconds after each change of a block the status of its
// pool counted as many changes, 0 if it already did, and how many changes are not counted
// yet. The statuses do not say which blocks they count, so changes are assumed to be
// counted in order.
func statusDelays(base map[string]v1alpha1.StateCounts, changes []blockChange, seen []poolStatus) (took []float64, uncounted int, err error) {
	due := map[string]*[blockSteps][]time.Time{}
	for _, c := range changes {
		if due[c.pool] == nil {
			due[c.pool] = &[blockSteps][]time.Time{}
		}
		due[c.pool][c.step] = append(due[c.pool][c.step], c.at)
	}
	counted := map[string]*[blockSteps]int{}
	for pool, steps := range due {
		if len(steps[claimed]) > 0 && len(steps[deleted]) > 0 {
			return nil, 0, errors.New("pool " + pool + ": blocks came while others went, which its status does not tell apart")
		}
		counted[pool] = &[blockSteps]int{}
	}
	for _, status := range seen {
		steps := due[status.pool]
		if steps == nil {
			continue
		}
		for step, progress := range progressOf(base[status.pool], status.counts) {
			done := &counted[status.pool][step]
			for ; *done < min(progress, len(steps[step])); *done++ {
				took = append(took, max(0, status.at.Sub(steps[step][*done]).Seconds()*1000))
			}
		}
	}
	slices.Sort(took)
	return took, len(changes) - len(took), nil
}

// progressOf returns how many blocks have completed each step between two statuses.
func progressOf(base, now v1alpha1.StateCounts) (steps [blockSteps]int) {
	held := func(c v1alpha1.StateCounts) int64 { return c.InService + c.Draining + c.CoolingDown }
	steps[claimed] = int(held(now) - held(base))
	steps[drains] = int(base.InService - now.InService)
	steps[coolsDown] = int(base.InService + base.Draining - now.InService - now.Draining)
	steps[deleted] = int(held(base) - held(now))
	return steps
}
