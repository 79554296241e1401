package window

import (
	"testing"
	"time"
)

// FuzzWindow asks any window at any time. It must be open exactly if its schedule comes within the
// duration before, and its state must last until the time that it tells.
func FuzzWindow(f *testing.F) {
	f.Add("0 22 * * mon-fri", int64(6*60), "Asia/Shanghai", int64(1_772_500_000))
	f.Add("@daily", int64(24*60), "", int64(0))
	f.Add("*/10 0-23/2 01,15-31/7 JAN-mar,12 ?", int64(1), "Europe/Berlin", int64(1_774_746_000))
	f.Add("0 0 29 2 *", int64(7*24*60), "America/St_Johns", int64(4_000_000_000))
	f.Add("TZ=UTC 0 0 * * *", int64(1), "Local", int64(-1))
	f.Fuzz(func(t *testing.T, schedule string, minutes int64, zone string, at int64) {
		if minutes < 0 || minutes > 7*24*60 || at < 0 || at > 1<<33 {
			return
		}
		w, err := Parse(schedule, time.Duration(minutes)*time.Minute, zone)
		if err != nil {
			return
		}
		now := time.Unix(at, 0)
		opened := w.schedule.Next(now.Add(-w.Duration))
		got := NewSet(w).At(now)
		if want := !opened.IsZero() && !opened.After(now); got.Open != want {
			t.Fatalf("%v is %+v at %s, and came at %s", w, got, now, opened)
		}
		if got.Until.IsZero() {
			if got.Open {
				t.Fatalf("%v never closes", w)
			}
			return
		}
		if !got.Until.After(now) {
			t.Fatalf("%v lasts until %s, at %s", w, got.Until, now)
		}
		if last := NewSet(w).At(got.Until.Add(-time.Nanosecond)); last.Open != got.Open {
			t.Errorf("%v is %+v at %s, and another before its end, %+v", w, got, now, last)
		}
		// An open set may be asked again before it closes: see foresight.
		if then := NewSet(w).At(got.Until); !got.Open && !then.Open {
			t.Errorf("%v does not open at %s", w, got.Until)
		}
	})
}
