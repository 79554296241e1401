package selector

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// constraint describes the values that one label may have: missing, if absent; one of values, if
// only; any value but values, if not only. All patterns must hold for the remaining values.
type constraint struct {
	absent   bool
	only     bool
	values   map[string]bool
	patterns []pattern
}

// pattern is a condition on a value that no set can say.
type pattern struct {
	op      operator
	value   string
	negated bool
}

func (p pattern) holds(value string) bool {
	var holds bool
	switch p.op {
	case opContains:
		holds = strings.Contains(value, p.value)
	case opStartsWith:
		holds = strings.HasPrefix(value, p.value)
	case opEndsWith:
		holds = strings.HasSuffix(value, p.value)
	}
	return holds != p.negated
}

// literal is the constraint that a comparison, or its complement, puts on its
// label. Values that no label can have are left out.
func literal(e Expr, negated bool) constraint {
	c := constraint{values: map[string]bool{}}
	switch e.op {
	case opHas:
	case opIn:
		c.only = true
		for _, v := range e.values {
			if len(validation.IsValidLabelValue(v)) == 0 {
				c.values[v] = true
			}
		}
	default:
		if e.values[0] != "" { // else any value holds it
			return constraint{absent: negated, values: c.values, patterns: []pattern{{e.op, e.values[0], negated}}}
		}
	}
	if negated {
		return c.complement()
	}
	return c
}

// complement is for constraints without patterns.
func (c constraint) complement() constraint {
	return constraint{absent: !c.absent, only: !c.only, values: c.values}
}

func (c constraint) empty() bool { return !c.absent && c.only && len(c.values) == 0 }

func (c constraint) free() bool {
	return c.absent && !c.only && len(c.values)+len(c.patterns) == 0
}

func intersect(a, b constraint) constraint {
	if !a.only && b.only {
		a, b = b, a
	}
	c := constraint{absent: a.absent && b.absent, only: a.only, values: maps.Clone(a.values)}
	c.patterns = slices.Concat(a.patterns, b.patterns)
	switch {
	case !a.only: // neither lists its values
		maps.Copy(c.values, b.values)
		return c
	case b.only:
		maps.DeleteFunc(c.values, func(v string, _ bool) bool { return !b.values[v] })
	default:
		maps.DeleteFunc(c.values, func(v string, _ bool) bool { return b.values[v] })
	}
	maps.DeleteFunc(c.values, func(v string, _ bool) bool {
		return slices.ContainsFunc(c.patterns, func(p pattern) bool { return !p.holds(v) })
	})
	c.patterns = nil
	return c
}

// unite is for constraints without patterns.
func unite(a, b constraint) constraint {
	return intersect(a.complement(), b.complement()).complement()
}

func (c constraint) sorted() []string { return slices.Sorted(maps.Keys(c.values)) }
