package informer

import (
	"net/netip"
	"slices"
	"sync"
	"time"

	ciliumv2alpha1 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumpool"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/exclude"
	"github.com/cilium-pool/cilium-pool-operator/pkg/frrconfig"
	"github.com/cilium-pool/cilium-pool-operator/pkg/scheduling"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// Reflector stores of extracted fields, not whole objects.

func (f *Feed) ciliumNodeStore() Store {
	read := func(obj client.Object) *ciliumnode.View {
		if known := f.Ledger.CiliumNodeAt(obj); known != nil {
			return known
		}
		return f.Mode.View(obj)
	}
	return &records[client.Object, *ciliumnode.View]{
		read: read, onUpsert: f.onCiliumNode, onDelete: f.onCiliumNodeGone, missing: f.Ledger.MissingCiliumNodes,
	}
}

func (f *Feed) podStore() Store {
	read := state.ReadPod
	if f.Mode.ManyPools() {
		read = state.ReadPodWithRequest
	}
	return &records[*corev1.Pod, state.BoundPod]{
		read: read,
		onUpsert: func(p state.BoundPod) {
			f.scheduled(p.UID())
			if !f.Pods.Set(p, f.Now()) || !f.Ledger.Ready() { // Begin queues all
				return
			}
			f.wake(podChanged, subject{nodes: []string{p.Node}})
			if f.Pods.MayOwn(p) {
				f.wake(ownerPodChanged, subject{})
			}
		},
		onDelete: func(p state.BoundPod) {
			if f.Pods.Delete(p.PodKey, f.Now()) {
				f.wake(podChanged, subject{nodes: []string{p.Node}})
			}
		},
		missing: anyVersion(f.Pods.Missing),
	}
}

func (f *Feed) unscheduledStore() Store {
	return &records[*corev1.Pod, scheduling.UnscheduledPod]{
		read: scheduling.ReadUnscheduled,
		onUpsert: func(p scheduling.UnscheduledPod) {
			if f.Unscheduled.Set(p, f.Now()) {
				f.wake(podUnscheduled, subject{})
			}
		},
		onDelete: func(p scheduling.UnscheduledPod) { f.scheduled(p.UID()) },
		missing:  anyVersion(f.Unscheduled.Missing),
	}
}

// scheduled drops an unscheduled pod that is bound or gone. The two watches of pods are not in
// step: a bound pod must not count twice.
func (f *Feed) scheduled(pod types.UID) {
	if f.Unscheduled != nil && f.Unscheduled.Delete(pod) {
		f.wake(podScheduled, subject{})
	}
}

func (f *Feed) agentStore() Store {
	return &records[*corev1.Pod, state.AgentPod]{
		read: state.ReadAgent,
		onUpsert: func(a state.AgentPod) {
			if f.Agents.Set(a, f.Now()) {
				f.wake(agentChanged, subject{nodes: []string{a.Node}})
			}
		},
		onDelete: func(a state.AgentPod) {
			f.Agents.Delete(a.PodKey)
			f.wake(agentChanged, subject{nodes: []string{a.Node}})
		},
		missing: anyVersion(f.Agents.Missing),
	}
}

func (f *Feed) ciliumPoolStore() Store {
	return &records[*ciliumv2alpha1.CiliumPodIPPool, *ciliumpool.View]{
		read: ciliumpool.Read,
		onUpsert: func(v *ciliumpool.View) {
			old := f.CiliumPools.Get(v.Name)
			f.ciliumPool(v.Name, f.CiliumPools.Set(v))
			if crd.OwnerOfPool(v.Name) == "" && (old == nil || !old.Marks.Equal(v.Marks)) {
				f.wake(ciliumPoolMarksChanged, subject{})
			}
		},
		onDelete: func(v *ciliumpool.View) { f.ciliumPool(v.Name, f.CiliumPools.Delete(v)) },
		missing:  anyVersion(f.CiliumPools.Missing),
	}
}

// ciliumPool queues a CiliumPodIPPool that has changed, and the nodes concerned if its selectors have.
func (f *Feed) ciliumPool(name string, selector bool) {
	var pools []string
	for _, pool := range f.Pools.Serving(name) {
		pools = append(pools, pool.Name)
	}
	f.wake(ciliumPoolChanged, subject{name: name, pools: pools})
	owner := crd.OwnerOfPool(name)
	if owner != "" {
		f.wake(ownerPoolChanged, subject{name: crd.CiliumPoolOfOwner(owner)})
	}
	if selector && owner != "" {
		f.wake(ownerPoolSelectorChanged, subject{nodes: f.Pods.NodesOf(owner)})
	}
	if selector && owner == "" {
		f.wake(ciliumPoolSelectorChanged, subject{})
	}
}

func (f *Feed) frrConfigurationStore() Store {
	queue := func(v *frrconfig.View, template bool) {
		f.wake(routeChanged, subject{nodes: []string{v.Node}, sameHostname: f.Routes.SameHostname(v.Node)})
		if template {
			f.wake(routeTemplateChanged, subject{})
		}
	}
	return &records[*unstructured.Unstructured, *frrconfig.View]{
		read:     frrconfig.Read,
		onUpsert: func(v *frrconfig.View) { queue(v, f.Routes.Set(v)) },
		onDelete: func(v *frrconfig.View) { queue(v, f.Routes.Delete(v)) },
		missing:  anyVersion(f.Routes.Missing),
	}
}

func (f *Feed) serviceStore() Store {
	return addressStore(f, exclude.Service, &f.services, exclude.OfService)
}

func (f *Feed) endpointStore() Store {
	return addressStore(f, exclude.EndpointSlice, &f.endpoints, exclude.OfEndpoints)
}

// addressStore records the addresses of objects of a kind, which known are few.
func addressStore[O client.Object](f *Feed, kind string, known *services, addressesOf func(O) (assigned, requested []netip.Prefix)) Store {
	onUpsert := func(s serviceAddresses) {
		if known.changes(s) {
			f.wake(exclusionChanged, subject{excluded: f.exclude(kind, s.name, s.assigned)})
			f.ask(kind, s.name, s.created, s.requested)
		}
	}
	return &records[O, serviceAddresses]{
		read: func(o O) serviceAddresses {
			assigned, requested := addressesOf(o)
			return serviceAddresses{o.GetNamespace() + "/" + o.GetName(), o.GetUID(), o.GetCreationTimestamp().Time, assigned, requested}
		},
		onUpsert: onUpsert,
		onDelete: func(s serviceAddresses) { onUpsert(serviceAddresses{name: s.name, uid: s.uid}) },
		missing:  anyVersion(known.gone),
	}
}

// serviceAddresses is the kept part of a Service, or of an EndpointSlice of the API server.
type serviceAddresses struct {
	name                string // namespace/name
	uid                 types.UID
	created             time.Time
	assigned, requested []netip.Prefix
}

// services keeps the names of Services with addresses outside the ServiceCIDRs, which are few.
type services struct {
	mu   sync.Mutex
	uids map[string]types.UID
}

// changes records a Service, and reports whether its addresses may have changed. A Service without
// addresses ends the addresses of the same Service alone, not of a later one with its name.
func (k *services) changes(s serviceAddresses) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(s.assigned)+len(s.requested) > 0 {
		k.uids[s.name] = s.uid
		return true
	}
	if uid, known := k.uids[s.name]; !known || uid != s.uid {
		return false
	}
	delete(k.uids, s.name)
	return true
}

