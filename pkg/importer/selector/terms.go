package selector

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	// maxTerms keeps messages about a selector readable.
	maxTerms = 256
	// maxWork keeps hostile selectors from taking forever: constraints looked at.
	maxWork = 50_000
)

// budget is the amount of work left.
type budget int

func (b *budget) spend(work int) error {
	if *b -= budget(work); *b < 0 {
		return errTooComplex
	}
	return nil
}

var errTooComplex = errors.New("it is too complex to be taken apart")

// term is a conjunction: one constraint for each label that it names, none of
// them empty or free.
type term map[string]constraint

// with is t and c on key, and false if no value remains.
func (t term) with(key string, c constraint) (term, bool) {
	if old, ok := t[key]; ok {
		c = intersect(old, c)
	}
	if c.empty() {
		return nil, false
	}
	next := maps.Clone(t)
	if c.free() {
		delete(next, key)
	} else {
		next[key] = c
	}
	return next, true
}

// get is the constraint on key, which may be none.
func (t term) get(key string) constraint {
	if c, ok := t[key]; ok {
		return c
	}
	return constraint{absent: true, values: map[string]bool{}}
}

func (t term) keys() []string { return slices.Sorted(maps.Keys(t)) }

func (t term) patterned() bool {
	for _, c := range t {
		if len(c.patterns) > 0 {
			return true
		}
	}
	return false
}

// relaxed is t without its patterns, so it selects more.
func (t term) relaxed() term {
	r := term{}
	for k, c := range t {
		if c.patterns = nil; !c.free() {
			r[k] = c
		}
	}
	return r
}

// termsOf returns terms with the union e, or its complement.
func (b *budget) termsOf(e Expr, negated bool) ([]term, error) {
	switch e.op {
	case opNot:
		return b.termsOf(e.args[0], !negated)
	case opAnd, opOr:
		if (e.op == opAnd) != negated {
			return b.intersection(e.args, negated)
		}
		return b.union(e.args, negated)
	case opUnknown:
		return nil, fmt.Errorf("a label selector cannot say %q", e.values[0])
	}
	c := literal(e, negated)
	if len(validation.IsQualifiedName(e.key)) > 0 && !c.absent {
		return nil, nil // no Node has such a label
	} else if len(validation.IsQualifiedName(e.key)) > 0 {
		return []term{{}}, nil
	}
	t, ok := term{}.with(e.key, c)
	if !ok {
		return nil, nil
	}
	return []term{t}, nil
}

func (b *budget) union(args []Expr, negated bool) ([]term, error) {
	var out []term
	for _, a := range args {
		terms, err := b.termsOf(a, negated)
		if err != nil {
			return nil, err
		}
		if out = append(out, terms...); len(out) > maxTerms {
			return nil, errTooComplex
		}
	}
	return out, nil
}

func (b *budget) intersection(args []Expr, negated bool) ([]term, error) {
	out := []term{{}}
	for _, a := range args {
		terms, err := b.termsOf(a, negated)
		if err != nil {
			return nil, err
		}
		var next []term
		for _, t := range out {
			for _, u := range terms {
				if err := b.spend((1 + len(t)) * (1 + len(u))); err != nil {
					return nil, err
				}
				if common, ok := t.and(u); ok {
					next = append(next, common)
				}
			}
		}
		if out = next; len(out) > maxTerms {
			return nil, errTooComplex
		}
	}
	return out, nil
}

func (t term) and(u term) (term, bool) {
	for key, c := range u {
		next, ok := t.with(key, c)
		if !ok {
			return nil, false
		}
		t = next
	}
	return t, true
}

// hull is the narrowest term around all terms; there is at least one.
func hull(terms []term) term {
	h := maps.Clone(terms[0])
	for _, t := range terms[1:] {
		for key, c := range h {
			if c = unite(c, t.get(key)); c.free() {
				delete(h, key)
			} else {
				h[key] = c
			}
		}
	}
	return h
}

// covered reports whether the union of terms covers all of t. The others must cover the part of t
// that the first term leaves out, label by label. No term has patterns.
func (b *budget) covered(t term, terms []term) (bool, error) {
	if len(terms) == 0 {
		return false, nil
	}
	first := terms[0]
	rest := terms[1:]
	for _, key := range first.keys() {
		if err := b.spend(1 + len(t) + len(first)); err != nil {
			return false, err
		}
		if outside, ok := t.with(key, first[key].complement()); ok {
			if isCovered, err := b.covered(outside, rest); !isCovered || err != nil {
				return false, err
			}
		}
		inside, ok := t.with(key, first[key])
		if !ok {
			return true, nil // all of t was outside
		}
		t = inside
	}
	return true, nil
}
