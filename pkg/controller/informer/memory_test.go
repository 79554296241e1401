package informer

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"
	"time"

	iputil "github.com/cilium/cilium/pkg/ip"
	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// BenchmarkMemory stores many objects of a kind as the watches deliver them, decoded one by one,
// and reports for each the number of bytes that stay in memory, and the number of allocations, as
// the garbage collector visits each. In a cluster a node has a Node, a CiliumNode, an agent's pod
// and one or more blocks.
//
//	go test -run '^$' -bench Memory -benchtime 1x ./pkg/controller/informer
func BenchmarkMemory(b *testing.B) {
	const nodes, podsPerNode = 20_000, 5
	nodeObjects := func(b *testing.B, f *memoryFeed, i int) { f.cache(b, fromProtobuf(b, memoryNode(i))) }
	ciliumNodes := func(addresses int) func(*testing.B, *memoryFeed, int) {
		return func(b *testing.B, f *memoryFeed, i int) {
			f.add(b, f.ciliumNodeStore(), decodeJSON(b, memoryCiliumNode(i, addresses)))
		}
	}
	blocks := func(b *testing.B, f *memoryFeed, i int) { f.cache(b, decodeJSON(b, memoryPodIPBlock(i))) }
	pods := func(b *testing.B, f *memoryFeed, i int) {
		f.add(b, f.podStore(), fromProtobuf(b, memoryPod(i/podsPerNode, i%podsPerNode)))
	}
	agents := func(b *testing.B, f *memoryFeed, i int) { f.add(b, f.agentStore(), fromProtobuf(b, memoryAgent(i))) }
	for _, test := range []struct {
		name string
		n    int
		add  func(*testing.B, *memoryFeed, int)
	}{
		{"Node", nodes, nodeObjects},
		{"CiliumNode/16", nodes, ciliumNodes(16)},
		{"CiliumNode/48", nodes, ciliumNodes(48)},
		{"CiliumNode/96", nodes, ciliumNodes(96)},
		{"PodIPBlock", nodes, blocks},
		{"Pod", nodes * podsPerNode, pods},
		{"Agent", nodes, agents},
	} {
		b.Run(test.name, func(b *testing.B) {
			var bytes, allocations int64
			for b.Loop() {
				f := newMemoryFeed(b)
				bytesBefore, allocationsBefore := live()
				for i := range test.n {
					test.add(b, f, i)
				}
				bytes, allocations = live()
				bytes, allocations = bytes-bytesBefore, allocations-allocationsBefore
				runtime.KeepAlive(f)
			}
			b.ReportMetric(float64(bytes)/float64(test.n), "B/object")
			b.ReportMetric(float64(allocations)/float64(test.n), "allocations/object")
		})
	}
}

func live() (bytes, allocations int64) {
	runtime.GC()
	runtime.GC() // memory that finalizers and weak pointers kept
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc), int64(m.HeapObjects)
}

// memoryFeed is a feed that does not queue, with the indexers of the cache.
type memoryFeed struct {
	*Feed
	options  cache.Options
	indexers map[string]toolscache.Indexer
}

func newMemoryFeed(b *testing.B) *memoryFeed {
	f := &memoryFeed{newCounted(b, 1).Feed, CacheOptions(), map[string]toolscache.Indexer{}}
	f.nodes, f.pools = listening{add: func(string) {}}, listening{add: func(string) {}}
	f.Pods, f.Agents, f.Now = state.NewPods(), state.NewAgents(time.Minute), time.Now
	return f
}

// cache stores the part of an object that controller-runtime's cache keeps.
func (f *memoryFeed) cache(b *testing.B, obj client.Object) {
	kind, transform := fmt.Sprintf("%T", obj), f.options.DefaultTransform
	for of, by := range f.options.ByObject {
		if fmt.Sprintf("%T", of) == kind {
			transform = by.Transform
		}
	}
	kept, err := transform(obj)
	if err != nil {
		b.Fatal(err)
	}
	if f.indexers[kind] == nil {
		f.indexers[kind] = toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, nil)
	}
	if err := f.indexers[kind].Add(kept); err != nil {
		b.Fatal(err)
	}
	switch kept := kept.(type) {
	case *corev1.Node:
		f.node(kept)
	case *v1alpha1.PodIPBlock:
		f.blockHandler(logr.Discard()).OnAdd(kept, true)
	}
}

func (f *memoryFeed) add(b *testing.B, store Store, obj client.Object) {
	if err := store.Add(obj); err != nil {
		b.Fatal(err)
	}
}

// decodeJSON returns a custom resource decoded from JSON.
func decodeJSON[T any, P interface {
	*T
	client.Object
}](b *testing.B, obj P) P {
	data, err := json.Marshal(obj)
	if err != nil {
		b.Fatal(err)
	}
	out := P(new(T))
	if err := json.Unmarshal(data, out); err != nil {
		b.Fatal(err)
	}
	return out
}

// fromProtobuf returns an object decoded from protobuf.
func fromProtobuf[T any, P interface {
	*T
	client.Object
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
}](b *testing.B, obj P) P {
	data, err := obj.Marshal()
	if err != nil {
		b.Fatal(err)
	}
	out := P(new(T))
	if err := out.Unmarshal(data); err != nil {
		b.Fatal(err)
	}
	return out
}

func metaOf(name, kind string, i int) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: name, UID: types.UID(fmt.Sprintf("%08x-%.4x-4000-8000-000000000000", i, kind)),
		ResourceVersion: fmt.Sprint(100_000_000 + i), CreationTimestamp: metav1.Unix(1_700_000_000, 0),
	}
}