// gone returns the recorded Services that a list does not have.
func (k *services) gone(listed map[types.UID]bool) []serviceAddresses {
	k.mu.Lock()
	defer k.mu.Unlock()
	var out []serviceAddresses
	for name, uid := range k.uids {
		if !listed[uid] {
			out = append(out, serviceAddresses{name: name, uid: uid})
		}
	}
	return out
}

// anyVersion is for records that only the watch changes: every list is later than they
// are.
func anyVersion[R any](missing func(map[types.UID]bool) []R) func(map[types.UID]bool, string) []R {
	return func(listed map[types.UID]bool, _ string) []R { return missing(listed) }
}

// exclude records the addresses of a cluster object that no pod may get. It returns the addresses that
// have become excluded, or are no longer: nodes may hold any of them. SpaceChanged queues the pools.
func (f *Feed) exclude(kind, name string, cidrs []netip.Prefix) []netip.Prefix {
	added, removed := f.Ledger.Exclusions.Exclude(exclude.Claimant{Kind: kind, Name: name}, cidrs)
	return slices.Concat(added, removed)
}

// excludeCiliumNode does so for the CIDRs that a CiliumNode names, which depend on the blocks of
// its node.
func (f *Feed) excludeCiliumNode(name string) []netip.Prefix {
	f.mu.RLock()
	_, hasNode := f.nodes[name]
	f.mu.RUnlock()
	added, removed := f.Ledger.Exclusions.ExcludeCiliumNode(name, hasNode)
	return slices.Concat(added, removed)
}

// ask records the addresses that an object only asks for. SpaceChanged queues the pools.
func (f *Feed) ask(kind, name string, begin time.Time, cidrs []netip.Prefix) {
	f.Ledger.Exclusions.Ask(exclude.Ask{By: exclude.Claimant{Kind: kind, Name: name, Asks: true}, Since: begin, CIDRs: cidrs})
}
