package selector

import "strings"

// selects is Calico's own evaluation (libcalico-go/lib/selector/parser, the Evaluate methods of
// v3.34): the oracle of the tests.
func selects(e Expr, labels map[string]string) bool {
	value, has := labels[e.key]
	switch e.op {
	case opAnd:
		for _, a := range e.args {
			if !selects(a, labels) {
				return false
			}
		}
		return true
	case opOr:
		for _, a := range e.args {
			if selects(a, labels) {
				return true
			}
		}
		return false
	case opNot:
		return !selects(e.args[0], labels)
	case opHas:
		return has
	case opIn:
		for _, v := range e.values {
			if has && v == value {
				return true
			}
		}
		return false
	case opContains:
		return has && strings.Contains(value, e.values[0])
	case opStartsWith:
		return has && strings.HasPrefix(value, e.values[0])
	case opEndsWith:
		return has && strings.HasSuffix(value, e.values[0])
	}
	panic("no such operator")
}
