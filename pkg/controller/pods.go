package controller

import (
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
)

// PodFields lets the API server send only pods that need an address.
func PodFields() fields.Selector {
	return fields.ParseSelectorOrDie("spec.nodeName!=,spec.hostNetwork=false,status.phase!=Succeeded,status.phase!=Failed")
}

// podKey tells which pod, and on which node, which never changes.
type podKey struct {
	node string
	uid  types.UID
}

// boundPod is what is decided on of a pod.
type boundPod struct {
	podKey
	// needs says that it needs an address.
	needs bool
	name  string
	ips   []netip.Addr
	wants *[2]string
}

func readPod(pod *corev1.Pod) boundPod {
	p := boundPod{podKey: podKey{pod.Spec.NodeName, pod.UID}, name: pod.Namespace + "/" + pod.Name, ips: podIPs(pod), wants: askedPools(pod.Annotations)}
	p.needs = pod.Spec.NodeName != "" && !pod.Spec.HostNetwork &&
		pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
	return p
}

func podIPs(pod *corev1.Pod) []netip.Addr {
	var out []netip.Addr
	for _, ip := range pod.Status.PodIPs {
		if addr, err := netip.ParseAddr(ip.IP); err == nil {
			out = append(out, addr.Unmap())
		}
	}
	return out
}

// Pods are the pods that need an address, by node. It is safe for concurrent
// use.
type Pods struct {
	mu sync.RWMutex
	// byNode are slices, as maps of so few cost twice as much.
	byNode map[string][]heldPod
	// namespaces are those that ask for a pool of Cilium's.
	namespaces map[string]*[2]string
}

type heldPod struct {
	uid types.UID
	expand.Pod
	// wants are the pools of Cilium's that its annotations name, by family; nil:
	// none.
	wants *[2]string
}

// NewPods knows no pod yet.
func NewPods() *Pods {
	return &Pods{byNode: map[string][]heldPod{}, namespaces: map[string]*[2]string{}}
}

// Set takes in a pod as it is at now, and reports whether anything that matters
// has changed.
func (p *Pods) Set(pod boundPod, now time.Time) bool {
	if !pod.needs {
		return p.Delete(pod.podKey)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	held := p.byNode[pod.node]
	i := p.index(pod.podKey)
	if i < 0 {
		p.byNode[pod.node] = append(held, heldPod{pod.uid, expand.Pod{Name: pod.name, IPs: pod.ips, Seen: now}, pod.wants})
		return true
	}
	if slices.Equal(held[i].IPs, pod.ips) && sameAsked(held[i].wants, pod.wants) {
		return false
	}
	held[i].IPs, held[i].wants = pod.ips, pod.wants
	return true
}

func (p *Pods) index(key podKey) int {
	return slices.IndexFunc(p.byNode[key.node], func(h heldPod) bool { return h.uid == key.uid })
}

// Delete forgets a pod, and reports whether it was known.
func (p *Pods) Delete(key podKey) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := p.index(key)
	if i < 0 {
		return false
	}
	p.byNode[key.node] = slices.Delete(p.byNode[key.node], i, i+1)
	if len(p.byNode[key.node]) == 0 {
		delete(p.byNode, key.node)
	}
	return true
}

// On are the pods on a node, sorted by name.
func (p *Pods) On(node string) []expand.Pod {
	p.mu.RLock()
	defer p.mu.RUnlock()
	out := make([]expand.Pod, 0, len(p.byNode[node]))
	for _, held := range p.byNode[node] {
		out = append(out, held.Pod)
	}
	slices.SortFunc(out, func(a, b expand.Pod) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// Asked is what the pods on a node ask for, by themselves or by their namespaces.
func (p *Pods) Asked(node string) Asked {
	p.mu.RLock()
	defer p.mu.RUnlock()
	asked := Asked{}
	for _, held := range p.byNode[node] {
		namespace, _, _ := strings.Cut(held.Name, "/")
		asked.add(held.Name, held.wants, p.namespaces[namespace])
	}
	return asked
}

// SetNamespace takes in what a namespace's annotations ask for its pods, and
// reports whether that is news.
func (p *Pods) SetNamespace(name string, annotations map[string]string) bool {
	asked := askedPools(annotations)
	p.mu.Lock()
	defer p.mu.Unlock()
	if sameAsked(p.namespaces[name], asked) {
		return false
	}
	if asked == nil {
		delete(p.namespaces, name)
		return true
	}
	p.namespaces[name] = asked
	return true
}

// missing are the pods known whose UID is not among listed.
func (p *Pods) missing(listed map[types.UID]bool) []boundPod {
	p.mu.RLock()
	defer p.mu.RUnlock()
	var out []boundPod
	for node, pods := range p.byNode {
		for _, held := range pods {
			if !listed[held.uid] {
				out = append(out, boundPod{podKey: podKey{node, held.uid}})
			}
		}
	}
	return out
}
