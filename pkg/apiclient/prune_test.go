package apiclient

import (
	"bytes"
	"math/rand"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	"k8s.io/apimachinery/pkg/api/resource"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// podDecoders returns a pruning decoder of pods, and the usual one.
func podDecoders() (pruning, whole runtime.Decoder) {
	s, codecs := protobuf.NewSerializer(clientgoscheme.Scheme, clientgoscheme.Scheme), clientgoscheme.Codecs.WithoutConversion()
	version := corev1.SchemeGroupVersion
	return pruned{codecs}.DecoderToVersion(s, version), codecs.DecoderToVersion(s, version)
}

func encoded(t testing.TB, obj runtime.Object) []byte {
	t.Helper()
	s := protobuf.NewSerializer(clientgoscheme.Scheme, clientgoscheme.Scheme)
	data, err := runtime.Encode(clientgoscheme.Codecs.EncoderForVersion(s, corev1.SchemeGroupVersion), obj)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// randomPods returns a source of pods with any field set. Some of the values that decisions read
// are valid.
func randomPods(seed int64) func() *corev1.Pod {
	by := rand.New(rand.NewSource(seed))
	fill := fuzzer.FuzzerFor(metafuzzer.Funcs, by, clientgoscheme.Codecs)
	return func() *corev1.Pod {
		p := &corev1.Pod{}
		fill.Fill(p)
		p.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true", "ipam.cilium.io/ip-pool": []string{"blue", ""}[by.Intn(2)]}
		p.Spec.NodeName, p.Spec.HostNetwork = "n", by.Intn(2) == 0
		p.Status.Phase = []corev1.PodPhase{corev1.PodRunning, corev1.PodSucceeded}[by.Intn(2)]
		for _, list := range [][]corev1.Container{p.Spec.Containers, p.Spec.InitContainers} {
			for i := range list {
				list[i].RestartPolicy = []*corev1.ContainerRestartPolicy{nil, ptr.To(corev1.ContainerRestartPolicyAlways)}[by.Intn(2)]
				list[i].Resources.Requests = corev1.ResourceList{v1alpha1.IPv4Resource: *resource.NewQuantity(by.Int63n(3), resource.DecimalSI)}
			}
		}
		for i := range p.Status.PodIPs {
			p.Status.PodIPs[i].IP = []string{"10.0.0.1", "fd00::1", "no address"}[by.Intn(3)]
		}
		return p
	}
}

// samePod compares a pod's fields for decisions before and after pruning. The pod is encoded
// anew: some bytes that the API server would not write are accepted only without a cut.
func samePod(t *testing.T, data []byte) {
	t.Helper()
	pruning, whole := podDecoders()
	_, _ = runtime.Decode(pruning, bytes.Clone(data)) // does not panic
	obj, _ := runtime.Decode(whole, data)
	want, isPod := obj.(*corev1.Pod)
	if !isPod {
		return
	}
	obj, err := runtime.Decode(pruning, encoded(t, want))
	if err != nil {
		t.Fatalf("only pruned it cannot be decoded: %v", err)
	}
	got := obj.(*corev1.Pod)
	unexported := cmp.Exporter(func(reflect.Type) bool { return true })
	if diff := cmp.Diff(state.ReadPodWithRequest(want), state.ReadPodWithRequest(got), unexported); diff != "" {
		t.Fatalf("pod (-whole +pruned):\n%s", diff)
	}
	if got.ResourceVersion != want.ResourceVersion || got.Annotations[metav1.InitialEventsAnnotationKey] != want.Annotations[metav1.InitialEventsAnnotationKey] {
		t.Fatalf("a Reflector reads another version or end of the list in %v", got.ObjectMeta)
	}
	if len(got.Spec.Volumes)+len(got.Status.Conditions)+len(got.ManagedFields) > 0 {
		t.Fatalf("decoded whole: %v", got)
	}
}

func TestPrunedPodsReadTheSame(t *testing.T) {
	pods := randomPods(1)
	for range 500 {
		samePod(t, encoded(t, pods()))
	}
}

// FuzzPrunedPod compares a pruned pod with one decoded whole.
func FuzzPrunedPod(f *testing.F) {
	pods := randomPods(2)
	for range 8 {
		data := encoded(f, pods())
		f.Add(data)
		f.Add(bytes.Clone(data[:len(data)/2]))
	}
	f.Fuzz(samePod)
}

// Anything but a single pod is decoded whole.
func TestPruneLeavesOtherKinds(t *testing.T) {
	pruning, whole := podDecoders()
	for _, obj := range []runtime.Object{
		&corev1.PodList{Items: []corev1.Pod{*randomPods(3)()}},
		&metav1.Status{Reason: metav1.StatusReasonExpired, Message: "too old"},
	} {
		data := encoded(t, obj)
		want, err := runtime.Decode(whole, bytes.Clone(data))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := runtime.Decode(pruning, data); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%T is decoded as %v, %v", obj, got, err)
		}
	}
}
