package state

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// ClockSkew is the difference between two clocks that the operator does not look into.
const ClockSkew = time.Minute

// moment is a time that an object holds.
type moment struct {
	uid types.UID
	at  int64
}

// NotInFuture returns a time that an object holds. A wrong clock may have written one in the future: it
// counts from when this process first saw it.
func (l *Ledger) NotInFuture(uid types.UID, t time.Time) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.notInFuture(uid, t)
}

func (c *core) notInFuture(uid types.UID, t time.Time) time.Time {
	if c.Now == nil {
		return t
	}
	now := c.Now()
	key := moment{uid, t.Unix()}
	if !t.After(now.Add(ClockSkew)) {
		return t
	}
	first, known := c.firstSeen[key]
	if !known {
		if len(c.firstSeen) >= maxGone { // each of them counts again
			clear(c.firstSeen)
		}
		first = now
		c.firstSeen[key] = now
	}
	return first
}
