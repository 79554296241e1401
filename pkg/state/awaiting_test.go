package state

import (
	"testing"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
)

// A node that finds two pools exhausted is woken by either of them, and by no other pool.
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
		if got := a.Wake([]string{pool, "d"}); len(got) != want {
			t.Errorf("pool %s wakes %v", pool, got)
		}
		a.Looks("n")
	}
	a.Set("n", true, pools("b"))
	if len(a.Wake([]string{"a"})) > 0 || len(a.Wake([]string{"b"})) != 1 {
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

// However much is freed, a node is woken once until it looks. After that it is woken again,
// whether or not it has found anything.
func TestAwaitingWakesOnce(t *testing.T) {
	waits := []*crd.Pool{{Name: "a"}, {Name: "b"}}
	for name, test := range map[string]struct {
		between func(a *Awaiting) // two wake-ups
		want    int
	}{
		"nothing":                   {func(*Awaiting) {}, 0},
		"another one looks":         {func(a *Awaiting) { a.Looks("m") }, 0},
		"it looks":                  {func(a *Awaiting) { a.Looks("n") }, 1},
		"it looks, and still lacks": {func(a *Awaiting) { a.Looks("n"); a.Set("n", true, waits) }, 1},
		"it looks, and has enough":  {func(a *Awaiting) { a.Looks("n"); a.Set("n", false, waits) }, 0},
		"it still lacks":            {func(a *Awaiting) { a.Set("n", true, waits) }, 1},
		"it finds a pool exhausted": {func(a *Awaiting) { a.Add("n", waits[1:]) }, 1},
		"it is gone, and looks":     {func(a *Awaiting) { a.Forget("n"); a.Looks("n") }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var a Awaiting
			a.Add("n", waits)
			if got := a.Wake([]string{"a", "b"}); len(got) != 1 {
				t.Fatalf("wakes %v", got)
			}
			test.between(&a)
			if got := a.Wake([]string{"b"}); len(got) != test.want {
				t.Errorf("wakes %v then, want %d", got, test.want)
			}
			if a.Forget("n"); len(a.byNode)+len(a.byPool)+len(a.wakes) > 0 {
				t.Errorf("forgotten, it leaves %v, %v and %v", a.byNode, a.byPool, a.wakes)
			}
		})
	}
}
