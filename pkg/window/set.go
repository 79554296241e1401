package window

import (
	"sync/atomic"
	"time"
)

// foresight is the time that a set looks ahead for its next close. A window open for longer is
// checked again by then.
const foresight = 8 * 24 * time.Hour

// Set is a set of windows. It is open while any of them is. The nil Set is always open, one
// without windows never. It is safe for concurrent use.
type Set struct {
	windows []Window
	last    atomic.Pointer[span]
}

// span is the last result, and since when it is valid.
type span struct {
	start time.Time
	State
}

// State is whether a Set is open, and until when that is known to last. Until is zero if it
// lasts forever.
type State struct {
	Open  bool
	Until time.Time
}

// NewSet returns a Set of windows.
func NewSet(windows ...Window) *Set { return &Set{windows: windows} }

// Windows returns the windows of the set.
func (s *Set) Windows() []Window {
	if s == nil {
		return nil
	}
	return s.windows
}

// At reports whether a window is open at now.
func (s *Set) At(now time.Time) State {
	if s == nil {
		return State{Open: true}
	}
	if last := s.last.Load(); last != nil && !now.Before(last.start) && now.Before(last.Until) {
		return last.State
	}
	found := s.find(now)
	s.last.Store(&span{now, found})
	return found
}

func (s *Set) find(now time.Time) State {
	end := s.end(now)
	if end.IsZero() {
		return State{Until: s.next(now)}
	}
	// Windows that touch or overlap count as one.
	for later := s.end(end); !later.IsZero() && end.Sub(now) < foresight; later = s.end(end) {
		end = later
	}
	return State{Open: true, Until: end}
}

// end returns the last close of the windows open at t; zero: none is open.
func (s *Set) end(t time.Time) time.Time {
	var last time.Time
	for _, w := range s.windows {
		if end := w.end(t); end.After(last) {
			last = end
		}
	}
	return last
}

// next returns when a window opens after t; zero: none does within the five years that the cron
// library looks ahead.
func (s *Set) next(t time.Time) time.Time {
	var first time.Time
	for _, w := range s.windows {
		if opens := w.schedule.Next(t); !opens.IsZero() && (first.IsZero() || opens.Before(first)) {
			first = opens
		}
	}
	return first
}
