package schema

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// Fields are the paths of all fields of the spec, sorted.
func (s *Schema) Fields() []string {
	var out []string
	collect(s.root.Properties["spec"], "spec", &out)
	slices.Sort(out)
	return out
}

func collect(p apiextensionsv1.JSONSchemaProps, field string, out *[]string) {
	if field != "spec" {
		*out = append(*out, field)
	}
	for name, property := range p.Properties {
		collect(property, field+"."+name, out)
	}
	switch {
	case p.Items == nil:
	case p.Items.Schema.Type == "object": // an item is a change of its list
		for name, property := range p.Items.Schema.Properties {
			collect(property, field+"[]."+name, out)
		}
	default:
		collect(*p.Items.Schema, field+"[]", out)
	}
}

// Changes are the changes of a spec, in a fixed order. Missing parents are made as in the example,
// which has every field. by are the values that the schema leaves open, by field; the error names
// the fields without them.
func (s *Schema) Changes(spec, example map[string]any, by map[string]Values) ([]Change, error) {
	g := &generator{spec: spec, by: by}
	g.properties(s.root.Properties["spec"], place{field: "spec", path: []any{"spec"}}, spec, example)
	return g.changes, errors.Join(g.problems...)
}

type generator struct {
	spec     map[string]any
	by       map[string]Values
	changes  []Change
	problems []error
}

// place is the place of a field, and the parents that must be made for it.
type place struct {
	field string
	path  []any
	setup []assignment
}

func (p place) child(name string) place {
	return place{p.field + "." + name, append(slices.Clone(p.path), name), p.setup}
}

func (p place) item(i int) place {
	return place{p.field + "[]", append(slices.Clone(p.path), i), p.setup}
}

func (g *generator) add(p place, to string, value any, wrong bool) {
	g.changes = append(g.changes, Change{
		Field: p.field, At: written(p.path), To: to, Wrong: wrong,
		sets: append(slices.Clone(p.setup), assignment{p.path, value}),
	})
}

func (g *generator) problem(p place, what string) {
	g.problems = append(g.problems, fmt.Errorf("%s: %s", p.field, what))
}

// properties changes each field of an object. has is the value of the spec there, or nil.
func (g *generator) properties(schema apiextensionsv1.JSONSchemaProps, p place, has, example map[string]any) {
	if has == nil && p.field != "spec" { // make the object, and no more of it than it takes
		value := map[string]any{}
		if len(schema.Required) > 0 {
			value = example
		}
		p.setup = append(slices.Clone(p.setup), assignment{p.path, value})
		has = value
	}
	for _, name := range sorted(schema.Properties) {
		value, there := has[name]
		if there {
			g.add(p.child(name), "removed", nil, slices.Contains(schema.Required, name))
		}
		if example[name] == nil {
			g.problem(p.child(name), "the example lacks it")
			continue
		}
		g.value(schema.Properties[name], p.child(name), value, example[name])
	}
}

// value changes a field of any type.
func (g *generator) value(schema apiextensionsv1.JSONSchemaProps, p place, has, example any) {
	var other any = "text"
	if schema.Type == "string" {
		other = int64(7)
	}
	g.add(p, "of another type", other, true)
	switch schema.Type {
	case "object":
		g.object(schema, p, has, example)
	case "array":
		g.array(schema, p, has, example)
	case "integer":
		g.integer(schema, p, has)
	case "boolean":
		g.add(p, "true", true, false)
		g.add(p, "false", false, false)
	case "string":
		g.text(schema, p)
	default:
		g.problem(p, "no changes are known for the type "+schema.Type)
	}
}

func (g *generator) object(schema apiextensionsv1.JSONSchemaProps, p place, has, example any) {
	g.add(p, "empty", map[string]any{}, len(schema.Required) > 0)
	object, _ := has.(map[string]any)
	if schema.AdditionalProperties == nil {
		g.properties(schema, p, object, example.(map[string]any))
		return
	}
	by := g.by[p.field]
	if by.Entry == nil || len(by.WrongEntries) == 0 {
		g.problem(p, "no entries are known for this map")
		return
	}
	with := func(n int) map[string]any {
		out := map[string]any{}
		for i := range n {
			key, value := by.Entry(i)
			out[key] = value
		}
		return out
	}
	g.add(p, "another entry", with(1), false)
	if most := schema.MaxProperties; most != nil {
		g.add(p, fmt.Sprintf("%d entries, the most", *most), with(int(*most)), false)
		g.add(p, "one entry too many", with(int(*most)+1), true)
	}
	for _, key := range sorted(by.WrongEntries) {
		g.add(p, fmt.Sprintf("%.40q: %.40q", key, by.WrongEntries[key]), map[string]any{key: by.WrongEntries[key]}, true)
	}
	if most := schema.AdditionalProperties.Schema.MaxLength; most != nil {
		key, _ := by.Entry(0)
		g.add(p, "a value too long", map[string]any{key: strings.Repeat("x", int(*most)+1)}, true)
	}
}

