package schema

import (
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func small() *apiextensionsv1.JSONSchemaProps {
	text := apiextensionsv1.JSONSchemaProps{Type: "string"}
	number := apiextensionsv1.JSONSchemaProps{Type: "integer", Minimum: ptr.To(1.0), Maximum: ptr.To(9.0)}
	list := apiextensionsv1.JSONSchemaProps{Type: "array", MaxItems: ptr.To[int64](2), Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &text}}
	return &apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
		"spec": {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"text": text, "number": number, "list": list}},
	}}
}

// An unknown field is a problem, and so is a field that the example lacks: whoever adds one must
// list its possible values.
func TestForgottenField(t *testing.T) {
	example := map[string]any{"text": "a", "number": int64(3), "list": []any{"a"}}
	by := map[string]Values{
		"spec.text": {Right: []string{"a"}}, "spec.list[]": {Right: []string{"a"}},
		"spec.list": {Item: func(map[string]any, int) any { return "b" }},
	}
	for name, test := range map[string]struct {
		spoil func(root *apiextensionsv1.JSONSchemaProps, example map[string]any, by map[string]Values)
		want  string
	}{
		"none": {func(*apiextensionsv1.JSONSchemaProps, map[string]any, map[string]Values) {}, ""},
		"text without values": {func(_ *apiextensionsv1.JSONSchemaProps, _ map[string]any, by map[string]Values) {
			delete(by, "spec.text")
		}, "spec.text"},
		"list without items": {func(_ *apiextensionsv1.JSONSchemaProps, _ map[string]any, by map[string]Values) {
			delete(by, "spec.list")
		}, "spec.list"},
		"not in the example": {func(_ *apiextensionsv1.JSONSchemaProps, example map[string]any, _ map[string]Values) {
			delete(example, "number")
		}, "spec.number"},
		"number without maximum": {func(root *apiextensionsv1.JSONSchemaProps, _ map[string]any, _ map[string]Values) {
			number := root.Properties["spec"].Properties["number"]
			number.Maximum = nil
			root.Properties["spec"].Properties["number"] = number
		}, "spec.number"},
	} {
		t.Run(name, func(t *testing.T) {
			root, example, by := small(), copyOf(example), copyOf(by)
			test.spoil(root, example, by)
			changes, err := (&Schema{root}).Changes(map[string]any{}, example, by)
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
			if err == nil && len(changes) < 15 {
				t.Errorf("only %d changes", len(changes))
			}
		})
	}
}

func copyOf[V any](m map[string]V) map[string]V {
	out := map[string]V{}
	for k, v := range m {
		out[k] = v
	}
	return out
}

// The bounds of a number, and one beyond each.
func TestBounds(t *testing.T) {
	var got []any
	changes, _ := (&Schema{small()}).Changes(map[string]any{"number": int64(3)}, map[string]any{"number": int64(3)}, nil)
	for _, c := range changes {
		if c.Field != "spec.number" || c.To == "removed" || c.To == "of another type" {
			continue
		}
		value := c.Apply(map[string]any{"number": int64(3)})["number"]
		if n, _ := value.(int64); c.Wrong != (n < 1 || n > 9) {
			t.Errorf("%s: wrong: %t", c, c.Wrong)
		}
		got = append(got, value)
	}
	if want := []any{int64(1), int64(9), int64(0), int64(10), int64(2), int64(4)}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// A message counts only if it names the field, or its parent below spec.
func TestNamed(t *testing.T) {
	c := Change{At: "spec.ipv4.cidrs[1].cidr"}
	for at, want := range map[string]bool{
		"spec.ipv4.cidrs[1].cidr": true, "spec.ipv4.cidrs": true, "spec.ipv4": true, "spec": false, "spec.ipv6": false, "": false,
	} {
		if got := c.Named([]metav1.StatusCause{{Field: at, Message: "wrong"}}); got != want {
			t.Errorf("%s: %t", at, got)
		}
	}
	if !c.Named([]metav1.StatusCause{{Field: "spec", Message: "each cidr must be one"}}) {
		t.Error("a message that names the field in its text does not count")
	}
}
