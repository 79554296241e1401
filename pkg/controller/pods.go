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

// Pods are the pods that need an address, by node. It is safe for concurrent
// use.
type Pods struct {
	mu     sync.RWMutex
	byNode map[string]map[types.UID]expand.Pod
}

// NewPods knows no pod yet.
func NewPods() *Pods { return &Pods{byNode: map[string]map[types.UID]expand.Pod{}} }

// Set takes in a pod as it is at now, and reports whether anything that matters
// has changed.
func (p *Pods) Set(pod *corev1.Pod, now time.Time) bool {
	if pod.Spec.NodeName == "" || pod.Spec.HostNetwork ||
		pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return p.Delete(pod)
	}
	is := expand.Pod{Name: pod.Namespace + "/" + pod.Name, IPs: podIPs(pod), Seen: now}
	p.mu.Lock()
	defer p.mu.Unlock()
	was, known := p.byNode[pod.Spec.NodeName][pod.UID]
	if known && slices.Equal(was.IPs, is.IPs) {
		return false
	}
	if known {
		is.Seen = was.Seen
	}
	if p.byNode[pod.Spec.NodeName] == nil {
		p.byNode[pod.Spec.NodeName] = map[types.UID]expand.Pod{}
	}
	p.byNode[pod.Spec.NodeName][pod.UID] = is
	return true
}

// Delete forgets a pod, and reports whether it was known.
func (p *Pods) Delete(pod *corev1.Pod) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, known := p.byNode[pod.Spec.NodeName][pod.UID]; !known {
		return false
	}
	delete(p.byNode[pod.Spec.NodeName], pod.UID)
	if len(p.byNode[pod.Spec.NodeName]) == 0 {
		delete(p.byNode, pod.Spec.NodeName)
	}
	return true
}

// On are the pods on a node, sorted by name.
func (p *Pods) On(node string) []expand.Pod {
	p.mu.RLock()
	defer p.mu.RUnlock()
	out := make([]expand.Pod, 0, len(p.byNode[node]))
	for _, pod := range p.byNode[node] {
		out = append(out, pod)
	}
	slices.SortFunc(out, func(a, b expand.Pod) int { return strings.Compare(a.Name, b.Name) })
	return out
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