func (g *generator) array(schema apiextensionsv1.JSONSchemaProps, p place, has, example any) {
	items, _ := has.([]any)
	least := 0
	if schema.MinItems != nil {
		least = int(*schema.MinItems)
	}
	g.add(p, "empty", []any{}, least > 0)
	g.sizes(schema, p, items)
	if len(items) == 0 {
		items = example.([]any)
		p.setup = append(slices.Clone(p.setup), assignment{p.path, items})
	}
	g.add(p, "an item twice", append(slices.Clone(items), items[0]), schema.XListType != nil && *schema.XListType != "atomic")
	for i := range items {
		if i > 0 && i < len(items)-1 {
			continue // as the first and the last
		}
		at, of := p.item(i), example.([]any)[0]
		if object, ok := items[i].(map[string]any); ok {
			g.properties(*schema.Items.Schema, at, object, of.(map[string]any))
		} else {
			g.value(*schema.Items.Schema, at, items[i], of)
		}
	}
}

// sizes are lists with other numbers of items.
func (g *generator) sizes(schema apiextensionsv1.JSONSchemaProps, p place, items []any) {
	item := g.by[p.field].Item
	if item == nil || schema.MaxItems == nil {
		g.problem(p, "no items are known for this list, or there is no maximum")
		return
	}
	if len(items) > 1 {
		g.add(p, "the first removed", slices.Clone(items[1:]), false)
		g.add(p, "the last removed", slices.Clone(items[:len(items)-1]), false)
		turned := slices.Clone(items)
		slices.Reverse(turned)
		g.add(p, "in reverse order", turned, false)
	}
	grown := func(n int) []any {
		out := slices.Clone(items)
		for i := 0; len(out) < n; i++ {
			out = append(out, item(g.spec, i))
		}
		return out
	}
	most := int(*schema.MaxItems)
	g.add(p, "one more", grown(len(items)+1), false)
	g.add(p, fmt.Sprintf("%d, the most", most), grown(most), false)
	g.add(p, "one too many", grown(most+1), true)
}

func (g *generator) integer(schema apiextensionsv1.JSONSchemaProps, p place, has any) {
	if schema.Minimum == nil || schema.Maximum == nil {
		g.problem(p, "there is no minimum, or no maximum")
		return
	}
	least, most := int64(*schema.Minimum), int64(*schema.Maximum)
	g.add(p, fmt.Sprintf("%d, the minimum", least), least, false)
	g.add(p, fmt.Sprintf("%d, the maximum", most), most, false)
	g.add(p, fmt.Sprintf("%d, below the minimum", least-1), least-1, true)
	g.add(p, fmt.Sprintf("%d, above the maximum", most+1), most+1, true)
	if n, ok := has.(int64); ok {
		for _, next := range []int64{n - 1, n + 1} {
			if least < next && next < most {
				g.add(p, fmt.Sprint(next), next, false)
			}
		}
	}
}

func (g *generator) text(schema apiextensionsv1.JSONSchemaProps, p place) {
	by := g.by[p.field]
	for _, value := range schema.Enum {
		by.Right = append(slices.Clone(by.Right), strings.Trim(string(value.Raw), `"`))
	}
	if len(schema.Enum) > 0 {
		by.Wrong = append(slices.Clone(by.Wrong), "Nonesuch", "")
	}
	if len(by.Right) == 0 {
		g.problem(p, "no values are known for this field")
	}
	for i, value := range slices.Concat(by.Right, by.Wrong) {
		g.add(p, fmt.Sprintf("%.60q", value), value, i >= len(by.Right))
	}
	if schema.MaxLength != nil {
		g.add(p, "too long", strings.Repeat("x", int(*schema.MaxLength)+1), true)
	}
}
