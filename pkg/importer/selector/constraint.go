package selector

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
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
	var matches bool
	switch p.op {
	case opContains:
		matches = strings.Contains(value, p.value)
	case opStartsWith:
		matches = strings.HasPrefix(value, p.value)
	case opEndsWith:
		matches = strings.HasSuffix(value, p.value)
	}
	return matches != p.negated
}

// literal is the constraint that a comparison, or its complement, puts on its
// label. Values that no label can have are left out.
func literal(e Expr, negated bool) constraint {
	c := constraint{values: map[string]bool{}}
	if e.op == opIn {
		c.only = true
		for _, v := range e.values {
			if len(validation.IsValidLabelValue(v)) == 0 {
				c.values[v] = true
			}
		}
	} else if e.op != opHas && e.values[0] != "" { // any value holds the empty one
		return constraint{absent: negated, values: c.values, patterns: []pattern{{e.op, e.values[0], negated}}}
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

// Expr says of a set of labels whether it is selected. The zero value selects
// everything.
type Expr struct {
	op     operator
	key    string
	values []string
	args   []Expr
}

type operator int

const (
	opAnd operator = iota // of args; of none: everything
	opOr                  // of args; of none: false
	opNot                 // of args[0]
	opHas                 // the label key is there
	opIn                  // the label key is there, with one of values
	opContains
	opStartsWith
	opEndsWith
	opUnknown // values[0] names the part that no label selector can express
)

// not is the complement of e.
func not(e Expr) Expr { return Expr{op: opNot, args: []Expr{e}} }

// FromNodeSelector is the union of the terms of a NodeSelector. Nil, or one
// without terms, selects every node, as in ClusterCIDR; an empty term selects
// none (k8s.io/api/core/v1 of v0.36, NodeSelectorTerm).
func FromNodeSelector(s *corev1.NodeSelector) Expr {
	if s == nil || len(s.NodeSelectorTerms) == 0 {
		return Expr{}
	}
	union := Expr{op: opOr}
	for _, t := range s.NodeSelectorTerms {
		if len(t.MatchExpressions)+len(t.MatchFields) == 0 {
			continue
		}
		conjunction := Expr{op: opAnd}
		for _, r := range t.MatchExpressions {
			conjunction.args = append(conjunction.args, fromRequirement(r))
		}
		for _, r := range t.MatchFields {
			conjunction.args = append(conjunction.args, Expr{op: opUnknown, values: []string{"the field " + r.Key}})
		}
		union.args = append(union.args, conjunction)
	}
	return union
}

func fromRequirement(r corev1.NodeSelectorRequirement) Expr {
	exists := Expr{op: opHas, key: r.Key}
	anyOf := Expr{op: opIn, key: r.Key, values: r.Values}
	switch r.Operator {
	case corev1.NodeSelectorOpIn:
		return anyOf
	case corev1.NodeSelectorOpNotIn:
		return not(anyOf)
	case corev1.NodeSelectorOpExists:
		return exists
	case corev1.NodeSelectorOpDoesNotExist:
		return not(exists)
	}
	return Expr{op: opUnknown, values: []string{strings.Join(append([]string{r.Key, string(r.Operator)}, r.Values...), " ")}}
}
