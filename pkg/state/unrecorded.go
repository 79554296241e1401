package state

import "sync"

// Unrecorded tracks which pools of a first installation may lack the record that they were
// created: such a pool must not be deleted, or it would be created again. The zero value
// has not been set yet and counts all pools; nil counts none. It is safe for concurrent
// use.
type Unrecorded struct {
	mu    sync.Mutex
	known bool
	pools map[string]bool
}

// Set replaces the pools that lack their record.
func (u *Unrecorded) Set(pools map[string]bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.known, u.pools = true, pools
}

// Has reports whether a pool may still lack its record.
func (u *Unrecorded) Has(pool string) bool {
	if u == nil {
		return false
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return !u.known || u.pools[pool]
}
