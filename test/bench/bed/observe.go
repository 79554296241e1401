package bed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Paths of the observed resources.
const (
	CiliumNodes = "/apis/cilium.io/v2/ciliumnodes"
	Blocks      = "/apis/cilium-pool.io/v1alpha1/podipblocks"
	Pools       = "/apis/cilium-pool.io/v1alpha1/podippools"
	Nodes       = "/api/v1/nodes"
)

// Observer watches one kind and only scans the bytes of its events, to use as little as
// possible of the machine that it shares with the contender.
type Observer struct {
	cancel  context.CancelFunc
	stopped chan struct{}

	mu     sync.Mutex
	err    error
	goal   goal
	counts Observed
}

// Observed is what has been seen so far.
type Observed struct {
	// Versions and Bytes are the number of versions of objects and their bytes as JSON:
	// what each watcher of the kind receives.
	Versions, Bytes int64
}

// goal is what Wait waits for: want different objects for which reached is true.
type goal struct {
	reached     func(event []byte) bool
	want        int
	at          map[string]time.Time
	first, last time.Time
	done        chan struct{}
}

// Observe begins to watch at path, from now on.
func (s *Stage) Observe(ctx context.Context, path string) (*Observer, error) {
	ctx, cancel := context.WithCancel(ctx)
	f, err := Follow(ctx, s.Config(), path, "")
	if err != nil {
		cancel()
		return nil, err
	}
	o := &Observer{cancel: cancel, stopped: make(chan struct{})}
	go func() {
		defer close(o.stopped)
		err := f.Run(ctx, func(event []byte) { o.take(event, time.Now()) })
		o.mu.Lock()
		defer o.mu.Unlock()
		o.err = err
	}()
	return o, nil
}

func (o *Observer) take(line []byte, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.counts.Versions++
	o.counts.Bytes += int64(len(line))
	g := &o.goal
	if g.reached == nil || !g.reached(line) {
		return
	}
	name := Name(line)
	if _, seen := g.at[name]; seen {
		return
	}
	g.at[name] = now
	if g.first.IsZero() {
		g.first = now
	}
	if len(g.at) == g.want {
		g.last = now
		close(g.done)
	}
}

// Expect sets what Wait waits for: want objects with an event for which reached returns
// true. It discards what was seen before.
func (o *Observer) Expect(want int, reached func(event []byte) bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.goal = goal{reached: reached, want: want, at: make(map[string]time.Time, want), done: make(chan struct{})}
}

// Wait waits for what was expected. It returns when the first and the last object reached
// it, and the time of each by name.
func (o *Observer) Wait(ctx context.Context) (first, last time.Time, at map[string]time.Time, err error) {
	o.mu.Lock()
	done := o.goal.done
	o.mu.Unlock()
	select {
	case <-done:
	case <-o.stopped:
		err = errors.New("the observer has stopped")
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if err != nil {
		err = fmt.Errorf("%d of %d: %w", len(o.goal.at), o.goal.want, errors.Join(err, o.err))
	}
	return o.goal.first, o.goal.last, o.goal.at, err
}

// Seen returns what has been seen so far.
func (o *Observer) Seen() Observed {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.counts
}

// Close ends the watch.
func (o *Observer) Close() error {
	o.cancel()
	<-o.stopped
	return o.err
}

// Name returns the name of the object of an event.
func Name(event []byte) string {
	// Managed fields contain no "name" with a value, and owner references come later.
	return field(event, "name")
}

func field(data []byte, key string) string {
	mark := []byte(`"` + key + `":"`)
	i := bytes.Index(data, mark)
	if i < 0 {
		return ""
	}
	rest := data[i+len(mark):]
	j := bytes.IndexByte(rest, '"')
	if j < 0 {
		return ""
	}
	return string(rest[:j])
}

// Listed counts the entries of a list of strings or objects in an event, such
// as podCIDRs.
func Listed(event []byte, key string) int {
	mark := []byte(`"` + key + `":["`)
	i := bytes.Index(event, mark)
	if i < 0 {
		return 0
	}
	rest := event[i+len(mark):]
	j := bytes.IndexByte(rest, ']')
	if j < 0 {
		return 0
	}
	return bytes.Count(rest[:j], []byte(`,`)) + 1
}
