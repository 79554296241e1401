package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/cilium-pool/cilium-pool-operator/test/agent"
)

// misses are CNI ADDs that found no address.
type misses struct {
	mu sync.Mutex
	// begun means that pods request addresses. Until then, misses are not findings.
	begun bool
	kept  []miss
}

// miss is a CNI ADD that found no address for a version of a pod, which was bound to node.
type miss struct {
	node, pod string
	version   uint64
	err       error
}

func (m *misses) note(pod *corev1.Pod, err error) {
	is := miss{node: pod.Spec.NodeName, pod: pod.Name, version: versionOf(pod.ResourceVersion), err: err}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.begun {
		m.kept = append(m.kept, is)
	}
}

// versionOf returns zero if the text is not a resourceVersion.
func versionOf(text string) uint64 {
	version, _ := strconv.ParseUint(text, 10, 64)
	return version
}

// begin starts the recording of misses.
func (m *misses) begin() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.begun = true
}

// judge counts the misses of agents that had not yet seen the CiliumNode as of the pod's bind,
// and describes the others. The kubelet here requests an address as soon as it sees a pod; a
// real one creates a sandbox first.
func (m *misses) judge(history []change) (early int, wrong []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	history = slices.Clone(history)
	inOrder(history)
	for _, is := range m.kept {
		was, ok := hadAddresses(history, is.node, is.version)
		switch {
		case ok && is.early(was):
			early++
		case ok:
			wrong = append(wrong, fmt.Sprintf("pod %s, at version %d, on node %s, whose CiliumNode of version %d has %d addresses for pods: %v",
				is.pod, is.version, is.node, was.version, len(was.addresses.free), is.err))
		default:
			wrong = append(wrong, fmt.Sprintf("pod %s, at version %d, on node %s, which has no CiliumNode: %v", is.pod, is.version, is.node, is.err))
		}
	}
	return early, wrong
}

// early reports whether the agent had not yet seen addresses that its CiliumNode had when the
// pod was bound.
func (is miss) early(was change) bool {
	had := (*agent.Exhausted)(nil)
	return errors.As(is.err, &had) && versionOf(had.Seen) < was.version && had.Pool-had.Leaving-had.Own < len(was.addresses.free)
}

// hadAddresses returns the CiliumNode that a node had as of a version.
func hadAddresses(history []change, node string, version uint64) (was change, ok bool) {
	end, _ := slices.BinarySearchFunc(history, version+1, func(c change, v uint64) int { return cmp.Compare(c.version, v) })
	for _, c := range slices.Backward(history[:end]) {
		if c.addresses != nil && c.name == node {
			return c, !c.gone
		}
	}
	return was, false
}
