package informer

import (
	"bytes"
	"context"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/util/intstr"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/exclude"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// wholeMeta has every field that pods and Nodes usually have, and some of them by chance.
func wholeMeta(by *rand.Rand) metav1.ObjectMeta {
	m := metav1.ObjectMeta{
		Name: "web-0", GenerateName: "web-", Namespace: "team", UID: "1b4e28ba-2fa1-11d2-883f-0016d3cca427", ResourceVersion: "123456", Generation: 3,
		CreationTimestamp: metav1.Unix(1_700_000_000, 0),
		OwnerReferences:   []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "web", UID: "u", Controller: ptr.To(true)}},
		ManagedFields:     []metav1.ManagedFieldsEntry{{Manager: "kubelet", Operation: "Update", FieldsV1: metav1.NewFieldsV1(`{"f:status":{}}`)}},
	}
	if by.IntN(2) == 0 {
		m.Labels = map[string]string{"app": "web", "zone": "a"}
	}
	if by.IntN(2) == 0 {
		m.Annotations = map[string]string{"ipam.cilium.io/ip-pool": "blue", "cilium-pool.io/paused": "true"}
	}
	if by.IntN(2) == 0 {
		m.DeletionTimestamp, m.Finalizers = ptr.To(metav1.Unix(1_700_000_100, 0)), []string{"keep"}
	}
	return m
}

// wholePod has what decisions need, by chance, and much that they do not.
func wholePod(by *rand.Rand) *corev1.Pod {
	requests := func() corev1.ResourceList {
		list := corev1.ResourceList{"cpu": resource.MustParse("100m")}
		if by.IntN(2) == 0 {
			list["cilium-pool.io/ipv4"] = resource.MustParse("2")
		}
		return list
	}
	container := func() corev1.Container {
		return corev1.Container{
			Name: "main", Image: "registry/web:1", Command: []string{"run"}, Env: []corev1.EnvVar{{Name: "A", Value: "b"}},
			VolumeMounts:  []corev1.VolumeMount{{Name: "data", MountPath: "/data"}},
			LivenessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromInt32(80)}}},
			Resources:     corev1.ResourceRequirements{Requests: requests(), Limits: requests()},
		}
	}
	p := &corev1.Pod{ObjectMeta: wholeMeta(by)}
	for range by.IntN(3) {
		c := container()
		if by.IntN(2) == 0 {
			c.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
		}
		p.Spec.InitContainers = append(p.Spec.InitContainers, c)
	}
	for range by.IntN(3) {
		p.Spec.Containers = append(p.Spec.Containers, container())
	}
	p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	p.Spec.NodeName = []string{"", "node-1"}[by.IntN(2)]
	p.Spec.HostNetwork = by.IntN(2) == 0
	p.Spec.Tolerations = []corev1.Toleration{{Key: "a", Operator: corev1.TolerationOpExists}}
	p.Status.Phase = []corev1.PodPhase{"", corev1.PodPending, corev1.PodRunning, corev1.PodFailed}[by.IntN(4)]
	for _, ip := range []string{"10.0.0.1", "fd00::1"}[:by.IntN(3)] {
		p.Status.PodIP, p.Status.PodIPs = ip, append(p.Status.PodIPs, corev1.PodIP{IP: ip})
	}
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse}[by.IntN(2)]}}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "cilium-agent", ContainerID: "containerd://1", Ready: true}}
	if by.IntN(2) == 0 {
		p.Status.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 1, FinishedAt: metav1.Unix(1_700_000_001, 0), StartedAt: metav1.Unix(1_700_000_000, 0)}
	}
	return p
}

// wholeNode has what stripNode keeps, by chance, and much that it does not.
func wholeNode(by *rand.Rand) *corev1.Node {
	n := &corev1.Node{ObjectMeta: wholeMeta(by)}
	n.Namespace, n.GenerateName = "", ""
	n.Spec = corev1.NodeSpec{PodCIDR: "10.0.0.0/24", PodCIDRs: []string{"10.0.0.0/24"}, ProviderID: "p", Unschedulable: by.IntN(2) == 0}
	if by.IntN(2) == 0 {
		n.Spec.Taints = []corev1.Taint{{Key: "t", Value: "v", Effect: corev1.TaintEffectNoSchedule}}
	}
	n.Status = corev1.NodeStatus{
		Capacity:    corev1.ResourceList{"pods": resource.MustParse("110"), "memory": resource.MustParse("8Gi")},
		Allocatable: corev1.ResourceList{"pods": resource.MustParse("100"), "cilium-pool.io/ipv4": resource.MustParse("30")},
		Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}, {Type: "PodAddressShortage", Status: corev1.ConditionFalse}},
		Addresses:   []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}, {Type: corev1.NodeHostName, Address: "node-1"}},
		NodeInfo:    corev1.NodeSystemInfo{KernelVersion: "6.12"},
		Images:      []corev1.ContainerImage{{Names: []string{"registry/web:1"}, SizeBytes: 1 << 20}},
	}
	return n
}

