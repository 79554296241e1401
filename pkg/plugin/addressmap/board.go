package addressmap

import "sync"

// Board shows the latest map to all viewers. It is safe for concurrent use.
type Board struct {
	mu      sync.Mutex
	current *Map
	problem string
	turned  chan struct{} // closed at the next change
}

// NewBoard returns a board that shows a first map.
func NewBoard(first *Map) *Board {
	return &Board{current: first, turned: make(chan struct{})}
}

// Put shows the next map, which must not be modified afterwards.
func (b *Board) Put(next *Map) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.current = next
	b.turn()
}

// Problem sets why the map may be outdated; empty: it is not.
func (b *Board) Problem(why string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.problem != why {
		b.problem = why
		b.turn()
	}
}

func (b *Board) turn() {
	close(b.turned)
	b.turned = make(chan struct{})
}

// look returns the current map and problem, and a channel that is closed when they change.
func (b *Board) look() (*Map, string, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.current, b.problem, b.turned
}
