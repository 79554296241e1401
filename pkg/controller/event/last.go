package event

import (
	"sync"
)

// Last is what was last reported about each object, so that nothing is reported twice.
// It is safe for concurrent use.
type Last struct {
	mu    sync.Mutex
	notes map[string]map[string]string // by name and topic
}

// Changed records a note on a topic about an object, "" for none, and reports whether it
// differs from the last one.
func (l *Last) Changed(name, topic, note string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch last := l.notes[name][topic]; {
	case last == note:
		return false
	case note == "":
		delete(l.notes[name], topic)
		return true
	case l.notes == nil:
		l.notes = map[string]map[string]string{}
	}
	if l.notes[name] == nil {
		l.notes[name] = map[string]string{}
	}
	l.notes[name][topic] = note
	return true
}

// Forget drops the notes about an object that is gone.
func (l *Last) Forget(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.notes, name)
}
