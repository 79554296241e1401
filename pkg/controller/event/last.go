package event

import (
	"slices"
	"sync"
)

// Last is the last report about each object, so that none is repeated. It is safe for concurrent
// use.
type Last struct {
	mu sync.Mutex
	// notes are those about each object: one or a few, none of them empty.
	notes map[string][]note
}

type note struct{ topic, text string }

// Changed records a note on a topic about an object, "" for none, and reports whether it
// differs from the last one.
func (l *Last) Changed(name, topic, text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	notes := l.notes[name]
	i := slices.IndexFunc(notes, func(n note) bool { return n.topic == topic })
	switch {
	case i < 0 && text == "", i >= 0 && notes[i].text == text:
		return false
	case i < 0:
		notes = append(notes, note{topic, text})
	case text == "":
		notes = slices.Delete(notes, i, i+1)
	default:
		notes[i].text = text
	}
	l.set(name, notes)
	return true
}

// Text returns the last note on a topic about an object; "": none.
func (l *Last) Text(name, topic string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, n := range l.notes[name] {
		if n.topic == topic {
			return n.text
		}
	}
	return ""
}

func (l *Last) set(name string, notes []note) {
	if len(notes) == 0 {
		delete(l.notes, name)
		return
	}
	if l.notes == nil {
		l.notes = map[string][]note{}
	}
	l.notes[name] = notes
}

// Forget drops the notes about an object that is gone.
func (l *Last) Forget(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.notes, name)
}
