package selector

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func matching(labels labels, requirements ...metav1.LabelSelectorRequirement) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: labels, MatchExpressions: requirements}
}

func TestLabelSelector(t *testing.T) {
	for name, test := range map[string]struct {
		calico string
		want   *metav1.LabelSelector
		refuse string // text of the reason
	}{
		"all":           {"all()", nil, ""},
		"all, or more":  {"has(a) || all() || a contains 'x'", nil, ""},
		"all of a kind": {"has(a) || !has(a)", nil, ""},
		"equal":         {"zone == 'a'", matching(labels{"zone": "a"}), ""},
		"different": {"zone != 'a'",
			matching(nil, metav1.LabelSelectorRequirement{Key: "zone", Operator: "NotIn", Values: []string{"a"}}), ""},
		"there": {"has(zone)",
			matching(nil, metav1.LabelSelectorRequirement{Key: "zone", Operator: "Exists"}), ""},
		"not there": {"!has(zone)",
			matching(nil, metav1.LabelSelectorRequirement{Key: "zone", Operator: "DoesNotExist"}), ""},
		"there and different": {"has(zone) && zone != 'a'",
			matching(nil,
				metav1.LabelSelectorRequirement{Key: "zone", Operator: "Exists"},
				metav1.LabelSelectorRequirement{Key: "zone", Operator: "NotIn", Values: []string{"a"}}), ""},
		"all of it": {"has(zone) && !(zone == 'a' || has(gpu))",
			matching(nil,
				metav1.LabelSelectorRequirement{Key: "gpu", Operator: "DoesNotExist"},
				metav1.LabelSelectorRequirement{Key: "zone", Operator: "Exists"},
				metav1.LabelSelectorRequirement{Key: "zone", Operator: "NotIn", Values: []string{"a"}}), ""},
		"or, of one label": {"zone == 'b' || zone in {'a'}",
			matching(nil, metav1.LabelSelectorRequirement{Key: "zone", Operator: "In", Values: []string{"a", "b"}}), ""},
		"or, of boxes that make one": {"a == '1' && b == '1' || a == '2' && b == '1' || a == '1' && b == '2' || a in {'1','2'} && b == '2'",
			matching(nil,
				metav1.LabelSelectorRequirement{Key: "a", Operator: "In", Values: []string{"1", "2"}},
				metav1.LabelSelectorRequirement{Key: "b", Operator: "In", Values: []string{"1", "2"}}), ""},
		"one within the other": {"has(a) || a == 'x' && b == 'y'",
			matching(nil, metav1.LabelSelectorRequirement{Key: "a", Operator: "Exists"}), ""},
		"values no label has":   {"a in {'x', 'no such value', '-'} && b != '!'", matching(labels{"a": "x"}), ""},
		"a key no node has":     {"has(a/b/c) || zone == 'a'", matching(labels{"zone": "a"}), ""},
		"not a key no node has": {"a/b/c != 'x'", nil, ""},
		"a pattern that decides": {"zone in {'a1', 'a2', 'b1'} && zone starts with 'a' && !zone ends with '2'",
			matching(labels{"zone": "a1"}), ""},
		"a pattern that is part of another": {"zone == 'a' || zone == 'a' && zone contains 'a'", matching(labels{"zone": "a"}), ""},
		"a pattern of nothing": {"zone contains ''",
			matching(nil, metav1.LabelSelectorRequirement{Key: "zone", Operator: "Exists"}), ""},
		"not a pattern of nothing": {"!zone starts with ''",
			matching(nil, metav1.LabelSelectorRequirement{Key: "zone", Operator: "DoesNotExist"}), ""},

		"a pattern":       {"zone contains 'a'", nil, "looks into values"},
		"or of labels":    {"zone == 'a' || rack == '1'", nil, "(zone is one of {a}; or rack is one of {1})"},
		"missing or in":   {"!has(zone) || zone == 'a'", nil, "zone is missing or one of {a}"},
		"nothing":         {"!all()", nil, "selects no node"},
		"a contradiction": {"zone == 'a' && zone == 'b'", nil, "selects no node"},
		"too many terms": {strings.TrimPrefix(strings.Repeat(" && (has(a) || has(b) || has(c))", 20), " && "), nil,
			"too complex"},
	} {
		t.Run(name, func(t *testing.T) {
			e, err := ParseCalico(test.calico)
			if err != nil {
				t.Fatal(err)
			}
			got, err := e.LabelSelector()
			if (err != nil) != (test.refuse != "") || err != nil && !strings.Contains(err.Error(), test.refuse) {
				t.Fatalf("reason is %v, want %q", err, test.refuse)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestFromNodeSelector(t *testing.T) {
	term := func(r ...corev1.NodeSelectorRequirement) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchExpressions: r}
	}
	oneOf := func(key string, values ...string) corev1.NodeSelectorRequirement {
		return corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}
	}
	field := corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{oneOf("metadata.name", "edge-01")}}
	for name, test := range map[string]struct {
		terms  []corev1.NodeSelectorTerm
		want   *metav1.LabelSelector
		refuse string
	}{
		"none":        {nil, nil, ""},
		"one":         {[]corev1.NodeSelectorTerm{term(oneOf("rack", "1"), oneOf("zone", "a"))}, matching(labels{"rack": "1", "zone": "a"}), ""},
		"union":       {[]corev1.NodeSelectorTerm{term(oneOf("rack", "1")), term(oneOf("rack", "2"))}, matching(nil, metav1.LabelSelectorRequirement{Key: "rack", Operator: "In", Values: []string{"1", "2"}}), ""},
		"empty terms": {[]corev1.NodeSelectorTerm{{}}, nil, "selects no node"},
		"an empty term beside another": {[]corev1.NodeSelectorTerm{{}, term(oneOf("rack", "1"))},
			matching(labels{"rack": "1"}), ""},
		"not in": {[]corev1.NodeSelectorTerm{term(corev1.NodeSelectorRequirement{Key: "rack", Operator: corev1.NodeSelectorOpNotIn, Values: []string{"1"}})},
			matching(nil, metav1.LabelSelectorRequirement{Key: "rack", Operator: "NotIn", Values: []string{"1"}}), ""},
		"there, or not": {[]corev1.NodeSelectorTerm{
			term(corev1.NodeSelectorRequirement{Key: "rack", Operator: corev1.NodeSelectorOpExists}),
			term(corev1.NodeSelectorRequirement{Key: "rack", Operator: corev1.NodeSelectorOpDoesNotExist})}, nil, ""},
		"greater": {[]corev1.NodeSelectorTerm{term(corev1.NodeSelectorRequirement{Key: "cores", Operator: corev1.NodeSelectorOpGt, Values: []string{"8"}})},
			nil, `cannot say "cores Gt 8"`},
		"a field": {[]corev1.NodeSelectorTerm{field}, nil, `cannot say "the field metadata.name"`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := FromNodeSelector(&corev1.NodeSelector{NodeSelectorTerms: test.terms}).LabelSelector()
			if (err != nil) != (test.refuse != "") || err != nil && !strings.Contains(err.Error(), test.refuse) {
				t.Fatalf("reason is %v, want %q", err, test.refuse)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
