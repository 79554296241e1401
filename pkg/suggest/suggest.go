// Package suggest names and counts objects: a few of many, or those that somebody may have meant. It does not know the named objects.
package suggest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// OneOf lists the possible values of a flag.
func OneOf(names []string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]
}

// Few names three, and counts the rest.
func Few(names []string) string { return First(3, names) }

// First names so many, and counts the rest.
func First(n int, names []string) string { return FirstBy(", ", n, names) }

// Sentences repeats the first few sentences, and counts the rest.
func Sentences(sentences []string) string { return FirstBy("; ", 5, sentences) }

// FirstBy names so many, with a separator, and counts the rest.
func FirstBy(separator string, n int, names []string) string {
	if len(names) > n {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:n], separator), len(names)-n)
	}
	return strings.Join(names, separator)
}

// Count returns "1 block" or "2 blocks".
func Count(n int, one string) string { return Plural(n, one, one+"s") }

// Plural returns "1 address" or "2 addresses".
func Plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// DidYouMean returns the names most similar to an unknown one, as the end of a message; "": none is
// similar.
func DidYouMean(name string, names []string) string {
	if near := Similar(name, names); len(near) > 0 {
		return ". Did you mean " + OneOf(near) + "?"
	}
	return ""
}

// Similar returns up to three names that are similar to an unknown one, the most similar first.
func Similar(name string, names []string) []string {
	type candidate struct {
		name string
		far  int
	}
	var near []candidate
	for _, n := range names {
		far := distance(strings.ToLower(name), strings.ToLower(n))
		if far <= max(1, len(name)/4) || strings.Contains(n, name) {
			near = append(near, candidate{n, far})
		}
	}
	slices.SortFunc(near, func(a, b candidate) int { return cmp.Or(a.far-b.far, strings.Compare(a.name, b.name)) })
	var out []string
	for _, c := range near[:min(3, len(near))] {
		out = append(out, c.name)
	}
	return out
}

// distance returns the number of letters that must be inserted, deleted, replaced, or swapped with
// the next one (optimal string alignment).
func distance(a, b string) int {
	d := make([][]int, len(a)+1)
	for i := range d {
		d[i] = make([]int, len(b)+1)
		for j := range d[i] {
			if i == 0 || j == 0 {
				d[i][j] = i + j
				continue
			}
			d[i][j] = min(d[i-1][j], d[i][j-1]) + 1
			if a[i-1] == b[j-1] {
				d[i][j] = min(d[i][j], d[i-1][j-1])
			} else {
				d[i][j] = min(d[i][j], d[i-1][j-1]+1)
			}
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d[i][j] = min(d[i][j], d[i-2][j-2]+1)
			}
		}
	}
	return d[len(a)][len(b)]
}
