package wire

import (
	"errors"
	"sync"
)

// Gate opens, blocks or refuses status writes.
type Gate struct {
	mu    sync.Mutex
	cond  *sync.Cond
	mode  string
	tried int
}

// NewGate returns an open gate.
func NewGate() *Gate {
	g := &Gate{mode: "open"}
	g.cond = sync.NewCond(&g.mu)
	return g
}

// Set sets the mode: "open", "block" or "fail".
func (g *Gate) Set(mode string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mode, g.tried = mode, 0
	g.cond.Broadcast()
}

// Pass returns once the gate does not block, with an error if it fails writes.
func (g *Gate) Pass() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.tried++
	for g.mode == "block" {
		g.cond.Wait()
	}
	if g.mode == "fail" {
		return errors.New("refused by the test")
	}
	return nil
}

// Attempts returns the number of writes that have reached the gate since it was last set.
func (g *Gate) Attempts() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.tried
}
