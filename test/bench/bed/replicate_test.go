package bed

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cilium-pool/cilium-pool-operator/test/controlplane/gateway"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

// Copies of the first node's objects equal the objects that the API server stores for writes of
// every object. UIDs are not compared: if a block had the UID of another node, the
// operator would find work in that world, and settle would fail.
func TestReplicasAreWhatTheAPIServerStores(t *testing.T) {
	for name, w := range map[string]World{
		"crd mode, pods":             {Mode: CRD, Nodes: 5, Blocks: 2, Used: 35, Pods: 35, Agents: true},
		"multi-pool mode":            {Mode: OwnMultiPool, Nodes: 41, Blocks: 3, Used: 4},
		"Cilium's cluster-pool mode": {Mode: ClusterPool, Nodes: 41, Blocks: 1, Used: 4},
		"Cilium's multi-pool mode":   {Mode: MultiPool, Nodes: 41, Blocks: 2, Used: 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			replicated, written := newStage(t), newStage(t)
			harness.Must(t, w.populateCluster(t.Context(), replicated))
			harness.Must(t, w.populate(t.Context(), replicated))
			for i := range w.Nodes {
				harness.Must(t, w.addNode(t.Context(), written.Client, i))
				harness.Must(t, w.addOfMode(t.Context(), written.Client, i))
			}
			want, got := stored(t, written), stored(t, replicated)
			if a, b := slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)); !slices.Equal(a, b) {
				t.Fatalf("%d keys, want %d:\n%q\n%q", len(a), len(b), a, b)
			}
			for key := range want {
				if !reflect.DeepEqual(got[key], want[key]) {
					t.Fatalf("%s is\n%v\nwant\n%v", key, got[key], want[key])
				}
			}
		})
	}
}

func newStage(t *testing.T) *Stage {
	t.Helper()
	st, err := (&Store{}).start(t.Context(), t.TempDir())
	harness.Must(t, err)
	t.Cleanup(func() { harness.Must(t, st.Close()) })
	return st
}

// varying are the texts that two API servers store differently: times, and UIDs other than the boot ID.
var varying = regexp.MustCompile(`\d{4}-\d\d-\d\dT[\d:]+Z|[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}`)

// stored returns the objects that etcd has, without UIDs and times.
func stored(t *testing.T, st *Stage) map[string]any {
	t.Helper()
	out := map[string]any{}
	for _, prefix := range []string{gateway.Nodes, gateway.Pods, gateway.CiliumNodes, gateway.Blocks} {
		all, err := st.etcd().Range(t.Context(), prefix)
		harness.Must(t, err)
		for _, kv := range all {
			object, err := newTemplate(kv)
			harness.Must(t, err)
			encoded, err := object.encode(object.text)
			harness.Must(t, err)
			if !bytes.Equal(encoded, kv.Value) {
				t.Errorf("%s is encoded as\n%q\nwant\n%q", kv.Key, encoded, kv.Value)
			}
			var value any
			harness.Must(t, json.Unmarshal([]byte(varying.ReplaceAllStringFunc(object.text, func(s string) string {
				if strings.HasPrefix(s, bootID(0)[:24]) {
					return s
				}
				return "varies"
			})), &value))
			out[object.key] = value
		}
	}
	return out
}
