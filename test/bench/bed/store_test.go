package bed

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

// A world is used again only by the binaries that made it, and so are those that it is made
// from.
func TestWorldsAreOfTheBinariesThatMadeThem(t *testing.T) {
	made := 0
	s := &Store{Dir: t.TempDir(), Say: func(string, ...any) { made++ }}
	w := World{Mode: ClusterPool, Nodes: 2}
	for _, step := range []struct {
		about string
		want  int // worlds made: what all share, the nodes, and the CiliumNodes
	}{{"the first time", 3}, {"again", 0}, {"by another binary", 3}, {"again by the other", 0}} {
		made = 0
		if step.about == "by another binary" {
			s.made = "another"
		}
		if _, err := s.Make(t.Context(), w); err != nil {
			t.Fatal(err)
		}
		if made != step.want {
			t.Errorf("%s: %d worlds made, want %d", step.about, made, step.want)
		}
	}
}

// Worlds depend on the operator and on whether there is an installation, but not on the folder
// of the binaries.
func TestMaker(t *testing.T) {
	folder := func(operator string) string {
		dir := t.TempDir()
		harness.Must(t, os.WriteFile(filepath.Join(dir, "cilium-pool-operator"), []byte(operator), 0o600))
		return dir
	}
	install := func(context.Context, *Stage) error { return nil }
	want, err := (&Store{BinDir: folder("one")}).maker()
	harness.Must(t, err)
	tests := map[string]struct {
		store *Store
		same  bool
	}{
		"the same binaries": {&Store{BinDir: folder("one")}, true},
		"another operator":  {&Store{BinDir: folder("two")}, false},
		"no operator":       {&Store{BinDir: t.TempDir()}, false},
		"an installation":   {&Store{BinDir: folder("one"), Install: install}, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := test.store.maker()
			harness.Must(t, err)
			if (got == want) != test.same {
				t.Errorf("%q, while that of the first is %q", got, want)
			}
		})
	}
}