// wholeService has what exclude.OfService reads, and much that it does not.
func wholeService(by *rand.Rand) *corev1.Service {
	s := &corev1.Service{ObjectMeta: wholeMeta(by)}
	s.Spec = corev1.ServiceSpec{
		Type: corev1.ServiceTypeLoadBalancer, Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Port: 80}},
		ClusterIP: "10.96.0.1", ExternalIPs: []string{"198.51.100.1", "198.51.100.2"}[:by.IntN(3)], LoadBalancerIP: []string{"", "fd00::1"}[by.IntN(2)],
	}
	if by.IntN(2) == 0 {
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{Hostname: "lb"}, {IP: "198.51.100.3", Ports: []corev1.PortStatus{{Port: 80}}}}
	}
	s.Status.Conditions = []metav1.Condition{{Type: "cilium.io/IPAMRequestSatisfied"}}
	return s
}

// bothDecoders returns decoders of a kind: one that prunes, and one that does not.
func bothDecoders(kind schema.GroupVersionKind, object kept) (pruning, whole runtime.Decoder) {
	s := protobuf.NewSerializer(clientgoscheme.Scheme, clientgoscheme.Scheme)
	codecs := serializer.NewCodecFactory(clientgoscheme.Scheme).WithoutConversion()
	return pruned{codecs, kind, object}.DecoderToVersion(s, kind.GroupVersion()), codecs.DecoderToVersion(s, kind.GroupVersion())
}

