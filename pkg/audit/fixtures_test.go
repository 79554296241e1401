package audit

import (
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/clusterread"
	"github.com/cilium-pool/cilium-pool-operator/pkg/config"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

var (
	now  = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	long = now.Add(-time.Hour)
)

func settings() Settings {
	s := Settings{config.DefaultSettings(), 5 * time.Minute}
	s.IgnoreTaints, s.StartupTaints = []string{"no-cilium"}, []string{"labels-come"}
	return s
}

// world is a snapshot that tests damage.
type world struct{ *clusterread.Objects }

// healthy returns nodes a and b, each with a /29 of a pool and two addresses in use.
func healthy() world {
	w := world{&clusterread.Objects{Time: now}}
	w.pool("main", "10.0.0.0/24")
	w.node("a", "10.0.0.0/29")
	w.node("b", "10.0.0.8/29")
	return w
}

// addTwin adds a healthy node of another pool, with addresses of both families, and a pod that had the address of another
// one before. None of them changes a finding.
func (w world) addTwin() {
	twin := map[string]string{"node-restriction.kubernetes.io/twin": "true"}
	w.node("twin", "10.0.99.0/29", "fd99::/125")
	w.Nodes[len(w.Nodes)-1].Labels = twin
	pool := w.pool("twin", "10.0.99.0/24")
	pool.Spec.IPv6 = &v1alpha1.IPv6Ranges{BlockSize: 125, CIDRs: []v1alpha1.PoolCIDR{{CIDR: "fd99::/120"}}}
	pool.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: twin}
	for i := range w.Blocks {
		if w.Blocks[i].Spec.NodeName == "twin" {
			w.Blocks[i].Spec.PoolName = "twin"
		}
	}
	w.pod("earlier", "twin", "10.0.0.2").Status.Phase = corev1.PodSucceeded
}

func (w world) pool(name string, cidrs ...string) *v1alpha1.PodIPPool {
	p := v1alpha1.PodIPPool{ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 1, CreationTimestamp: metav1.NewTime(long)}}
	p.Spec.IPv4 = &v1alpha1.IPv4Ranges{BlockSize: 29}
	for _, c := range cidrs {
		p.Spec.IPv4.CIDRs = append(p.Spec.IPv4.CIDRs, v1alpha1.PoolCIDR{CIDR: c})
	}
	p.Status.ObservedGeneration = 1
	p.Status.Conditions = []metav1.Condition{{Type: v1alpha1.PoolReady, Status: metav1.ConditionTrue, Reason: "Serving"}}
	w.Pools = append(w.Pools, p)
	return &w.Pools[len(w.Pools)-1]
}

// node adds a Node with an agent, a CiliumNode and its blocks, all published, and a pod on the
// second address of each.
func (w world) node(name string, cidrs ...string) {
	w.Nodes = append(w.Nodes, corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	agent := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "cilium-" + name}}
	agent.Spec.NodeName, agent.Spec.HostNetwork = name, true
	agent.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	w.Agents = append(w.Agents, agent)
	w.CiliumNodes = append(w.CiliumNodes, clusterread.CiliumNode{Changed: long, ReleaseSince: map[netip.Addr]time.Time{}, View: &ciliumnode.View{
		Name: name, Release: map[netip.Addr]expand.ReleaseStatus{},
		Used: map[netip.Addr]string{}, Addresses: &ciliumnode.Addresses{Pool: map[netip.Addr]string{}},
	}})
	for _, c := range cidrs {
		w.newBlock(name, c)
		cn, first := w.cn(name), netip.MustParsePrefix(c).Addr()
		cn.PodCIDRs = append(cn.PodCIDRs, netip.MustParsePrefix(c))
		for a := first.Next(); netip.MustParsePrefix(c).Contains(a.Next()); a = a.Next() {
			cn.Addresses.Pool[a] = ""
		}
		cn.Used[first.Next()] = "router"
		pod := first.Next().Next()
		cn.Used[pod] = "default/on-" + name
		w.pod("on-"+name, name, pod.String())
	}
}

func (w world) newBlock(node, cidr string) *v1alpha1.PodIPBlock {
	b := crd.NewBlock(netip.MustParsePrefix(cidr), "main", node, "")
	b.CreationTimestamp = metav1.NewTime(long)
	w.Blocks = append(w.Blocks, *b)
	return &w.Blocks[len(w.Blocks)-1]
}

func (w world) pod(name, node string, ips ...string) *corev1.Pod {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	p.Spec.NodeName, p.Status.Phase = node, corev1.PodRunning
	for _, ip := range ips {
		p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: ip})
	}
	w.Pods = append(w.Pods, p)
	return &w.Pods[len(w.Pods)-1]
}

func (w world) cn(name string) *clusterread.CiliumNode {
	for i := range w.CiliumNodes {
		if w.CiliumNodes[i].Name == name {
			return &w.CiliumNodes[i]
		}
	}
	panic("no CiliumNode " + name)
}

func (w world) block(name string) *v1alpha1.PodIPBlock {
	for i := range w.Blocks {
		if w.Blocks[i].Name == name {
			return &w.Blocks[i]
		}
	}
	panic("no block " + name)
}

// publish and unpublish change only a pool.
func (w world) publish(name string, addrs ...string) {
	for _, a := range addrs {
		w.cn(name).Addresses.Pool[netip.MustParseAddr(a)] = ""
	}
}

func (w world) unpublish(name string, addrs ...string) {
	for _, a := range addrs {
		delete(w.cn(name).Addresses.Pool, netip.MustParseAddr(a))
	}
}

// entry sets a release entry that has existed since then; zero: unknown.
func (w world) entry(name, addr string, status expand.ReleaseStatus, since time.Time) {
	cn, a := w.cn(name), netip.MustParseAddr(addr)
	cn.Release[a] = status
	if !since.IsZero() {
		cn.ReleaseSince[a] = since
	}
}

func (w world) phase(block string, phase ipalloc.Phase, reason expand.Reason, since time.Time) {
	crd.SetBlockPhase(w.block(block), phase, reason, "", since)
}

func (w world) deleteBlock(name string) {
	w.Blocks = slices.DeleteFunc(w.Blocks, func(b v1alpha1.PodIPBlock) bool { return b.Name == name })
}

func (w world) deleteNode(name string) {
	w.Nodes = slices.DeleteFunc(w.Nodes, func(n corev1.Node) bool { return n.Name == name })
}

func (w world) deleteCiliumNode(name string) {
	w.CiliumNodes = slices.DeleteFunc(w.CiliumNodes, func(n clusterread.CiliumNode) bool { return n.Name == name })
}

func (w world) deletePod(name string) {
	w.Pods = slices.DeleteFunc(w.Pods, func(p corev1.Pod) bool { return p.Name == name })
}

// free removes a pod and its address in the agent's report.
func (w world) free(node, addr string) {
	w.deletePod("on-" + node)
	delete(w.cn(node).Used, netip.MustParseAddr(addr))
}
