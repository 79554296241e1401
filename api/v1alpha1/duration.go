package v1alpha1

import (
	"fmt"
	"regexp"
	"time"
)

// Duration is a length of time as GEP-2257 writes it: one to four whole numbers of
// up to five digits, each with the unit h, m, s or ms, as in 90s, 1m or 1h30m. It
// stays as it was written.
type Duration string

// durationFormat is that of GEP-2257. The CRDs have the same.
const durationFormat = `^([0-9]{1,5}(h|m|s|ms)){1,4}$`

// NewDuration writes d, rounded down to whole milliseconds. It writes durations
// from 0 to 99999h.
func NewDuration(d time.Duration) Duration {
	if d < time.Millisecond {
		return "0s"
	}
	s := ""
	for _, unit := range []struct {
		length time.Duration
		name   string
	}{{time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}, {time.Millisecond, "ms"}} {
		if n := d / unit.length; n > 0 {
			s += fmt.Sprintf("%d%s", n, unit.name)
			d -= n * unit.length
		}
	}
	return Duration(s)
}

// Parse reads d.
func (d Duration) Parse() (time.Duration, error) {
	if !regexp.MustCompile(durationFormat).MatchString(string(d)) {
		return 0, fmt.Errorf("is not a duration in whole h, m, s or ms: write it like 90s, 1m or 1h30m")
	}
	return time.ParseDuration(string(d))
}
