package informer

import (
	"net/netip"
	"slices"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cilium-pool/cilium-pool-operator/pkg/exclude"
)

// exclude records the addresses of a cluster object that no pod may get, and queues the
// nodes that hold any of them. Changed queues the pools.
func (f *Feed) exclude(kind, name string, cidrs []netip.Prefix) {
	f.queueHolders(f.Ledger.Exclude(exclude.Claimant{Kind: kind, Name: name}, cidrs))
}

// excludeCiliumNode does so for the CIDRs that a CiliumNode names, which depend on the blocks of
// its node.
func (f *Feed) excludeCiliumNode(name string) { f.queueHolders(f.Ledger.ExcludeCiliumNode(name)) }

func (f *Feed) queueHolders(added, removed []netip.Prefix) {
	for _, p := range slices.Concat(added, removed) {
		for _, held := range f.Ledger.HeldIn(p) {
			f.QueueNode(held.Owner.Node)
		}
	}
}

func (f *Feed) serviceCIDR(s *networkingv1.ServiceCIDR) {
	f.exclude(exclude.ServiceCIDR, s.Name, exclude.OfServices(s))
}

func (f *Feed) serviceCIDRGone(s *networkingv1.ServiceCIDR) {
	f.exclude(exclude.ServiceCIDR, s.Name, nil)
}

func (f *Feed) loadBalancerPool(p *ciliumv2.CiliumLoadBalancerIPPool) {
	f.offer(p.Name, exclude.OfLoadBalancerPool(p))
}

func (f *Feed) offer(name string, ranges []netip.Prefix) {
	if f.Ledger.OfferToServices(name, ranges) {
		f.AllPools() // no other change would queue them
	}
}

func (f *Feed) loadBalancerPoolGone(p *ciliumv2.CiliumLoadBalancerIPPool) {
	f.offer(p.Name, nil)
}

// serviceAddresses is the kept part of a Service.
type serviceAddresses struct {
	name  string // namespace/name
	uid   types.UID
	cidrs []netip.Prefix
}

// serviceStore keeps the names of Services with addresses outside the ServiceCIDRs, which are
// few.
func (f *Feed) serviceStore() Store {
	return &records[*corev1.Service, serviceAddresses]{
		read: func(s *corev1.Service) serviceAddresses {
			return serviceAddresses{s.Namespace + "/" + s.Name, s.UID, exclude.OfService(s)}
		},
		there: f.service,
		gone: func(s serviceAddresses) {
			s.cidrs = nil
			f.service(s)
		},
		missing: anyVersion(f.missingServices),
	}
}

// service records the addresses of a Service. A Service without addresses ends the addresses of the
// same Service alone, not of a later one with its name.
func (f *Feed) service(s serviceAddresses) {
	f.mu.Lock()
	known, there := f.services[s.name]
	switch {
	case len(s.cidrs) > 0:
		f.services[s.name] = s.uid
	case !there || known != s.uid:
		f.mu.Unlock()
		return
	default:
		delete(f.services, s.name)
	}
	f.mu.Unlock()
	f.exclude(exclude.Service, s.name, s.cidrs)
}

func (f *Feed) missingServices(listed map[types.UID]bool) []serviceAddresses {
	f.mu.RLock()
	defer f.mu.RUnlock()
	var out []serviceAddresses
	for name, uid := range f.services {
		if !listed[uid] {
			out = append(out, serviceAddresses{name: name, uid: uid})
		}
	}
	return out
}
