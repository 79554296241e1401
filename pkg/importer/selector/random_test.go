package selector

import (
	"math/rand/v2"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8slabels "k8s.io/apimachinery/pkg/labels"
)

// Keys and values of random expressions. No Node can have the last of each.
var (
	keys   = []string{"a", "b", "c", "no/such/key"}
	values = []string{"x", "y", "xy", "", "no such value"}
	// Values that no expression names stand for all others.
	onNodes = []string{"x", "y", "xy", "", "yx", "z"}
)

func randomExpr(r *rand.Rand, depth int, ops []operator) Expr {
	if depth == 0 || r.IntN(4) == 0 {
		e := Expr{op: ops[r.IntN(len(ops))], key: keys[r.IntN(len(keys))]}
		for range 1 + r.IntN(3) {
			e.values = append(e.values, values[r.IntN(len(values))])
		}
		return e
	}
	if r.IntN(4) == 0 {
		return not(randomExpr(r, depth-1, ops))
	}
	e := Expr{op: []operator{opAnd, opOr}[r.IntN(2)]}
	for range r.IntN(4) {
		e.args = append(e.args, randomExpr(r, depth-1, ops))
	}
	return e
}

// nodes are all labels that distinguish random expressions.
func nodes() []labels {
	all := []labels{{}}
	for _, key := range keys[:3] {
		for _, l := range all[:len(all):len(all)] {
			for _, v := range onNodes {
				more := labels{key: v}
				for k, v := range l {
					more[k] = v
				}
				all = append(all, more)
			}
		}
	}
	return all
}

// checkMatches fails where the label selector and the expression differ.
func checkMatches(t *testing.T, e Expr, s *metav1.LabelSelector, nodes []labels) {
	t.Helper()
	matches := k8slabels.Everything()
	if s != nil {
		var err error
		if matches, err = metav1.LabelSelectorAsSelector(s); err != nil {
			t.Fatalf("%+v became %+v: %v", e, s, err)
		}
	}
	for _, l := range nodes {
		if want, got := selects(e, l), matches.Matches(k8slabels.Set(l)); want != got {
			t.Fatalf("%+v became %s: of %v they say %v and %v", e, matches, l, want, got)
		}
	}
}

// The result of an expression selects the same nodes, always.
func TestExact(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	all, taken := nodes(), 0
	ops := []operator{opHas, opIn, opIn, opContains, opStartsWith, opEndsWith}
	for range 2_000 {
		e := randomExpr(r, 3, ops)
		if s, err := e.LabelSelector(); err == nil {
			taken++
			checkMatches(t, e, s, all)
		}
	}
	if taken < 200 {
		t.Errorf("only %d expressions were taken", taken)
	}
}

// Without patterns no expression is refused that one conjunction could say: there is one if the
// nodes selected are all combinations of the values that each label may have.
func TestComplete(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	all, refused := nodes(), 0
	for range 2_000 {
		e := randomExpr(r, 3, []operator{opHas, opIn})
		_, err := e.LabelSelector()
		if can := expressible(e, all); can != (err == nil) {
			t.Fatalf("%+v: one conjunction can say it: %v; but %v", e, can, err)
		}
		if err != nil {
			refused++
		}
	}
	if refused < 200 {
		t.Errorf("only %d expressions were refused", refused)
	}
}

func expressible(e Expr, nodes []labels) bool {
	const missing = "(missing)"
	value := func(l labels, key string) string {
		if v, ok := l[key]; ok {
			return v
		}
		return missing
	}
	selected, may := 0, map[string]map[string]bool{}
	for _, l := range nodes {
		if !selects(e, l) {
			continue
		}
		selected++
		for _, key := range keys[:3] {
			if may[key] == nil {
				may[key] = map[string]bool{}
			}
			may[key][value(l, key)] = true
		}
	}
	if selected == 0 {
		return false
	}
	combinations := 1
	for _, m := range may {
		combinations *= len(m)
		// z and yx are in no expression: without them, it is some values only.
		if m[missing] && len(m) > 1 && !m["z"] {
			return false
		}
	}
	return combinations == selected
}

// FuzzCalico compares the nodes that a selector selects before and after the conversion.
func FuzzCalico(f *testing.F) {
	for _, s := range []string{
		"all()", "!(a == 'x' || has(b)) && c not in {'x', \"y\"}", "a starts with 'x' || !a ends with 'y'",
		"a in {} || b contains ''", "has( a ) && !!global()", "a=='x'&&(b!='y'||a notin{'x',})",
	} {
		f.Add(s)
	}
	all := nodes()
	f.Fuzz(func(t *testing.T, selector string) {
		e, err := ParseCalico(selector)
		if err != nil {
			return
		}
		if s, err := e.LabelSelector(); err == nil {
			checkMatches(t, e, s, all)
		}
	})
}
