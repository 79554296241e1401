package output

import (
	"fmt"
	"math"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
)

// Age returns the time since t, as kubectl writes it.
func Age(now, t time.Time) string {
	if t.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(max(0, now.Sub(t)))
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

// Dash returns "-" in place of an empty cell.
func Dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// Fraction returns part/whole.
func Fraction(part, whole int) string { return fmt.Sprintf("%d/%d", part, whole) }

// Percent returns part of whole, rounded up; "-" if whole is 0.
func Percent(part, whole int) string {
	if whole == 0 {
		return "-"
	}
	return fmt.Sprintf("%d%%", int(math.Ceil(100*float64(part)/float64(whole))))
}

// Duration formats a duration without parts that are zero: 10m, not 10m0s.
func Duration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// Few names three, and counts the rest.
func Few(names []string) string {
	if len(names) <= 3 {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:3], ", "), len(names)-3)
}

// Many formats large counts, such as IPv6's, as powers of two.
func Many(n uint64) string {
	if n < 1<<20 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("2^%d", int(math.Log2(float64(n))))
}
