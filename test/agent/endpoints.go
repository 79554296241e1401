package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"

	"github.com/cilium/cilium/pkg/node/addressing"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// Owners of the agent's own addresses, as in status.ipam.used.
const (
	routerOwner   = "router"
	healthOwner   = "health"
	restoredOwner = " [restored]" // daemon/cmd/endpoint_restore.go:705
)

// ErrHasEndpoint says that the pod has its addresses already.
var ErrHasEndpoint = errors.New("pod has an endpoint already")

// Add is a CNI ADD: an address of each of the agent's families for the pod.
func (a *Agent) Add(_ context.Context, obj *corev1.Pod) (v4, v6 netip.Addr, err error) {
	pod, from := types.NamespacedName{Namespace: obj.Namespace, Name: obj.Name}, poolsOf(obj)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.store == nil {
		return v4, v6, ErrNotReady
	}
	if _, ok := a.endpoints[pod]; ok {
		return v4, v6, ErrHasEndpoint
	}
	if v4, v6, err = a.store.AllocateNext(pod.String(), from); err != nil {
		return v4, v6, fmt.Errorf("allocate for %s: %w", pod, a.exhausted(err))
	}
	a.endpoints[pod] = endpoint{v4: v4, v6: v6, from: from}
	return v4, v6, nil
}

// exhausted adds the numbers of an agent in crd mode to ErrExhausted. a.mu is held.
func (a *Agent) exhausted(err error) error {
	s, ok := a.store.(crdStore)
	if !ok || !errors.Is(err, ErrExhausted) {
		return err
	}
	own := 0
	for _, owner := range s.Allocated() {
		if owner == routerOwner || owner == healthOwner {
			own++
		}
	}
	seen, pool, leaving := s.pool()
	return fmt.Errorf("%w: %d endpoints, %d addresses of the agent's own, %d in the pool, %d of them on their way out, at version %s",
		err, len(a.endpoints), own, pool, leaving, seen)
}

// Del is a CNI DEL. It succeeds for a pod without an endpoint.
func (a *Agent) Del(_ context.Context, namespace, name string) error {
	pod := types.NamespacedName{Namespace: namespace, Name: name}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.store == nil {
		return ErrNotReady
	}
	ep, ok := a.endpoints[pod]
	if !ok {
		return nil
	}
	delete(a.endpoints, pod)
	for _, addr := range []netip.Addr{ep.v4, ep.v6} {
		if addr.IsValid() {
			a.store.Release(addr)
		}
	}
	return nil
}

// Addresses returns the agent's allocations, address to owner; none while it is not ready.
func (a *Agent) Addresses() map[netip.Addr]string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.store == nil {
		return nil
	}
	return a.store.Allocated()
}

// Endpoints returns the addresses of the pods that have an endpoint, up or
// down: IPv4 first, then IPv6.
func (a *Agent) Endpoints() map[types.NamespacedName][]netip.Addr {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := map[types.NamespacedName][]netip.Addr{}
	for pod, ep := range a.endpoints {
		all[pod] = slices.DeleteFunc([]netip.Addr{ep.v4, ep.v6}, func(addr netip.Addr) bool { return !addr.IsValid() })
	}
	return all
}

// restore allocates the endpoints' old addresses, in any order (RestoreOldEndpoints,
// daemon/cmd/endpoint_restore.go:424). An endpoint that is refused loses its network.
func (a *Agent) restore(store allocator, random *rand.Rand) {
	for _, event := range a.restoreAll(store, random) {
		a.opts.OnEvent(event)
	}
}

func (a *Agent) restoreAll(store allocator, random *rand.Rand) (dropped []Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	pods := slices.SortedFunc(maps.Keys(a.endpoints), func(x, y types.NamespacedName) int {
		return strings.Compare(x.String(), y.String())
	})
	random.Shuffle(len(pods), func(i, j int) { pods[i], pods[j] = pods[j], pods[i] })
	for _, pod := range pods {
		if a.opts.PodExists != nil && !a.opts.PodExists(pod) { // endpoint_restore.go:327
			delete(a.endpoints, pod)
			continue
		}
		if err := a.restoreEndpoint(store, pod); err != nil {
			delete(a.endpoints, pod)
			dropped = append(dropped, Event{Kind: EndpointDropped, Pod: pod, Err: err})
		}
	}
	return dropped
}

// restoreEndpoint is allocateIPsLocked (daemon/cmd/endpoint_restore.go:688). Addresses of a family
// that the agent does not run are skipped.
func (a *Agent) restoreEndpoint(store allocator, pod types.NamespacedName) error {
	ep := a.endpoints[pod]
	if !slices.Contains(a.opts.Families, IPv6) {
		ep.v6 = netip.Addr{}
	}
	if ep.v6.IsValid() {
		if err := store.Restore(ep.v6, pod.String()+restoredOwner, ep.from[ipalloc.IPv6]); err != nil {
			return fmt.Errorf("unable to reallocate %s IPv6 address: %w", ep.v6, err)
		}
	}
	if ep.v4.IsValid() {
		if err := store.Restore(ep.v4, pod.String()+restoredOwner, ep.from[ipalloc.IPv4]); err != nil {
			if ep.v6.IsValid() {
				store.Release(ep.v6)
			}
			return fmt.Errorf("unable to reallocate %s IPv4 address: %w", ep.v4, err)
		}
	}
	return nil
}

// allocateOwn allocates the router's and the health address, the old ones if possible
// (daemon/infraendpoints/infra_ip_allocation.go:543), and stores them in router and health.
func (a *Agent) allocateOwn(store allocator, node *corev1.Node, router, health addresses) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, address := range nodeAddresses(node) { // infra_ip_allocation.go:254
		addr, err := netip.ParseAddr(address.IP)
		if err == nil && address.Type == addressing.NodeInternalIP {
			store.Exclude(addr)
		}
	}
	for _, family := range a.opts.Families {
		// The address on disk is preferred to the CiliumNode's (infra_ip_allocation.go:184).
		addr, err := allocateOld(store, family, routerOwner, a.router[family], router[family])
		if err != nil {
			return fmt.Errorf("allocate router address: %w", err)
		}
		router[family], a.router[family] = addr, addr
	}
	if !a.opts.Health {
		return nil
	}
	for _, family := range a.opts.Families {
		addr, err := allocateOld(store, family, healthOwner, health[family])
		if err != nil {
			return fmt.Errorf("allocate health address: %w", err)
		}
		health[family] = addr
	}
	return nil
}

// allocateOld allocates the first of old that is available, or else any address.
func allocateOld(store allocator, family Family, owner string, old ...netip.Addr) (netip.Addr, error) {
	for _, addr := range old {
		if addr.IsValid() && store.Restore(addr, owner, "") == nil {
			return addr, nil
		}
	}
	return store.AllocateNextWithoutSync(family, owner)
}
