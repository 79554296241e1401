package main

import (
	"go/parser"
	"go/token"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// top is the root of the repository.
const top = "../.."

// A mutant that does not compile prevents all others from running.
func TestMutantsCompile(t *testing.T) {
	code, err := readCode(top)
	if err != nil {
		t.Fatal(err)
	}
	mutants, err := readMutants(top, code)
	if err != nil {
		t.Fatal(err)
	}
	overlay, err := weave(top, t.TempDir(), code, mutants)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("CGO_ENABLED", "0") // as make builds it, so that no dependency is compiled again
	// go build would compile the same packages, and then link each program.
	out, failed, err := command(t.Context(), top, "", "go", "list", "-export", "-f={{\"\"}}", "-trimpath", "-overlay", overlay, "./pkg/...", "./cmd/...")
	if err != nil || failed {
		t.Errorf("building with all mutants: %v\n%s", err, out)
	}
}

// Every edit of the list still applies to the code, and yields valid Go.
func TestMutantsApply(t *testing.T) {
	code, err := readCode(top)
	if err != nil {
		t.Fatal(err)
	}
	mutants, err := readMutants(top, code)
	if err != nil {
		t.Fatal(err)
	}
	names, changes := map[string]bool{}, map[string]string{}
	name := regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	for _, m := range mutants {
		t.Run(m.Name, func(t *testing.T) {
			if !name.MatchString(m.Name) || names[m.Name] {
				t.Error("the name is of another form, or there twice")
			}
			names[m.Name] = true
			if !slices.Contains([]string{"1", "2", "3", "4", "5", "6", "7", "8", "demand", "idle", "asked"}, m.Rule) {
				t.Errorf("no such rule: %q", m.Rule)
			}
			if m.Fault == "" || len(m.Fault) > 90 {
				t.Errorf("the fault has %d letters; want 1 to 90", len(m.Fault))
			}
			var change []string
			for f, text := range m.functions {
				change = append(change, f.file+" "+text)
				if text == f.text {
					t.Errorf("%s stays as it is", f.symbol)
				}
				if _, err := parser.ParseFile(token.NewFileSet(), f.file, "package "+f.pkg+"\n"+text, 0); err != nil {
					t.Errorf("what comes out is not Go: %v", err)
				}
			}
			slices.Sort(change)
			if other, twice := changes[strings.Join(change, "\n")]; twice {
				t.Errorf("the same as %s", other)
			}
			changes[strings.Join(change, "\n")] = m.Name
		})
	}
	key := 0
	for _, m := range mutants {
		if m.Key {
			key++
		}
	}
	if key < 43 {
		t.Errorf("%d key guards have a mutant; want at least 43", key)
	}
}

func TestPlant(t *testing.T) {
	c := &code{map[string][]*function{}, map[string]string{}}
	for file, src := range map[string]string{
		"one/x.go": "package one\n\ntype t[k any] int\n\nfunc (x *t[k]) a() {\n\tb(c)\n\td(d)\n}\n\nfunc e() { b(c) }\n",
		"two/y.go": "package two\n\nfunc e() { f() }\n",
	} {
		if err := c.add(file, src); err != nil {
			t.Fatal(err)
		}
	}
	tests := map[string]struct {
		m    mutant
		want []string
		err  string
	}{
		"over lines, of a method":  {m: mutant{edit: edit{In: "t.a", Old: "{ b(c)", New: "{ g()"}}, want: []string{"func (x *t[k]) a() { g()\n\td(d)\n}"}},
		"two edits of a function":  {m: mutant{edit: edit{In: "t.a", Old: "b(", New: "g("}, Also: []edit{{Old: "d(d)", New: ""}}}, want: []string{"func (x *t[k]) a() {\n\tg(c)\n\t\n}"}},
		"two functions":            {m: mutant{edit: edit{In: "t.a", Old: "b(c)", New: ""}, Also: []edit{{In: "two.e", Old: "f()", New: ""}}}, want: []string{"func (x *t[k]) a() {\n\t\n\td(d)\n}", "func e() {  }"}},
		"no such function":         {m: mutant{edit: edit{In: "t.b", Old: "b", New: "e"}}, err: "no function is called t.b"},
		"a function of two":        {m: mutant{edit: edit{In: "e", Old: "b", New: "e"}}, err: "ambiguous: one.e in one/x.go, two.e in two/y.go"},
		"not in the function":      {m: mutant{edit: edit{In: "t.a", Old: "b (c)", New: "e"}}, err: "0 times"},
		"twice in it":              {m: mutant{edit: edit{In: "t.a", Old: "d", New: "e"}}, err: "2 times"},
		"only in another function": {m: mutant{edit: edit{In: "one.e", Old: "f()", New: ""}}, err: "0 times"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			err := test.m.plant(c)
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("got %v; want %q", err, test.err)
				}
				return
			}
			got := slices.Sorted(maps.Values(test.m.functions))
			if err != nil || !slices.Equal(got, test.want) {
				t.Errorf("got %q, %v; want %q", got, err, test.want)
			}
		})
	}
}
