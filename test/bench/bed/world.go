// Package bed is the bed of the benchmarks: worlds of Nodes, CiliumNodes, Pods and blocks
// kept on disk, a separate control plane for each run, processes with their CPU and memory
// from /proc, the API server's own counters, and a cheap watch that records when the
// expected objects have arrived.
//
// It measures and never judges.
package bed

import (
	"fmt"
	"net/netip"

	iputil "github.com/cilium/cilium/pkg/ip"
	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

// Mode is the IPAM mode of a world: its CiliumNodes have blocks, or request them, in this form.
type Mode string

// Modes.
const (
	CRD         Mode = "crd"
	ClusterPool Mode = "cluster-pool"
	MultiPool   Mode = "multi-pool"
	// OwnMultiPool is multi-pool mode with this operator's pool: this operator allocates.
	OwnMultiPool Mode = "own-multi-pool"
)

// Owned reports whether this operator assigns the blocks.
func (m Mode) Owned() bool { return m == CRD || m == OwnMultiPool }

const (
	// BlockBits is the prefix length of all blocks.
	BlockBits = 27
	// PoolName is the name of the only PodIPPool.
	PoolName = "bench"
	// FRRNamespace has the FRRConfigurations.
	FRRNamespace = "default"
	// PoolCIDR is the range that blocks are cut from.
	PoolCIDR = "10.0.0.0/10"

	blockSize = 1 << (32 - BlockBits)
	// usable is the number of usable addresses of a block: all but the first and the last.
	usable = blockSize - 2
)

// World is the content of the API server before a run. Everything in it follows from these
// numbers, so that bare programs need not read it.
type World struct {
	Mode  Mode
	Nodes int
	// Blocks is the number of blocks of each node, in service and published.
	Blocks int
	// Used is the number of addresses in use on each node, which its agent reports in crd mode.
	Used int
	// Pods is the number of pods that run on each node, with these addresses.
	Pods int
	// Agents adds an agent's Pod per node.
	Agents bool
	// NoCiliumNodes leaves out the CiliumNodes, which contenders then create.
	NoCiliumNodes bool
	// Settled runs the operator on the world once, so that its first writes are not part of the
	// measurement.
	Settled bool
	// Routes adds the kind FRRConfiguration and a template for all nodes, in namespace FRRNamespace.
	Routes bool
}

// cluster returns the part of the world that is the same in all modes: Nodes and pods. It
// depends on blocks only because pods have their addresses.
func (w World) cluster() World {
	c := World{Mode: "cluster", Nodes: w.Nodes, Pods: w.Pods, Agents: w.Agents}
	if w.Pods > 0 {
		c.Blocks, c.Used = w.Blocks, w.Used
	}
	return c
}

// Key returns the name of the world on disk.
func (w World) Key() string {
	key := fmt.Sprintf("%s-%d-nodes-%d-blocks-%d-used-%d-pods", w.Mode, w.Nodes, w.Blocks, w.Used, w.Pods)
	for _, option := range []struct {
		word string
		has  bool
	}{{"-agents", w.Agents}, {"-bare", w.NoCiliumNodes}, {"-settled", w.Settled}, {"-routes", w.Routes}} {
		if option.has {
			key += option.word
		}
	}
	return key
}

// NodeName returns the name of node i.
func NodeName(i int) string { return fmt.Sprintf("%s%05d", namePrefix, i) }

const namePrefix = "bench-"

// Block returns block number n of the pool.
func Block(n int) netip.Prefix {
	base := netip.MustParsePrefix(PoolCIDR).Addr().As4()
	offset := n * blockSize
	base[1] += byte(offset >> 16)
	base[2] = byte(offset >> 8)
	base[3] = byte(offset)
	return netip.PrefixFrom(netip.AddrFrom4(base), BlockBits)
}

// block returns block j of node i.
func (w World) block(i, j int) netip.Prefix { return Block(i*w.Blocks + j) }

// Addresses returns the addresses of a block that pods may have.
func Addresses(block netip.Prefix) []netip.Addr {
	out := make([]netip.Addr, 0, usable)
	for addr := block.Addr().Next(); len(out) < usable; addr = addr.Next() {
		out = append(out, addr)
	}
	return out
}

// used returns the addresses of node i's pods, in its first blocks.
func (w World) used(i int) []netip.Addr {
	out := make([]netip.Addr, 0, w.Used)
	for k := range w.Used {
		out = append(out, Addresses(w.block(i, k/usable))[k%usable])
	}
	return out
}

func podName(i, k int) string { return fmt.Sprintf("%s%03d", podPrefix(i), k) }

func podPrefix(i int) string { return fmt.Sprintf("pod-%05d-", i) }

// Report returns the report of node i's agent about its use. It differs with turn, as pods come
// and go.
func (w World) Report(i, turn int) ipamtypes.AllocationMap {
	used := ipamtypes.AllocationMap{}
	for k, addr := range w.used(i) {
		owner := "default/" + podName(i, k)
		if k == 0 {
			owner = fmt.Sprintf("default/turn-%d", turn)
		}
		used[addr.String()] = ipamtypes.AllocationIP{Owner: owner}
	}
	return used
}

func (w World) ciliumNode(i int, node *corev1.Node) *ciliumv2.CiliumNode {
	cn := &ciliumv2.CiliumNode{ObjectMeta: metav1.ObjectMeta{
		Name: node.Name, Labels: node.Labels,
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}},
	}}
	cn.Spec.Addresses = []ciliumv2.NodeAddress{{Type: "InternalIP", IP: nodeAddress(i)}}
	cn.Spec.BootID = bootID(i)
	blocks := make([]iputil.Prefix, 0, w.Blocks)
	for j := range w.Blocks {
		blocks = append(blocks, iputil.PrefixFrom(w.block(i, j)))
	}
	switch w.Mode {
	case CRD:
		cn.Spec.IPAM.Pool = ipamtypes.AllocationMap{}
		cn.Spec.IPAM.PodCIDRs = blocks
		for _, b := range blocks {
			for _, addr := range Addresses(b.Prefix) {
				cn.Spec.IPAM.Pool[addr.String()] = ipamtypes.AllocationIP{}
			}
		}
	case ClusterPool:
		cn.Spec.IPAM.PodCIDRs = blocks
	case MultiPool, OwnMultiPool:
		cn.Spec.IPAM.Pools.Requested = w.Requested()
		if len(blocks) > 0 {
			cn.Spec.IPAM.Pools.Allocated = []ipamtypes.IPAMPoolAllocation{{Pool: "default", CIDRs: blocks}}
		}
	}
	return cn
}

