package selector

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

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
		all := Expr{op: opAnd}
		for _, r := range t.MatchExpressions {
			all.args = append(all.args, fromRequirement(r))
		}
		for _, r := range t.MatchFields {
			all.args = append(all.args, Expr{op: opUnknown, values: []string{"the field " + r.Key}})
		}
		union.args = append(union.args, all)
	}
	return union
}

func fromRequirement(r corev1.NodeSelectorRequirement) Expr {
	has, in := Expr{op: opHas, key: r.Key}, Expr{op: opIn, key: r.Key, values: r.Values}
	switch r.Operator {
	case corev1.NodeSelectorOpIn:
		return in
	case corev1.NodeSelectorOpNotIn:
		return not(in)
	case corev1.NodeSelectorOpExists:
		return has
	case corev1.NodeSelectorOpDoesNotExist:
		return not(has)
	}
	return Expr{op: opUnknown, values: []string{strings.Join(append([]string{r.Key, string(r.Operator)}, r.Values...), " ")}}
}
