package agent

import (
	"cmp"
	"context"
	"net/netip"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// IPAM is an IPAM mode, as Cilium's values name it (ipam.mode).
type IPAM string

// The modes there are.
const (
	CRD        IPAM = "crd"
	MultiPool  IPAM = "multi-pool"
	Kubernetes IPAM = "kubernetes"
)

// ciliumPools are the Cilium pools of a pod, by ipalloc.Family. The zero value and modes without
// pools: default.
type ciliumPools [2]string

// poolsOf returns the pools that a pod requests by annotation (pkg/ipam/metadata/manager.go,
// determinePoolByAnnotations). Annotations of its namespace and selectors of CiliumPodIPPools
// are left out.
func poolsOf(pod *corev1.Pod) (from ciliumPools) {
	ofFamily := ciliumPools{ipalloc.IPv4: "ipam.cilium.io/ipv4-pool", ipalloc.IPv6: "ipam.cilium.io/ipv6-pool"}
	for f, name := range ofFamily {
		from[f] = cmp.Or(pod.Annotations[name], pod.Annotations["ipam.cilium.io/ip-pool"])
	}
	return from
}

// allocator is where a run of an agent allocates addresses.
type allocator interface {
	AllocateNext(owner string, from ciliumPools) (v4, v6 netip.Addr, err error)
	AllocateNextWithoutSync(family Family, owner string) (netip.Addr, error)
	Restore(addr netip.Addr, owner, pool string) error
	Release(addr netip.Addr)
	Exclude(addr netip.Addr)
	Allocated() map[netip.Addr]string
}

// way is the part that differs between the modes in one run of an agent.
type way interface {
	pool() allocator
	// watch feeds the pool with the CiliumNode, starting with the version that the agent has
	// just written. The returned function ends it.
	watch(from *ciliumv2.CiliumNode) (cancel func())
	// write reports used and requested addresses to the API server until ctx ends.
	write(ctx context.Context)
	// ready reports whether the pool suffices to continue the start.
	ready() bool
	// open allows allocations; restored says that earlier ones have been restored.
	open()
	restored()
}

func (a *Agent) newWay(run uint64, node *corev1.Node) way {
	switch a.opts.IPAM {
	case MultiPool:
		return newPoolSession(a.client, a.hub, a.opts)
	case Kubernetes:
		return newNodeSession(a.podCIDRs(node))
	}
	return crdWay{a.newSession(run)}
}

// crdWay is crd mode.
type crdWay struct{ *Session }

func (w crdWay) pool() allocator                            { return crdStore{w.Store} }
func (w crdWay) watch(*ciliumv2.CiliumNode) (cancel func()) { return w.Watch() }
func (w crdWay) write(ctx context.Context)                  { w.Write(ctx) }
func (w crdWay) ready() bool                                { return w.Store.MinimumReached() }
func (w crdWay) open()                                      { w.Store.Open() }
func (w crdWay) restored()                                  { w.RestoreFinished() }

// crdStore is a Store, which has no pools.
type crdStore struct{ *Store }

func (s crdStore) AllocateNext(owner string, _ ciliumPools) (v4, v6 netip.Addr, err error) {
	return s.Store.AllocateNext(owner)
}

func (s crdStore) Restore(addr netip.Addr, owner, _ string) error {
	return s.Store.Restore(addr, owner)
}

// Times of an agent in multi-pool mode, in its update rates of 15 s
// (multipool_manager.go, refreshPoolInterval and pendingAllocationTTL).
func refreshEvery(updateRate time.Duration) time.Duration { return 4 * updateRate }
func pendingFor(updateRate time.Duration) time.Duration   { return 20 * updateRate }
