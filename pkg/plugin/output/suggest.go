package output

import (
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

// DidYouMean returns the names most similar to one that does not exist, as the end of a
// message; "": none is similar.
func DidYouMean(name string, names []string) string {
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
	if len(near) == 0 {
		return ""
	}
	slices.SortFunc(near, func(a, b candidate) int {
		if a.far != b.far {
			return a.far - b.far
		}
		return strings.Compare(a.name, b.name)
	})
	var out []string
	for _, c := range near[:min(3, len(near))] {
		out = append(out, c.name)
	}
	return ". Did you mean " + OneOf(out) + "?"
}

// distance returns how many letters must be inserted, deleted or replaced (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		last := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := last
			if a[i] != b[j] {
				change++
			}
			last = row[j+1]
			row[j+1] = min(change, last+1, row[j]+1)
		}
	}
	return row[len(b)]
}
