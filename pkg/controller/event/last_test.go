package event

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// A note is news if it differs from the last one on its topic about that object.
func TestLastAgainstMap(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var last Last
	want := map[[2]string]string{}
	for i := range 3000 {
		name, topic, text := fmt.Sprint("n", r.IntN(3)), fmt.Sprint("topic", r.IntN(3)), []string{"", "a", "b"}[r.IntN(3)]
		if r.IntN(20) == 0 {
			last.Forget(name)
			for topic := range 3 {
				delete(want, [2]string{name, fmt.Sprint("topic", topic)})
			}
		}
		key := [2]string{name, topic}
		if got, news := last.Changed(name, topic, text), text != want[key]; got != news {
			t.Fatalf("step %d: %q on %s about %s after %q: news is %t", i, text, topic, name, want[key], got)
		}
		want[key] = text
	}
	for name := range 3 {
		for topic := range 3 {
			last.Changed(fmt.Sprint("n", name), fmt.Sprint("topic", topic), "")
		}
	}
	if len(last.notes) > 0 {
		t.Errorf("without notes, it keeps %v", last.notes)
	}
}
