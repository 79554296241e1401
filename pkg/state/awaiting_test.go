package state

import (
	"testing"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
)

// A node that finds two pools exhausted is woken by either, and by no other.
func TestAwaiting(t *testing.T) {
	var a Awaiting
	pools := func(names ...string) (out []*crd.Pool) {
		for _, name := range names {
			out = append(out, &crd.Pool{Name: name})
		}
		return out
	}
	if !a.Add("n", pools("a")) || a.Add("n", pools("a")) || !a.Add("n", pools("a", "b")) {
		t.Error("a new pool is a change, and nothing else")
	}
	for pool, want := range map[string]int{"a": 1, "b": 1, "c": 0} {
		if got := a.For([]string{pool, "d"}); len(got) != want {
			t.Errorf("pool %s wakes %v", pool, got)
		}
	}
	a.Set("n", true, pools("b"))
	if len(a.For([]string{"a"})) > 0 || len(a.For([]string{"b"})) != 1 {
		t.Error("what it no longer lacks wakes it")
	}
	a.Set("n", false, pools("b"))
	if a.Has("n") {
		t.Error("it waits though it lacks nothing")
	}
	a.Add("n", nil)
	a.Forget("n")
	if a.Has("n") {
		t.Error("a forgotten node waits")
	}
}
