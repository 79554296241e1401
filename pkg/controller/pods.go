package controller

import (
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"
	"unique"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumpool"
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
	wants kept // of modes in which agents have several pools
}

// readAsking reads a pod of a mode in which agents have several pools.
func readAsking(pod *corev1.Pod) boundPod {
	p := readPod(pod)
	p.wants = unique.Make(wantsOf(&pod.ObjectMeta))
	return p
}

func readPod(pod *corev1.Pod) boundPod {
	p := boundPod{podKey: podKey{pod.Spec.NodeName, pod.UID}, name: pod.Namespace + "/" + pod.Name, ips: podIPs(pod)}
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
	// namespaces are what namespaces want for their pods.
	namespaces map[string]wants
}

type heldPod struct {
	uid types.UID
	expand.Pod
	wants kept
}

// NewPods knows no pod yet.
func NewPods() *Pods {
	return &Pods{byNode: map[string][]heldPod{}, namespaces: map[string]wants{}}
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
	if slices.Equal(held[i].IPs, pod.ips) && held[i].wants == pod.wants {
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

// Asked is what the pods on a node ask for, by themselves, by their namespaces, or
// by the CiliumPodIPPools that pick pods.
func (p *Pods) Asked(node string, picking []*ciliumpool.View) Asked {
	p.mu.RLock()
	defer p.mu.RUnlock()
	asked := Asked{}
	for _, held := range p.byNode[node] {
		namespace, _, _ := strings.Cut(held.Name, "/")
		asked.add(held.Name, said(held.wants), p.namespaces[namespace], picking)
	}
	return asked
}

// SetNamespace takes in what a namespace wants for its pods, nothing if it is
// gone. It returns the nodes of its pods, if that is news.
func (p *Pods) SetNamespace(name string, w wants) (nodes []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.namespaces[name] == w {
		return nil
	}
	if w == (wants{}) {
		delete(p.namespaces, name)
	} else {
		p.namespaces[name] = w
	}
	for node, pods := range p.byNode {
		if slices.ContainsFunc(pods, func(h heldPod) bool { return strings.HasPrefix(h.Name, name+"/") }) {
			nodes = append(nodes, node)
		}
	}
	return nodes
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
