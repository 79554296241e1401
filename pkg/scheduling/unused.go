package scheduling

import (
	"slices"
	"time"
)

// unusedFor is the time that a pod may wait while a suitable node has the addresses it requests and
// no pod takes any of them. After that, something else, such as CPU, must keep the pod from that
// node. The scheduler tries again within 10 seconds.
const unusedFor = 30 * time.Second

// unusedAtMost bounds that time on a node with enough addresses on which other pods come and go.
const unusedAtMost = 10 * unusedFor

// freeAddresses are the free addresses of a node by family, and the time of their last change.
type freeAddresses struct {
	free    [2]int
	changed time.Time
	// levels are ascending numbers of each family, and the time since when the node has had as many.
	levels [2][]freeSince
}

type freeSince struct {
	free int
	time time.Time
}

// noteFree records the free addresses of a node at now.
func (u *Unscheduled) noteFree(c *Candidate, now time.Time) freeAddresses {
	u.mu.Lock()
	defer u.mu.Unlock()
	noted, known := u.free[c.key()]
	free := [2]int{c.Room[0].Free, c.Room[1].Free}
	if known && noted.free == free {
		return noted
	}
	noted.free = free
	noted.changed = now
	for f := range free {
		noted.levels[f] = withLevel(noted.levels[f], free[f], now)
	}
	u.free[c.key()] = noted
	return noted
}

// withLevel returns levels after the number of free addresses became free. Of the levels older than
// unusedAtMost it keeps the highest.
func withLevel(levels []freeSince, free int, now time.Time) []freeSince {
	begin := now
	lower := slices.DeleteFunc(slices.Clone(levels), func(l freeSince) bool { return l.free >= free })
	if len(lower) < len(levels) {
		begin = levels[len(lower)].time
	}
	lower = append(lower, freeSince{free, begin})
	for len(lower) > 1 && !now.Before(lower[1].time.Add(unusedAtMost)) {
		lower = lower[1:]
	}
	return lower
}

// unused returns when a node is of no use to a pod with these requests that still waits then.
func (a *freeAddresses) unused(requests [2]int) time.Time {
	var begin time.Time
	for f, levels := range a.levels {
		i := slices.IndexFunc(levels, func(l freeSince) bool { return l.free >= requests[f] })
		if requests[f] > 0 && i >= 0 && levels[i].time.After(begin) {
			begin = levels[i].time
		}
	}
	unused := a.changed.Add(unusedFor)
	if most := begin.Add(unusedAtMost); most.Before(unused) {
		return most
	}
	return unused
}

// keepFree drops the record of nodes other than these.
func (u *Unscheduled) keepFree(nodes []Candidate) {
	u.mu.Lock()
	defer u.mu.Unlock()
	next := make(map[candidateKey]freeAddresses, len(nodes))
	for i := range nodes {
		next[nodes[i].key()] = u.free[nodes[i].key()]
	}
	u.free = next
}
