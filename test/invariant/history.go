package invariant

import (
	"container/heap"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// event is one version of one object, as a stream delivered it.
type event struct {
	kind     Kind
	key      string
	version  uint64
	object   client.Object // nil: deleted
	received time.Time
	origin   origin
}

// origin is how a version was obtained.
type origin int

const (
	// watched: every version before it was delivered.
	watched origin = iota
	// found: it existed when the stream began. It is not judged.
	found
	// bridged: versions before it were missed. The state it describes is judged, the change
	// that led to it is not.
	bridged
)

// history puts the versions of all streams into one order. It returns a version once every
// stream has delivered everything before it.
type history struct {
	pending eventHeap
	passed  map[Kind]uint64
	// All versions up to applied have been returned.
	applied uint64
}

func (h *history) start(at uint64) {
	h.passed = map[Kind]uint64{}
	for _, k := range kinds() {
		h.passed[k] = at
	}
	h.applied = at
}

// add receives a version. Each stream delivers its versions in order.
func (h *history) add(e event) {
	heap.Push(&h.pending, e)
	h.pass(e.kind, e.version)
}

func (h *history) pass(k Kind, version uint64) {
	if h.passed != nil {
		h.passed[k] = max(h.passed[k], version)
	}
}

// next returns the next version, or false if an earlier one may still arrive.
func (h *history) next() (event, bool) {
	if h.passed == nil {
		return event{}, false
	}
	safe := h.safe()
	if len(h.pending) == 0 || h.pending[0].version > safe {
		h.applied = max(h.applied, safe)
		return event{}, false
	}
	e := heap.Pop(&h.pending).(event)
	h.applied = max(h.applied, e.version)
	return e, true
}

func (h *history) safe() uint64 {
	first := true
	var safe uint64
	for _, version := range h.passed {
		if first || version < safe {
			safe, first = version, false
		}
	}
	return safe
}

// lagging returns the kinds that hold back a pending version.
func (h *history) lagging() []Kind {
	var newest uint64
	for _, e := range h.pending {
		newest = max(newest, e.version)
	}
	var out []Kind
	for _, k := range kinds() {
		if h.passed[k] < newest {
			out = append(out, k)
		}
	}
	return out
}

type eventHeap []event

func (h eventHeap) Len() int           { return len(h) }
func (h eventHeap) Less(i, j int) bool { return h[i].version < h[j].version }
func (h eventHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *eventHeap) Push(x any)        { *h = append(*h, x.(event)) }
func (h *eventHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	old[len(old)-1] = event{}
	*h = old[:len(old)-1]
	return last
}
