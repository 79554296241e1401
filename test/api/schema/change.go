package schema

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Change sets one field of a spec to another value, or to none.
type Change struct {
	// Field is the field's path in the schema, as in spec.ipv4.cidrs[].cidr, and At its
	// path in the spec, as in spec.ipv4.cidrs[1].cidr.
	Field, At string
	// To describes the field's new value.
	To string
	// Wrong: the value is wrong by itself, with any other values of the spec.
	Wrong bool

	sets []assignment // in this order; all but the last make the field's parents
}

// assignment puts a value at a path of strings and ints, or removes the value there.
type assignment struct {
	path  []any
	value any // nil: none
}

func (c Change) String() string { return c.At + ": " + c.To }

// Apply returns a spec with the change. It does not change its argument.
func (c Change) Apply(spec map[string]any) map[string]any {
	out := map[string]any{"spec": runtime.DeepCopyJSON(spec)}
	for _, s := range c.sets {
		set(out, s.path, runtime.DeepCopyJSONValue(s.value))
	}
	changed, _ := out["spec"].(map[string]any)
	return changed
}

// set changes the value at a path and returns in, or its replacement.
func set(in any, path []any, value any) any {
	switch in := in.(type) {
	case map[string]any:
		key := path[0].(string)
		switch {
		case len(path) > 1:
			in[key] = set(in[key], path[1:], value)
		case value == nil:
			delete(in, key)
		default:
			in[key] = value
		}
		return in
	case []any:
		i := path[0].(int)
		switch {
		case len(path) > 1:
			in[i] = set(in[i], path[1:], value)
		case value == nil:
			return slices.Delete(in, i, i+1)
		default:
			in[i] = value
		}
		return in
	}
	panic(fmt.Sprintf("nothing at %v of %T", path, in))
}

// written is a path as messages of the API server have it.
func written(path []any) string {
	var p *field.Path
	for _, step := range path {
		switch step := step.(type) {
		case int:
			p = p.Index(step)
		case string:
			if p == nil {
				p = field.NewPath(step)
			} else {
				p = p.Child(step)
			}
		}
	}
	return p.String()
}

// Named reports whether one of the API server's reasons names the field of the change: by its
// path, by the path of an object below spec that contains it, or in the message.
func (c Change) Named(causes []metav1.StatusCause) bool {
	name := c.At[strings.LastIndex(c.At, ".")+1:]
	name, _, _ = strings.Cut(name, "[")
	return slices.ContainsFunc(causes, func(cause metav1.StatusCause) bool {
		at := cause.Field
		return strings.Contains(at, ".") && (strings.HasPrefix(c.At, at) || strings.HasPrefix(at, c.At)) || strings.Contains(cause.Message, name)
	})
}

// Values are the values that a schema leaves open for a field.
type Values struct {
	// Right and Wrong are values of a string.
	Right, Wrong []string
	// Item makes the i-th item of a list, for a spec.
	Item func(spec map[string]any, i int) any
	// Entry makes the i-th entry of a map.
	Entry func(i int) (key, value string)
	// WrongEntries are entries of a map that are wrong by themselves.
	WrongEntries map[string]string
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
