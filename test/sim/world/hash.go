package world

import (
	"crypto/sha256"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"unsafe"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Record starts recording what reconciles learn, which Hash needs for those in progress. Only
// worlds that were equal when it was called can be compared, because earlier knowledge is not
// recorded. The named fields, as type.field, are left out of the hash; tests use that to show
// that it needs them.
func (w *World) Record(but ...string) {
	if w.cfg.Faults.Has(StaleList) || w.cfg.Faults.Has(Skew) || w.cfg.Seed != 0 {
		panic("what was long ago, runs and picks are not part of the hash")
	}
	w.known = &known{objects: map[unsafe.Pointer]digest{}, of: map[token]string{}, but: but}
	for _, o := range w.operators {
		for _, f := range o.flights {
			f.note(w, func(c *canon) { c.any(w.now) })
		}
	}
}

// Hash is equal for two worlds that behave the same from now on. It may differ where the
// difference does not matter, but never the reverse. It covers objects, watches, operators'
// memories, agents, pods and what the rules remember; UIDs and resourceVersions by their order,
// times by their distance from now. The local variables of a running reconcile cannot be read,
// so everything it could have read is included: each time it continued, the operator's memory,
// the answers of its caches, and the API server's answer.
func (w *World) Hash() [sha256.Size]byte {
	w.Enabled() // moves what has come due
	w.known.learn(w.api)
	c := newCanon(w.known)
	c.number(uint64(w.now.Nanosecond())) // objects hold whole seconds
	c.any(w.api.objects)
	c.each(reflect.ValueOf(w).Elem(), "cfg", "api", "now", "operators", "machines", "lease", "excused",
		"stories", "hours", "turn", "sent", "lasting", "wrote", "Counts", "strips", "trace", "quiet", "enabled", "known")
	for _, addr := range slices.SortedFunc(maps.Keys(w.excused), netip.Addr.Compare) {
		e := w.excused[addr]
		c.any(addr)
		c.any([]any{e.node, e.back == 0, e.holds(w.machine(e.node))})
	}
	if w.lease.holder != nil {
		c.text(w.lease.holder.name)
	}
	c.any(w.lease.renewed)
	for _, o := range w.operators {
		w.hashOperator(c, o)
	}
	for _, m := range w.machines {
		c.each(reflect.ValueOf(m).Elem(), "w", "read", "picks")
		for _, v := range w.api.history[KindCiliumNode][m.read:] {
			if v.Key == m.name {
				c.any(v)
			}
		}
		c.number(0)
	}
	return c.sum(w.now)
}

func (w *World) hashOperator(c *canon, o *Operator) {
	c.each(reflect.ValueOf(o).Elem(), "w", "runs", "current", "queues", "streams", "flights")
	for _, q := range o.queues {
		if q != nil {
			c.each(reflect.ValueOf(q).Elem())
		}
	}
	for _, s := range o.streams {
		c.each(reflect.ValueOf(s).Elem(), "read")
		for _, v := range w.api.history[s.kind][s.read:] {
			if v.New != nil && s.wants(v.New) || v.Old != nil && s.wants(v.Old) {
				c.any(v)
			}
		}
		c.number(0)
	}
	flights := slices.SortedFunc(slices.Values(o.flights), func(a, b *flight) int { return strings.Compare(a.String(), b.String()) })
	for _, f := range flights {
		c.each(reflect.ValueOf(f).Elem(), "seen")
		if !slices.Contains(c.but, "world.flight.seen") {
			c.put(f.seen)
		}
	}
	c.number(uint64(len(flights)))
}

// note adds to what a reconcile has learned.
func (f *flight) note(w *World, write func(*canon)) {
	if w.known == nil {
		return
	}
	w.known.learn(w.api)
	c := newCanon(w.known)
	c.put(f.seen)
	write(c)
	f.seen = c.digest()
}

// noteMemory records what a reconcile can read without a call.
func (f *flight) noteMemory(o *Operator) {
	f.note(o.w, func(c *canon) {
		if f.pending != nil {
			c.any(f.pending.fate)
		}
		c.any(o.w.now)
		for _, m := range o.w.machines {
			if f.controller != nodes || m.name != f.name {
				c.others = append(c.others, m.name)
			}
		}
		c.any(o.reconciler(f.controller))
	})
}

// noteAnswer records the API server's answer to a call.
func (f *flight) noteAnswer(w *World, call *call, err error) {
	f.note(w, func(c *canon) {
		if err != nil {
			c.text(reasonOf(err))
		}
		c.object1(w.api.Get(call.kind, call.key))
		if call.verb == "list" {
			c.any(w.api.objects[call.kind])
		}
	})
}

// noteCache records a cache's answer.
func (f *flight) noteCache(w *World, obj client.Object) {
	f.note(w, func(c *canon) { c.object1(obj) })
}

func (c *canon) object1(obj client.Object) {
	if obj == nil {
		c.number(0)
		return
	}
	c.any(obj)
}
