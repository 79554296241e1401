package suggest

import (
	"testing"
)

func TestAlike(t *testing.T) {
	nodes := []string{"edge-01", "edge-02", "edge-11", "storage-1"}
	for name, want := range map[string]string{
		"edge-1":   ". Did you mean edge-01 or edge-11?",
		"Edge-02":  ". Did you mean edge-02 or edge-01?",
		"storage":  ". Did you mean storage-1?",
		"egde-11":  ". Did you mean edge-11?",
		"nonsense": "",
	} {
		if got := DidYouMean(name, nodes); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if got := Few([]string{"a", "b", "c", "d"}); got != "a, b, c and 1 more" {
		t.Errorf("few are %q", got)
	}
	if got := OneOf([]string{"a", "b", "c"}); got != "a, b or c" {
		t.Errorf("one of %q", got)
	}
}
