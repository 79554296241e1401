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
	Nodes       = "/api/v1/nodes"
)

// Observer watches one kind and only scans the bytes of its events, to use as little as
// possible of the machine that it shares with the contender.
type Observer struct {
	cancel  context.CancelFunc
	stopped chan struct{}

	mu       sync.Mutex
	err      error
	goal     goal
	versions int
}

// goal is the condition of Wait: want different objects satisfy reached.
type goal struct {
	reached func(event []byte) bool
	want    int
	names   map[string]bool
	last    time.Time
	done    chan struct{}
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
	o.versions++
	g := &o.goal
	if g.reached == nil || !g.reached(line) {
		return
	}
	name := Name(line)
	if g.names[name] {
		return
	}
	g.names[name] = true
	if len(g.names) == g.want {
		g.last = now
		close(g.done)
	}
}

// Expect sets the condition of Wait: want objects with an event that satisfies reached. It
// discards earlier events.
func (o *Observer) Expect(want int, reached func(event []byte) bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.goal = goal{reached: reached, want: want, names: make(map[string]bool, want), done: make(chan struct{})}
}

// Wait waits for the condition of Expect, and returns when the last object reached it.
func (o *Observer) Wait(ctx context.Context) (time.Time, error) {
	o.mu.Lock()
	done := o.goal.done
	o.mu.Unlock()
	var err error
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
		err = fmt.Errorf("%d of %d: %w", len(o.goal.names), o.goal.want, errors.Join(err, o.err))
	}
	return o.goal.last, err
}

// Seen returns the number of versions seen so far, which each watcher of the kind receives.
func (o *Observer) Seen() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.versions
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
