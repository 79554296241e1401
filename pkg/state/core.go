package state

import (
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// core is shared by a ledger and its parts: the lock, and the addresses that are taken.
type core struct {
	mu    sync.Mutex
	space *ipalloc.Space
	// Now is the time. Nil: times that objects hold are believed.
	Now       func() time.Time
	firstSeen map[moment]time.Time // see NotInFuture

	// Changed, if set, receives the freed CIDRs, those taken in other ways than by a claim, those that a
	// CiliumNode has begun or ceased to name beside a block of another node, and the pools with another
	// number of addresses in use, after the ledger has recorded them. It may call the ledger.
	Changed                 func(freed, taken, contested []netip.Prefix, used []string)
	freed, taken, contested []netip.Prefix // since the last call of Changed
	usedIn                  []string
}

// change records a change of the ledger under its lock, and then calls Changed, so that no waiting node
// is missed. setPools alone leaves that to the next change.
func (c *core) change(record func()) {
	c.mu.Lock()
	defer c.unlock()
	record()
}

// unlock ends a change.
func (c *core) unlock() {
	freed := c.freed
	taken := c.taken
	contested := c.contested
	used := c.usedIn
	c.freed = nil
	c.taken = nil
	c.contested = nil
	c.usedIn = nil
	c.mu.Unlock()
	if c.Changed != nil && len(freed)+len(taken)+len(contested)+len(used) > 0 {
		c.Changed(freed, taken, contested, used)
	}
}

// partSize is the number of records read under a lock at once: a few microseconds.
const partSize = 64

// inParts calls visit for each of keys, and holds the lock for partSize of them at a time.
func inParts[K any](lock sync.Locker, keys []K, visit func(K)) {
	for part := range slices.Chunk(keys, partSize) {
		lock.Lock()
		for _, key := range part {
			visit(key)
		}
		lock.Unlock()
	}
}
