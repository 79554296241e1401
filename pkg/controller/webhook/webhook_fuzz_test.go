package webhook

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// FuzzHandle sends any bytes as a pod. All must be allowed. The patch of a pod must change the resources
// of its first container alone, and make it ask for an address of each family, unless it mentions one.
func FuzzHandle(f *testing.F) {
	f.Add([]byte(`{"spec":{"containers":[{"name":"a"},{"name":"b","resources":{"requests":{"cpu":"1"}}}]}}`))
	f.Add([]byte(`{"spec":{"containers":[{"resources":{"limits":{"cpu":"1"},"claims":[{"name":"x"}]}}],"initContainers":[{}]}}`))
	f.Add([]byte(`{"spec":{"containers":[{"resources":{"requests":{"cilium-pool.io/ipv4":"2"},"limits":{"cilium-pool.io/ipv4":"2"}}}]}}`))
	f.Add([]byte(`{"spec":{"containers":{}},"metadata":1}`))
	cluster := &state.Cluster{Ledger: state.NewLedger()}
	cluster.Ledger.SetReady()
	families := ipalloc.Families()
	requests := &Requests{Cluster: cluster, Families: families[:]}
	ask := func(t *testing.T, raw []byte) []byte {
		t.Helper()
		response := requests.Handle(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Object: runtime.RawExtension{Raw: raw}}})
		if !response.Allowed {
			t.Fatalf("refused: %s", raw)
		}
		patch, err := json.Marshal(response.Patches)
		if err != nil {
			t.Fatal(err)
		}
		return patch
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		ask(t, data)
		before := &corev1.Pod{}
		if json.Unmarshal(data, before) != nil || len(before.Spec.Containers) == 0 {
			return
		}
		raw, err := json.Marshal(before) // as an API server encodes it
		if err != nil {
			return
		}
		after := patched(t, raw, ask(t, raw))
		for _, family := range families {
			resources := after.Spec.Containers[0].Resources
			name := state.OfferResource(family, "")
			request, limit := resources.Requests[name], resources.Limits[name]
			if !mentions(&before.Spec, family) && (request.Value() != 1 || limit.Value() != 1) {
				t.Errorf("it requests %v of %s: %s", resources, name, raw)
			}
			if !mentions(&before.Spec, family) {
				delete(resources.Requests, name)
				delete(resources.Limits, name)
			}
		}
		want := decode(t, raw)
		for _, p := range []*corev1.Pod{want, after} {
			if r := &p.Spec.Containers[0].Resources; len(r.Requests)+len(r.Limits)+len(r.Claims) == 0 {
				*r = corev1.ResourceRequirements{}
			}
		}
		if diff := cmp.Diff(encode(t, want), encode(t, after)); diff != "" {
			t.Errorf("more is changed (-want +got):\n%s", diff)
		}
	})
}

func decode(t *testing.T, raw []byte) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{}
	if err := json.Unmarshal(raw, pod); err != nil {
		t.Fatal(err)
	}
	return pod
}

func encode(t *testing.T, pod *corev1.Pod) string {
	t.Helper()
	raw, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// patched applies the operations "add" of a JSON patch (RFC 6902).
func patched(t *testing.T, raw, patch []byte) *corev1.Pod {
	t.Helper()
	var pod map[string]any
	var operations []struct {
		Op, Path string
		Value    any
	}
	for content, into := range map[string]any{string(raw): &pod, string(patch): &operations} {
		if err := json.Unmarshal([]byte(content), into); err != nil {
			t.Fatal(err)
		}
	}
	for _, o := range operations {
		keys := strings.Split(strings.TrimPrefix(o.Path, "/"), "/")
		var target any = pod
		for _, key := range keys[:len(keys)-1] {
			switch parent := target.(type) {
			case map[string]any:
				target = parent[key]
			case []any:
				i, _ := strconv.Atoi(key)
				target = parent[i]
			}
		}
		object, ok := target.(map[string]any)
		if !ok || o.Op != "add" {
			t.Fatalf("%s %s cannot be applied to %s", o.Op, o.Path, raw)
		}
		object[strings.ReplaceAll(keys[len(keys)-1], "~1", "/")] = o.Value
	}
	raw, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	return decode(t, raw)
}