func encoded(t testing.TB, obj runtime.Object) []byte {
	t.Helper()
	data, err := runtime.Encode(clientgoscheme.Codecs.EncoderForVersion(protobuf.NewSerializer(clientgoscheme.Scheme, clientgoscheme.Scheme), corev1.SchemeGroupVersion), obj)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

var (
	podKind  = corev1.SchemeGroupVersion.WithKind("Pod")
	nodeKind = corev1.SchemeGroupVersion.WithKind("Node")
	// records and Nodes have unexported fields.
	all = cmp.Exporter(func(reflect.Type) bool { return true })
)

// Decisions see the same of a pod, a Node and a Service, pruned or not.
func TestPrunedObjectsReadTheSame(t *testing.T) {
	by := rand.New(rand.NewPCG(1, 2))
	prunePods, wholePods := bothDecoders(podKind, boundPod)
	pruneAgents, _ := bothDecoders(podKind, agentPod)
	pruneNodes, wholeNodes := bothDecoders(nodeKind, node)
	pruneServices, _ := bothDecoders(corev1.SchemeGroupVersion.WithKind("Service"), service)
	for range 500 {
		svc := wholeService(by)
		pruned, err := runtime.Decode(pruneServices, encoded(t, svc))
		if err != nil {
			t.Fatal(err)
		}
		left := pruned.(*corev1.Service)
		if diff := cmp.Diff(exclude.OfService(svc), exclude.OfService(left), all); diff != "" || left.Namespace != svc.Namespace || left.Name != svc.Name || left.UID != svc.UID || len(left.Spec.Ports)+len(left.Status.Conditions) > 0 {
			t.Fatalf("Service %+v (-whole +pruned):\n%s", left, diff)
		}
		pod := encoded(t, wholePod(by))
		samePod(t, prunePods, wholePods, pod)
		got, err := runtime.Decode(prunePods, bytes.Clone(pod))
		if err != nil {
			t.Fatal(err)
		}
		if p := got.(*corev1.Pod); len(p.Spec.Volumes)+len(p.Status.ContainerStatuses)+len(p.ManagedFields)+len(p.OwnerReferences) > 0 || t.Failed() {
			t.Fatalf("the pod is decoded as %v", p)
		}
		agent := wholePod(by)
		got, err = runtime.Decode(pruneAgents, encoded(t, agent))
		if err != nil || got.(*corev1.Pod).Spec.Volumes != nil {
			t.Fatalf("an agent's pod: %v, %v", got, err)
		}
		if diff := cmp.Diff(state.ReadAgent(agent), state.ReadAgent(got.(*corev1.Pod)), all); diff != "" {
			t.Fatalf("agent's pod (-whole +pruned):\n%s", diff)
		}
		data := encoded(t, wholeNode(by))
		want, err := runtime.Decode(wholeNodes, data)
		if err != nil {
			t.Fatal(err)
		}
		got, err = runtime.Decode(pruneNodes, data)
		if err != nil {
			t.Fatal(err)
		}
		if len(got.(*corev1.Node).Status.Images) > 0 || got.(*corev1.Node).ManagedFields != nil {
			t.Fatal("a Node is decoded whole")
		}
		if diff := cmp.Diff(stripped(t, want), stripped(t, got)); diff != "" {
			t.Fatalf("Node (-whole +pruned):\n%s", diff)
		}
	}
}

func stripped(t *testing.T, obj runtime.Object) *corev1.Node {
	t.Helper()
	s := newShared()
	n, err := s.stripNode(obj)
	if err != nil {
		t.Fatal(err)
	}
	return n.(*corev1.Node)
}

// samePod compares what decisions read of a pod, if data decodes to one, with what they read
// of it pruned. It encodes the pod anew: some bytes that the API server would not write, such as
// an entry of a map that ends behind its end, are accepted only as long as nothing is cut.
func samePod(t *testing.T, pruning, whole runtime.Decoder, data []byte) {
	t.Helper()
	_, _ = runtime.Decode(pruning, bytes.Clone(data)) // does not panic
	obj, _ := runtime.Decode(whole, data)
	want, isPod := obj.(*corev1.Pod)
	if !isPod {
		return
	}
	got, err := runtime.Decode(pruning, encoded(t, want))
	if err != nil {
		t.Errorf("only pruned it cannot be decoded: %v", err)
		return
	}
	p := got.(*corev1.Pod)
	if diff := cmp.Diff(state.ReadPodWithRequest(want), state.ReadPodWithRequest(p), all); diff != "" {
		t.Errorf("pod (-whole +pruned):\n%s", diff)
	}
	if want.ResourceVersion != p.ResourceVersion || want.UID != p.UID || want.Namespace != p.Namespace || want.Name != p.Name {
		t.Errorf("%s/%s %s %s is %s/%s %s %s", want.Namespace, want.Name, want.UID, want.ResourceVersion, p.Namespace, p.Name, p.UID, p.ResourceVersion)
	}
}

func FuzzPrunedPod(f *testing.F) {
	by := rand.New(rand.NewPCG(3, 4))
	for range 8 {
		data := encoded(f, wholePod(by))
		f.Add(data)
		f.Add(bytes.Clone(data[:by.IntN(len(data))]))
	}
	f.Add([]byte("k8s\x00"))
	pruning, whole := bothDecoders(podKind, boundPod)
	f.Fuzz(func(t *testing.T, data []byte) { samePod(t, pruning, whole, data) })
}

// Anything but a single object of the kind is decoded whole.
func TestPruneLeavesOtherKinds(t *testing.T) {
	pruning, _ := bothDecoders(podKind, boundPod)
	by := rand.New(rand.NewPCG(5, 6))
	list := &corev1.PodList{Items: []corev1.Pod{*wholePod(by)}}
	got, err := runtime.Decode(pruning, encoded(t, list))
	if err != nil || len(got.(*corev1.PodList).Items[0].Spec.Volumes) == 0 {
		t.Errorf("a list of pods: %v, %v", got, err)
	}
	status := &metav1.Status{Reason: metav1.StatusReasonExpired, Message: "too old"}
	got, err = runtime.Decode(pruning, encoded(t, status))
	if err != nil || got.(*metav1.Status).Message != "too old" {
		t.Errorf("a Status: %v, %v", got, err)
	}
}

// The watches of bound pods and of Nodes prune what they receive.
func TestWatchesPrune(t *testing.T) {
	by := rand.New(rand.NewPCG(7, 8))
	pod, n := wholePod(by), wholeNode(by)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var obj runtime.Object = pod
		var end runtime.Object = &corev1.Pod{ObjectMeta: listEnd("9").ObjectMeta}
		if r.URL.Path == "/api/v1/nodes" {
			obj, end = n, &corev1.Node{ObjectMeta: listEnd("9").ObjectMeta}
		}
		w.Header().Set("Content-Type", runtime.ContentTypeProtobuf+";stream=watch")
		raw := protobuf.NewRawSerializer(clientgoscheme.Scheme, clientgoscheme.Scheme)
		events := streaming.NewEncoder(protobuf.LengthDelimitedFramer.NewFrameWriter(w), raw)
		_ = events.Encode(&metav1.WatchEvent{Type: "ADDED", Object: runtime.RawExtension{Raw: encoded(t, obj)}})
		_ = events.Encode(&metav1.WatchEvent{Type: "BOOKMARK", Object: runtime.RawExtension{Raw: encoded(t, end)}})
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	t.Cleanup(server.Close)
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	mgr := managerOf(t, &rest.Config{Host: server.URL, QPS: -1, TLSClientConfig: rest.TLSClientConfig{Insecure: true}})
	sources, err := SourcesFrom(mgr, ciliumnode.CRD, "kube-system", labels.Everything())
	if err != nil {
		t.Fatal(err)
	}
	w, err := toolscache.ToListerWatcherWithContext(sources.Pods).WatchWithContext(ctx, metav1.ListOptions{Watch: true})
	if err != nil {
		t.Fatal(err)
	}
	event, ok := <-w.ResultChan()
	if got, is := event.Object.(*corev1.Pod); !ok || !is || got.Name != pod.Name || got.Spec.Volumes != nil {
		t.Errorf("the watch of pods shows %v", event.Object)
	}
	got := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name}}
	readCached(ctx, t, mgr, got)
	if diff := cmp.Diff(stripped(t, n.DeepCopy()), got); diff != "" {
		t.Errorf("Node in the cache (-want +got):\n%s", diff)
	}
}
