package main

import (
	"fmt"

	"github.com/cilium-pool/cilium-pool-operator/test/sim/changes/schema"
)

// path is a way to a changed spec and back to the state's own.
type path struct {
	name, about string
	// route returns the spec with which the cluster begins (nil: the state's), and those on the
	// way.
	route func(t trial) (first spec, stops []stop)
	// changed and back are the positions of the changed spec and of the state's own among those
	// the run has reached; -1: none.
	changed, back int
	// fits reports whether the path exists for a change. Nil: unless the change is rejected.
	fits func(t trial, refused bool) bool
}

// direct is the path that all others are compared with.
func direct() path {
	return path{name: "back", about: "to the changed spec, and back", changed: 1, back: 2,
		route: func(t trial) (spec, []stop) { return nil, []stop{{spec: t.to()}, {spec: t.from()}} },
		fits:  func(trial, bool) bool { return true },
	}
}

func paths() []path {
	return []path{
		direct(),
		{name: "hurried", about: "back before all has settled", changed: -1, back: 1,
			route: func(t trial) (spec, []stop) {
				return nil, []stop{{spec: t.to(), steps: 5 + t.number%40}, {spec: t.from()}}
			}},
		{name: "via", about: "to the changed spec by way of another change, and back", changed: 2, back: 3,
			route: func(t trial) (spec, []stop) {
				return nil, []stop{{spec: t.other.Apply(t.from())}, {spec: t.to()}, {spec: t.from()}}
			}},
		{name: "begun", about: "the cluster begins with the changed spec; and back", changed: 1, back: 2,
			route: func(t trial) (spec, []stop) { return t.to(), []stop{{spec: t.to()}, {spec: t.from()}} },
			fits:  func(t trial, refused bool) bool { return !refused && t.base == nil }},
		{name: "older", about: "an object that is older than the rule which refuses the change, and back", changed: -1, back: 2,
			route: func(t trial) (spec, []stop) {
				return nil, []stop{{spec: t.to(), forced: true}, {spec: t.from()}}
			},
			fits: func(t trial, refused bool) bool {
				_, err := pool(t.to())
				return refused && t.Wrong && err == nil
			}},
	}
}

// trial is a change of the pool's spec in a state.
type trial struct {
	*state
	schema.Change
	number int
	// other is another change of the same spec.
	other schema.Change
}

func (t trial) to() spec { return t.Apply(t.from()) }

// trials returns all changes of a state, each along with a valid one of another field.
func (s *state) trials(changes []schema.Change) []trial {
	var out []trial
	for i, c := range changes {
		t := trial{state: s, Change: c, number: i + 1}
		for n := 1; n < len(changes) && t.other.Field == ""; n++ {
			if d := changes[(i+n*otherStride)%len(changes)]; !d.Wrong && d.Field != c.Field {
				t.other = d
			}
		}
		out = append(out, t)
	}
	return out
}

// otherStride is how far away the other change is.
const otherStride = 7

// run plays a path of a trial.
func (t trial) run(p path, rules *schema.Schema, trace func(string)) course {
	first, stops := p.route(t)
	if first == nil {
		first = t.first
	}
	return t.play(rules, first, stops, trace)
}

// result is the result of a trial.
type result struct {
	refused bool
	// oneWay: the way back is rejected.
	oneWay   bool
	runs     int
	findings []string
}

func (r *result) note(t trial, p path, format string, args ...any) {
	r.findings = append(r.findings, fmt.Sprintf("%s/%d/%s (%s): %s", t.name, t.number, p.name, t.Change, fmt.Sprintf(format, args...)))
}

// try plays all paths of a trial and compares their ends: the same view of the changed spec,
// and back to that of the state, still.
func (t trial) try(rules *schema.Schema, still course) result {
	var r result
	var changed *view
	for _, p := range paths() {
		if p.fits == nil && r.refused || p.fits != nil && !p.fits(t, r.refused) {
			continue
		}
		c := t.run(p, rules, nil)
		r.runs++
		for _, text := range c.findings {
			r.note(t, p, "%s", text)
		}
		if len(c.findings) > 0 {
			continue
		}
		if p.name == direct().name && t.answer(&r, p, c) {
			continue
		}
		if p.changed >= 0 && p.changed < len(c.reached) {
			if changed == nil {
				changed = &c.reached[p.changed]
			}
			for _, text := range changed.differs(&c.reached[p.changed], t.keeps(t.to()) != "") {
				r.note(t, p, "the changed spec ends otherwise than on the path %q: %s", direct().name, text)
			}
		}
		t.compare(&r, p, c, still)
	}
	return r
}

// answer checks how the API server and the operator react to a change. It reports whether the
// change is rejected.
func (t trial) answer(r *result, p path, c course) bool {
	if len(c.reached) == 1 {
		r.refused = true
		if t.Wrong && !t.Named(c.refused) {
			r.note(t, p, "it is refused, and no message names the field: %v", c.refused)
		}
		return true
	}
	r.oneWay = len(c.refused) > 0
	if t.Wrong && !c.reached[1].reports(t.At) {
		r.note(t, p, "it is wrong, and accepted silently")
	}
	return false
}

// compare compares the way back with the state without the change.
func (t trial) compare(r *result, p path, c, still course) {
	// A node keeps what it got from another pool while this one did not serve it.
	kept := p.name == "begun" && (t.before != nil || t.after != nil)
	if p.back < len(c.reached) {
		for _, text := range still.reached[1].differs(&c.reached[p.back], kept || t.keeps(t.from()) != "") {
			r.note(t, p, "ends otherwise than without the change: %s", text)
		}
	}
	if c.end != nil {
		for _, text := range still.end.differs(c.end, kept) {
			r.note(t, p, "ends otherwise than without the change, once pods are gone: %s", text)
		}
	}
}
