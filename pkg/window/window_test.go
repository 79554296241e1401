package window

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// parseTime reads "Fri 21:59" in the week that begins with Monday, 2 March 2026, UTC.
func parseTime(t testing.TB, s string) time.Time {
	t.Helper()
	days := map[string]int{"Mon": 2, "Tue": 3, "Wed": 4, "Thu": 5, "Fri": 6, "Sat": 7, "Sun": 8, "Next": 9}
	day, clock, _ := strings.Cut(s, " ")
	c, err := time.Parse("15:04:05", clock)
	if err != nil || days[day] == 0 {
		t.Fatalf("bad time %q: %v", s, err)
	}
	return time.Date(2026, 3, days[day], c.Hour(), c.Minute(), c.Second(), 0, time.UTC)
}

func parse(t testing.TB, schedule string, d time.Duration, zone string) Window {
	t.Helper()
	w, err := Parse(schedule, d, zone)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestAt(t *testing.T) {
	nightly := parse(t, "0 22 * * mon-fri", 6*time.Hour, "")
	shanghai := parse(t, "0 22 * * *", 2*time.Hour, "Asia/Shanghai")
	saturday := parse(t, "0 0 * * 6", 24*time.Hour, "")
	hourly := parse(t, "@hourly", time.Hour, "")
	tests := map[string]struct {
		set   *Set
		now   string
		open  bool
		until string // "": forever
	}{
		"no windows requested":          {nil, "Mon 12:00:00", true, ""},
		"no window that can be used":    {NewSet(), "Mon 12:00:00", false, ""},
		"before":                        {NewSet(nightly), "Mon 21:59:59", false, "Mon 22:00:00"},
		"the first instant":             {NewSet(nightly), "Mon 22:00:00", true, "Tue 04:00:00"},
		"past midnight":                 {NewSet(nightly), "Tue 03:59:59", true, "Tue 04:00:00"},
		"the last instant is over":      {NewSet(nightly), "Tue 04:00:00", false, "Tue 22:00:00"},
		"over the weekend":              {NewSet(nightly), "Sat 12:00:00", false, "Next 22:00:00"},
		"of another zone":               {NewSet(shanghai), "Mon 14:00:00", true, "Mon 16:00:00"},
		"of another zone, before":       {NewSet(shanghai), "Mon 13:00:00", false, "Mon 14:00:00"},
		"two that overlap are one":      {NewSet(nightly, saturday), "Fri 23:00:00", true, "Sun 00:00:00"},
		"of two the next":               {NewSet(nightly, shanghai), "Mon 12:00:00", false, "Mon 14:00:00"},
		"closed between two of a night": {NewSet(nightly, shanghai), "Mon 16:00:00", false, "Mon 22:00:00"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			want := State{Open: test.open}
			if test.until != "" {
				want.Until = parseTime(t, test.until)
			}
			got := test.set.At(parseTime(t, test.now))
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
	t.Run("windows that meet for ever are checked again", func(t *testing.T) {
		for _, now := range []string{"Mon 12:30:00", "Mon 13:00:00"} { // the docs name it for "always"
			got := NewSet(hourly).At(parseTime(t, now))
			if !got.Open || got.Until.Sub(parseTime(t, now)) < foresight {
				t.Errorf("%s: got %+v", now, got)
			}
		}
	})
}

// TestDaylightSaving: 2026-03-29 the clocks of Berlin went from 02:00 to 03:00.
// A window of three hours is three hours long all the same.
func TestDaylightSaving(t *testing.T) {
	set := NewSet(parse(t, "0 1 * * *", 3*time.Hour, "Europe/Berlin"))
	opened := time.Date(2026, 3, 29, 0, 0, 0, 0, time.UTC)
	if got := set.At(opened.Add(-time.Second)); got.Open || !got.Until.Equal(opened) {
		t.Errorf("before: %+v", got)
	}
	if got := set.At(opened); !got.Open || !got.Until.Equal(opened.Add(3*time.Hour)) {
		t.Errorf("open: %+v", got)
	}
	if got := set.At(opened.Add(3 * time.Hour)); got.Open || !got.Until.Equal(time.Date(2026, 3, 29, 23, 0, 0, 0, time.UTC)) {
		t.Errorf("after, the next one is an hour earlier: %+v", got)
	}
}

// TestAgainstMinutes holds random sets to a table of minutes: a minute is open
// when the schedule was met within the duration before it.
func TestAgainstMinutes(t *testing.T)     { againstMinutes(t, 12) }
func TestLongAgainstMinutes(t *testing.T) { againstMinutes(t, 60) }

func againstMinutes(t *testing.T, seeds int) {
	t.Helper()
	const days = 5
	start := parseTime(t, "Mon 00:00:00")
	for seed := range seeds {
		r := rand.New(rand.NewPCG(uint64(seed), 0))
		var windows []Window
		open := make([]bool, days*24*60)
		for range 1 + r.IntN(3) {
			minute, hour, length := r.IntN(60), r.IntN(24), 1+r.IntN(300)
			spec := strings.NewReplacer("M", itoa(minute), "H", itoa(hour)).Replace("M H * * *")
			windows = append(windows, parse(t, spec, time.Duration(length)*time.Minute, ""))
			for day := -1; day < days; day++ {
				for m := range length {
					if i := day*24*60 + hour*60 + minute + m; i >= 0 && i < len(open) {
						open[i] = true
					}
				}
			}
		}
		set, fresh := NewSet(windows...), func() *Set { return NewSet(windows...) }
		for i := range open[:(days-2)*24*60] {
			now := start.Add(time.Duration(i) * time.Minute)
			got := set.At(now)
			if want := fresh().At(now); want != got {
				t.Fatalf("seed %d, minute %d: what is remembered is wrong:\n%s", seed, i, cmp.Diff(want, got))
			}
			turn := i
			for turn < len(open) && open[turn] == open[i] {
				turn++
			}
			if got.Open != open[i] || turn < len(open) && !got.Until.Equal(start.Add(time.Duration(turn)*time.Minute)) {
				t.Fatalf("seed %d, minute %d: got %+v, want %t until minute %d", seed, i, got, open[i], turn)
			}
		}
	}
}

func itoa(n int) string {
	return string([]byte{byte('0' + n/10), byte('0' + n%10)})
}

func TestParseRefuses(t *testing.T) {
	tests := map[string]struct {
		schedule string
		duration time.Duration
		zone     string
		want     string
	}{
		"empty":             {"", time.Hour, "", "is not cron's five fields"},
		"six fields":        {"0 0 22 * * *", time.Hour, "", "is not cron's five fields"},
		"two spaces":        {"0  22 * * *", time.Hour, "", "one space between fields"},
		"a sign":            {"+5 22 * * *", time.Hour, "", "is not plain"},
		"an empty item":     {"1,,2 22 * * *", time.Hour, "", "is not plain"},
		"a range of all":    {"*-5 22 * * *", time.Hour, "", "is not plain"},
		"too many letters":  {strings.Repeat("1,", 60) + "1 22 * * *", time.Hour, "", "at most 128 characters"},
		"a folder twice":    {"0 22 * * *", time.Hour, "Asia//Shanghai", "is not in the tz database"},
		"no such hour":      {"0 24 * * *", time.Hour, "", "is not cron's five fields"},
		"every":             {"@every 1h", time.Hour, "", "has no fixed times"},
		"a zone within":     {"TZ=Asia/Shanghai 0 22 * * *", time.Hour, "", "use timeZone"},
		"a zone and no end": {"CRON_TZ=0", time.Hour, "", "use timeZone"},
		"never":             {"0 0 30 2 *", time.Hour, "", "never comes"},
		"too short":         {"0 22 * * *", time.Second, "", "must be from 1m0s to 168h0m0s"},
		"too long":          {"0 22 * * *", 169 * time.Hour, "", "must be from 1m0s to 168h0m0s"},
		"no such zone":      {"0 22 * * *", time.Hour, "Asia/Peking", "is not in the tz database"},
		"local":             {"0 22 * * *", time.Hour, "Local", "differs from machine to machine"},
		"a path":            {"0 22 * * *", time.Hour, "../etc/passwd", "is not in the tz database"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := Parse(test.schedule, test.duration, test.zone)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
	for _, good := range []string{"@daily", "*/5 1,2 * * mon-fri", "0 0 29 2 *", "*/10 0-23/2 01,15-31/7 JAN-mar,12 ?"} {
		if _, err := Parse(good, time.Hour, "UTC"); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
}
