package plugin

import (
	"fmt"
	"math"
	"strings"
	"time"
)

func fraction(part, whole int) string { return fmt.Sprintf("%d/%d", part, whole) }

func percent(part, whole int) string {
	if whole == 0 {
		return "-"
	}
	return fmt.Sprintf("%d%%", int(math.Ceil(100*float64(part)/float64(whole))))
}

// inWords is a duration without parts that are zero: 10m, not 10m0s.
func inWords(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// few names three, and counts the rest.
func few(names []string) string {
	if len(names) <= 3 {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:3], ", "), len(names)-3)
}

// many writes large counts as powers of two, as those of IPv6 are.
func many(n uint64) string {
	if n < 1<<20 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("2^%d", int(math.Log2(float64(n))))
}
