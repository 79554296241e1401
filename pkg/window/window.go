// Package window reports whether a maintenance window is open, and until when. It owns the joint
// meaning of a schedule, a duration and a time zone.
//
// It reads no clock, and it does not know the purpose of a window.
package window

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
	_ "time/tzdata" // the operator's image has no zones of its own

	"github.com/robfig/cron/v3"
)

// Bounds of a window's duration. Schedules are in whole minutes.
const (
	Shortest = time.Minute
	Longest  = 7 * 24 * time.Hour
)

// schedules and zones have the form that the CRDs ask for. The cron library and the file system
// accept more, such as two spaces, "+5", "1,,2" and Asia//Shanghai.
var (
	schedules = regexp.MustCompile(strings.ReplaceAll(`(?i)^(@[a-z]+|ITEM(,ITEM)*( ITEM(,ITEM)*){4})$`,
		"ITEM", `([*?]|[a-z0-9]+(-[a-z0-9]+)?)(/[0-9]+)?`))
	zones = regexp.MustCompile(`^([A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*)?$`)
)

// Window opens whenever its schedule says so, and closes after its duration.
type Window struct {
	// Schedule, Duration and Zone are what Parse was given.
	Schedule string
	Duration time.Duration
	Zone     string

	schedule *cron.SpecSchedule
}

// Parse reads a window: schedule is five fields of cron or one of its words,
// such as @daily; zone is a name of the tz database, "" for UTC.
//
// It refuses @every, which counts from whenever the process began, a zone within
// the schedule, which is an accident of the cron library (CronJobs refuse it too),
// schedules that no date meets, and what else the CRDs refuse: test/api compares both.
func Parse(schedule string, duration time.Duration, zone string) (Window, error) {
	if strings.Contains(schedule, "TZ=") {
		return Window{}, fmt.Errorf("schedule %q names a time zone: use timeZone", schedule)
	}
	parsed, err := cron.ParseStandard(schedule)
	if err != nil {
		return Window{}, fmt.Errorf("schedule %q is not cron's five fields (minute, hour, day of month, month, day of week): %w", schedule, err)
	}
	spec, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return Window{}, fmt.Errorf("schedule %q has no fixed times: write cron's five fields, as in 0 22 * * 1-5", schedule)
	}
	if len(schedule) > 128 || !schedules.MatchString(schedule) {
		return Window{}, fmt.Errorf("schedule %q is not plain: write at most 128 characters, one space between fields, and in these *, numbers, names, ranges as in a-b, steps as in a-b/n, and commas", schedule)
	}
	if duration < Shortest || duration > Longest {
		return Window{}, fmt.Errorf("duration is %s: must be from %s to %s", duration, Shortest, Longest)
	}
	if spec.Location, err = location(zone); err != nil {
		return Window{}, err
	}
	if spec.Next(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return Window{}, fmt.Errorf("schedule %q never comes", schedule)
	}
	return Window{schedule, duration, zone, spec}, nil
}

func location(zone string) (*time.Location, error) {
	if strings.EqualFold(zone, "local") {
		return nil, errors.New("timeZone cannot be Local, which differs from machine to machine: name a zone, as in Asia/Shanghai")
	}
	l, err := time.LoadLocation(zone)
	if err != nil || len(zone) > 64 || !zones.MatchString(zone) {
		return nil, fmt.Errorf("timeZone %q is not in the tz database: name a zone, as in Asia/Shanghai", zone)
	}
	return l, nil
}

// end is when the window closes that is open at t; zero where it is not open.
func (w Window) end(t time.Time) time.Time {
	opened := w.schedule.Next(t.Add(-w.Duration))
	if opened.IsZero() || opened.After(t) {
		return time.Time{}
	}
	return opened.Add(w.Duration)
}
