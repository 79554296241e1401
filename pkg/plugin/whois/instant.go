package whois

import (
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/exit"
)

// parseInstant parses a time in the past as users write it: with a zone, in the zone of now
// (without a day: within the last 24 hours), or as how long ago.
func parseInstant(s string, now time.Time) (time.Time, error) {
	at, ok := readInstant(s, now)
	switch {
	case !ok:
		return at, exit.Usagef("--at is %s: must be a time such as 14:05, 2026-11-20 14:05 or 2026-11-20T14:05:00Z, or how long ago, such as 90m", s)
	case at.After(now):
		return at, exit.Usagef("--at is %s, which is yet to come", s)
	}
	return at, nil
}

func readInstant(s string, now time.Time) (time.Time, bool) {
	if at, err := time.Parse(time.RFC3339, s); err == nil {
		return at, true
	}
	for _, layout := range []string{time.DateTime, "2006-01-02 15:04"} {
		if at, err := time.ParseInLocation(layout, s, now.Location()); err == nil {
			return at, true
		}
	}
	for _, layout := range []string{time.TimeOnly, "15:04"} {
		if t, err := time.Parse(layout, s); err == nil {
			day := func(d int) time.Time {
				return time.Date(now.Year(), now.Month(), d, t.Hour(), t.Minute(), t.Second(), 0, now.Location())
			}
			if at := day(now.Day()); !at.After(now) {
				return at, true
			}
			return day(now.Day() - 1), true
		}
	}
	if ago, err := time.ParseDuration(s); err == nil {
		return now.Add(-ago), true
	}
	return time.Time{}, false
}

// instant formats a time in the local time zone.
func instant(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05 MST") }
