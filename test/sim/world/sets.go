package world

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Each returns the single elements of a set.
func Each[T ~uint32](set T) (out []T) {
	for one := T(1); one != 0; one <<= 1 {
		if set&one != 0 {
			out = append(out, one)
		}
	}
	return out
}

// FormatSet returns the notation that ParseSet reads.
func FormatSet[T ~uint32](set T, names []string) string {
	var out []string
	for i, name := range names {
		if set&(1<<i) != 0 {
			out = append(out, name)
		}
	}
	return cmp.Or(strings.Join(out, ","), "none")
}

// ParseSet reads names separated by commas, "all" and "none".
func ParseSet[T ~uint32](s string, names []string) (set T, err error) {
	switch s {
	case "all":
		return 1<<len(names) - 1, nil
	case "", "none":
		return 0, nil
	}
	for part := range strings.SplitSeq(s, ",") {
		i := slices.Index(names, part)
		if i < 0 {
			return 0, fmt.Errorf("%q is unknown; there are %s", part, strings.Join(names, ","))
		}
		set |= 1 << i
	}
	return set, nil
}
