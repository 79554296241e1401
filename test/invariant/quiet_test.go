package invariant_test

import (
	"testing"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/google/go-cmp/cmp"

	"github.com/cilium-pool/cilium-pool-operator/test/invariant"
)

func TestQuiet(t *testing.T) {
	tests := map[string]struct {
		meanwhile func(w *world)
		want      []string
	}{
		"nothing": {meanwhile: func(*world) {}},
		"an agent reports": {meanwhile: func(w *world) {
			w.status("a", func(cn *ciliumv2.CiliumNode) { use(cn, "10.9.0.1", "default/x") })
		}},
		"a block is written": {
			meanwhile: func(w *world) { w.coolDown("10.9.0.0-30") },
			want:      []string{"8 PodIPBlock 10.9.0.0-30"},
		},
		"an address is marked": {
			meanwhile: func(w *world) { w.release("a", "10.9.0.1", "marked-for-release") },
			want:      []string{"8 CiliumNode a"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			checker := w.watch(invariant.Options{})
			end, err := checker.BeginQuiet(w.Ctx)
			w.Must(err)
			test.meanwhile(w)
			found, err := end(w.Ctx)
			w.Must(err)
			if diff := cmp.Diff(test.want, briefly(found)); diff != "" {
				t.Errorf("writes at rest (-want +got):\n%s", diff)
			}
		})
	}
}
