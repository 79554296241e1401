package bed

import (
	"bytes"
	"context"
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

// Copies of the first node's objects are what the API server stores when every object is
// written through it, and the API server serves them.
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
			compareUIDs(t, served(t, replicated), len(want))
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

// varying are what two API servers store differently: times, and UIDs other than the boot ID.
var varying = regexp.MustCompile(`\d{4}-\d\d-\d\dT[\d:]+Z|[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}`)

// stored returns the objects that etcd has, without UIDs and times.
func stored(t *testing.T, st *Stage) map[string]any {
	t.Helper()
	out := map[string]any{}
	for _, prefix := range []string{gateway.Nodes, gateway.Pods, gateway.CiliumNodes, gateway.Blocks} {
		all, _, err := st.etcd().Range(t.Context(), prefix, 0, false)
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

// compareUIDs fails unless there are want objects, each with a UID of its own, and all
// references to a Node have the UID of that Node.
func compareUIDs(t *testing.T, objects []object, want int) {
	t.Helper()
	uids, ofNode := map[string]bool{}, map[string]string{}
	for _, o := range objects {
		uids[o.Metadata.UID] = true
		if o.path == Nodes {
			ofNode[o.Metadata.Name] = o.Metadata.UID
		}
	}
	if len(uids) != want {
		t.Errorf("the API server serves %d objects with different UIDs, want %d", len(uids), want)
	}
	references := 0
	for _, o := range objects {
		for _, owner := range o.Metadata.OwnerReferences {
			if references++; owner.UID == "" || owner.UID != ofNode[owner.Name] {
				t.Errorf("%s is owned by node %s with UID %q, which has %q", o.Metadata.Name, owner.Name, owner.UID, ofNode[owner.Name])
			}
		}
		if o.path != Blocks {
			continue
		}
		if references++; o.Spec.NodeUID == "" || o.Spec.NodeUID != ofNode[o.Spec.NodeName] {
			t.Errorf("block %s is of node %s with UID %q, which has %q", o.Metadata.Name, o.Spec.NodeName, o.Spec.NodeUID, ofNode[o.Spec.NodeName])
		}
	}
	if references < len(ofNode) {
		t.Errorf("%d references to %d nodes", references, len(ofNode))
	}
}

// object is what compareUIDs reads of an object, and the path of its kind.
type object struct {
	path     string
	Metadata struct {
		Name            string `json:"name"`
		UID             string `json:"uid"`
		OwnerReferences []struct {
			Name string `json:"name"`
			UID  string `json:"uid"`
		} `json:"ownerReferences"`
	} `json:"metadata"`
	Spec struct {
		NodeName string `json:"nodeName"`
		NodeUID  string `json:"nodeUID"`
	} `json:"spec"`
}

// served returns the objects that the API server serves.
func served(t *testing.T, st *Stage) []object {
	t.Helper()
	var out []object
	api, err := RawClient(st.Config())
	harness.Must(t, err)
	for _, path := range []string{Nodes, "/api/v1/pods", CiliumNodes, Blocks} {
		raw, err := api.Get().AbsPath(path).DoRaw(context.WithoutCancel(t.Context()))
		harness.Must(t, err)
		var list struct {
			Items []object `json:"items"`
		}
		harness.Must(t, json.Unmarshal(raw, &list))
		for _, item := range list.Items {
			item.path = path
			out = append(out, item)
		}
	}
	return out
}
