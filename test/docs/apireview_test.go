package docs

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/crds"
)

const reviewPage = "docs/api-review.md"

// Each field has an answer in the API review, or belongs to a struct that has one as a whole.
func TestAPIReview(t *testing.T) {
	definitions, err := crds.All()
	if err != nil {
		t.Fatal(err)
	}
	page := read(t, reviewPage)
	for _, d := range definitions {
		_, section, ok := strings.Cut(page, "\n## "+d.Spec.Names.Kind+"\n")
		if !ok {
			t.Errorf("%s has no section %s", reviewPage, d.Spec.Names.Kind)
			continue
		}
		section, _, _ = strings.Cut(section, "\n## ")
		fields := d.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties
		for _, name := range []string{"apiVersion", "kind", "metadata"} {
			delete(fields, name)
		}
		for _, path := range reviewed(section).lacks("", fields) {
			t.Errorf("%s says nothing of %s of a %s", reviewPage, path, d.Spec.Names.Kind)
		}
	}
}

// rows are the fields that the first column of a table names: as a path, as the end of one
// (.blockSize), or with .* for all fields of a struct.
type rows []string

func reviewed(section string) rows {
	var out rows
	for line := range strings.Lines(section) {
		if cell, _, ok := strings.Cut(strings.TrimPrefix(line, "| "), " | "); ok && strings.HasPrefix(line, "| ") {
			for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cell, -1) {
				out = append(out, m[1])
			}
		}
	}
	return out
}

func (r rows) has(path string) bool {
	return slices.ContainsFunc(r, func(row string) bool {
		all, wild := strings.CutSuffix(row, "*")
		return path == row || row[0] == '.' && strings.HasSuffix(path, row) || wild && strings.HasPrefix(path, all)
	})
}

// lacks returns the paths of fields without a row, sorted. A struct's row covers all its
// fields, unless one of them has its own.
func (r rows) lacks(parent string, fields map[string]apiextensionsv1.JSONSchemaProps) []string {
	var out []string
	for name, field := range fields {
		path := parent + name
		if field.Items != nil && field.Items.Schema != nil {
			field = *field.Items.Schema
			path += "[]"
		}
		each := slices.ContainsFunc(slices.Collect(maps.Keys(field.Properties)), func(child string) bool {
			return r.has(path+"."+child) || r.has(path+"."+child+"[]")
		})
		switch {
		case each || !r.has(path) && len(field.Properties) > 0:
			out = append(out, r.lacks(path+".", field.Properties)...)
		case !r.has(path):
			out = append(out, path)
		}
	}
	slices.Sort(out)
	return out
}

func TestReviewedRows(t *testing.T) {
	field := apiextensionsv1.JSONSchemaProps{}
	with := func(names ...string) apiextensionsv1.JSONSchemaProps {
		s := apiextensionsv1.JSONSchemaProps{Properties: map[string]apiextensionsv1.JSONSchemaProps{}}
		for _, name := range names {
			s.Properties[name] = field
		}
		return s
	}
	fields := map[string]apiextensionsv1.JSONSchemaProps{"a": with("b", "c"), "d": with("e", "f"), "g": with("h"), "i": field, "j": with("k", "l")}
	r := reviewed("| field | why |\n| --- | --- |\n| `a`, `a.b` | |\n| `d` | |\n| `g.*` | |\n| `.k` | |\n")
	if got := r.lacks("", fields); !slices.Equal(got, []string{"a.c", "i", "j.l"}) {
		t.Errorf("lacks %v", got)
	}
}
