package bed

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

// A world is used again only by the binaries that made it.
func TestWorldsAreOfTheBinariesThatMadeThem(t *testing.T) {
	made := 0
	s := &Store{Dir: t.TempDir(), Say: func(string, ...any) { made++ }}
	w := World{Mode: ClusterPool, Nodes: 2}
	for _, step := range []struct {
		about string
		want  int // worlds made: what all share, the nodes, and the CiliumNodes
	}{{"the first time", 3}, {"again", 0}, {"by another binary", 1}} {
		made = 0
		if step.about == "by another binary" {
			harness.Must(t, os.WriteFile(filepath.Join(s.Dir, "worlds", w.Key(), doneFile), []byte("another"), 0o600))
		}
		if _, err := s.Make(t.Context(), w); err != nil {
			t.Fatal(err)
		}
		if made != step.want {
			t.Errorf("%s: %d worlds made, want %d", step.about, made, step.want)
		}
	}
}