func nodeName(i int) string {
	return fmt.Sprintf("ip-10-200-%d-%d.eu-west-1.compute.internal", i/256, i%256)
}

// memoryNode returns node i, with the labels of a cloud.
func memoryNode(i int) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metaOf(nodeName(i), "node", i)}
	n.Labels, n.Annotations = labelsOf(i), map[string]string{"csi.volume.kubernetes.io/nodeid": `{"ebs.csi.aws.com":"i-0123456789abcdef0"}`}
	n.Spec.ProviderID = "aws:///eu-west-1a/i-0123456789abcdef0"
	n.Status.Capacity = corev1.ResourceList{
		corev1.ResourcePods: resource.MustParse("110"), corev1.ResourceCPU: resource.MustParse("16"), corev1.ResourceMemory: resource.MustParse("64Gi"),
	}
	n.Status.Allocatable = n.Status.Capacity
	n.Status.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: hostAddress(i)}, {Type: corev1.NodeHostName, Address: n.Name}, {Type: corev1.NodeInternalDNS, Address: n.Name},
	}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	return n
}

func hostAddress(i int) string {
	return netip.AddrFrom4([4]byte{172, 16, byte(i >> 8), byte(i)}).String()
}

func labelsOf(i int) map[string]string {
	return map[string]string{
		corev1.LabelHostname: nodeName(i), corev1.LabelArchStable: "amd64", corev1.LabelOSStable: "linux",
		corev1.LabelInstanceTypeStable: "m6i.4xlarge", corev1.LabelTopologyZone: "eu-west-1a", corev1.LabelTopologyRegion: "eu-west-1",
		"alpha.eksctl.io/instance-id": fmt.Sprintf("i-%017x", i), "beta.kubernetes.io/arch": "amd64", "beta.kubernetes.io/os": "linux", "eks.amazonaws.com/nodegroup": "workers-general", "topology.ebs.csi.aws.com/zone": "eu-west-1a",
	}
}

// memoryAddress returns address k of node i: each node has 128 consecutive ones.
func memoryAddress(i, k int) netip.Addr {
	n := i<<7 | k
	return netip.AddrFrom4([4]byte{byte(20 + n>>24), byte(n >> 16), byte(n >> 8), byte(n)})
}

func memoryBlock(i, k int) netip.Prefix { return netip.PrefixFrom(memoryAddress(i, k), 28) }

// memoryCiliumNode returns the CiliumNode of node i, with this many addresses in blocks of 16,
// three quarters of them in use.
func memoryCiliumNode(i, addresses int) *ciliumv2.CiliumNode {
	cn := &ciliumv2.CiliumNode{ObjectMeta: metaOf(nodeName(i), "ciliumnode", i)}
	cn.Labels = labelsOf(i)
	cn.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: cn.Name, UID: metaOf("", "node", i).UID}}
	cn.Spec.InstanceID, cn.Spec.BootID = "i-0123456789abcdef0", "3f1c6c6e-6b1f-4c3a-9a53-0f6b1b1d2c3d"
	router, health := memoryAddress(i, 0).String(), memoryAddress(i, 1).String()
	cn.Spec.Addresses = []ciliumv2.NodeAddress{{Type: "InternalIP", IP: hostAddress(i)}, {Type: "CiliumInternalIP", IP: router}}
	cn.Spec.HealthAddressing.IPv4 = health
	cn.Spec.IPAM.Pool, cn.Status.IPAM.Used = ipamtypes.AllocationMap{}, ipamtypes.AllocationMap{}
	for k := range addresses {
		if k%16 == 0 {
			cn.Spec.IPAM.PodCIDRs = append(cn.Spec.IPAM.PodCIDRs, iputil.PrefixFrom(memoryBlock(i, k)))
		}
		address := memoryAddress(i, k).String()
		cn.Spec.IPAM.Pool[address] = ipamtypes.AllocationIP{}
		if k < addresses*3/4 {
			cn.Status.IPAM.Used[address] = ipamtypes.AllocationIP{Owner: "default/" + podName(i, k)}
		}
	}
	cn.Status.IPAM.Used[router], cn.Status.IPAM.Used[health] = ipamtypes.AllocationIP{Owner: "router"}, ipamtypes.AllocationIP{Owner: "health"}
	return cn
}

func podName(i, k int) string { return fmt.Sprintf("frontend-%05x%04x-%05d", i, k, i) }

func memoryPodIPBlock(i int) *v1alpha1.PodIPBlock {
	obj := crd.NewBlock(memoryBlock(i, 0), "default", nodeName(i), metaOf("", "node", i).UID)
	meta := metaOf(obj.Name, "block", i)
	meta.Finalizers, meta.Generation = obj.Finalizers, 1
	obj.ObjectMeta, obj.Status.Phase = meta, v1alpha1.PhaseInService
	return obj
}

func memoryPod(i, k int) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metaOf(podName(i, k), fmt.Sprint("p", k), i)}
	pod.Namespace, pod.Spec.NodeName = "default", nodeName(i)
	pod.Labels = map[string]string{"app": "frontend"}
	pod.Status.Phase, pod.Status.PodIPs = corev1.PodRunning, []corev1.PodIP{{IP: memoryAddress(i, k+2).String()}}
	return pod
}

func memoryAgent(i int) *corev1.Pod {
	pod := memoryPod(i, 9)
	pod.Namespace, pod.Spec.HostNetwork = "kube-system", true
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "cilium-agent", ContainerID: fmt.Sprintf("containerd://%064x", i)}}
	return pod
}
