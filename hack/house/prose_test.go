package main

import (
	"fmt"
	"maps"
	"slices"
	"testing"
)

// most is the limit of noun clauses per 1,000 words. A short text may have one.
const most = 8

func TestProse(t *testing.T) {
	t.Chdir("../..")
	r, err := read()
	if err != nil {
		t.Fatal(err)
	}
	for _, place := range slices.Sorted(maps.Keys(r.prose)) {
		p := r.prose[place]
		if now := len(p.clauses); now > (p.words*most+999)/1000 {
			t.Errorf("%s has %d noun clauses in %d words, above %d per 1,000 (hack/house -sentences prints all):%s",
				place, now, p.words, most, list(p.clauses))
		}
	}
}

// list formats up to 30 clauses, a line each.
func list(clauses []clause) (lines string) {
	for _, c := range clauses[:min(len(clauses), 30)] {
		lines += fmt.Sprintf("\n  %s", c)
	}
	return lines
}

func TestSentences(t *testing.T) {
	const file = "package p\n\n// f is a function. It tells\n// how many\n// there are.\nfunc f() {}\n"
	r := &repository{product: newPart(), prose: map[string]*prose{}}
	if err := r.add("pkg/p/f.go", []byte(file)); err != nil {
		t.Fatal(err)
	}
	const sentence = "in: It tells how many there are."
	want := "\n  pkg/p/f.go:3: \"tells\" " + sentence + "\n  pkg/p/f.go:4: \"how many\" " + sentence
	if got := list(r.prose["pkg/p"].clauses); got != want {
		t.Error(got)
	}
}