// Requested returns the request of an agent in multi-pool mode that needs all of its
// blocks, or one if it has none.
func (w World) Requested() []ipamtypes.IPAMPoolRequest {
	return []ipamtypes.IPAMPoolRequest{{Pool: "default", Needed: ipamtypes.IPAMPoolDemand{IPv4Addrs: max(1, w.Blocks) * usable}}}
}

func nodeAddress(i int) string {
	return fmt.Sprintf("172.%d.%d.%d", 16+i/(250*250), i/250%250, i%250+1)
}

func zone(i int) string { return fmt.Sprintf("zone-%d", i%3) }

func rack(i int) string { return fmt.Sprintf("rack-%d", i/40) }

func bootID(i int) string { return fmt.Sprintf("5b4a3f0c-0000-4000-8000-%012d", i) }

func machineID(i int) string { return fmt.Sprintf("%032d", i) }

func (w World) node(i int) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: NodeName(i), Labels: map[string]string{
		corev1.LabelHostname: NodeName(i), corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
		corev1.LabelTopologyZone: zone(i), "node.example.com/rack": rack(i),
	}}}
	return n
}

// nodeStatus returns a status about as large as a kubelet's, without images.
func nodeStatus(i int) corev1.NodeStatus {
	s := corev1.NodeStatus{
		Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: nodeAddress(i)}, {Type: corev1.NodeHostName, Address: NodeName(i)},
		},
		NodeInfo: corev1.NodeSystemInfo{
			KubeletVersion: "v1.36.3", KernelVersion: "6.12.0", OSImage: "Debian GNU/Linux 13", OperatingSystem: "linux",
			Architecture: "amd64", ContainerRuntimeVersion: "containerd://2.2.0", MachineID: machineID(i),
		},
	}
	for _, t := range []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure} {
		s.Conditions = append(s.Conditions, corev1.NodeCondition{Type: t, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficient"})
	}
	s.Conditions = append(s.Conditions, corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady"})
	return s
}

// BoundPod returns a pod bound to node i; with an address it is running.
func BoundPod(i int, name string, addr netip.Addr) *corev1.Pod {
	p := harness.BoundPod(NodeName(i), name, map[string]string{"app": "web", "pod-template-hash": "5d4f8c7b9c"})
	p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "PORT", Value: "8080"}, {Name: "LOG_LEVEL", Value: "info"}}
	if addr.IsValid() {
		p.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: addr.String(), PodIPs: []corev1.PodIP{{IP: addr.String()}}}
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	}
	return p
}

func agentPod(i int) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "cilium-" + NodeName(i),
		Labels: map[string]string{"k8s-app": "cilium"}}}
	p.Spec = corev1.PodSpec{NodeName: NodeName(i), HostNetwork: true,
		Containers: []corev1.Container{{Name: "cilium-agent", Image: "quay.io/cilium/cilium:v1.20.1"}}}
	p.Status = corev1.PodStatus{Phase: corev1.PodRunning,
		Conditions:        []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		ContainerStatuses: []corev1.ContainerStatus{{Name: "cilium-agent", ContainerID: "containerd://" + NodeName(i), Ready: true}},
	}
	return p
}
