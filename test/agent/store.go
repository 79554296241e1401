package agent

import (
	"maps"
	"net/netip"
	"sync"

	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// Family is an address family.
type Family string

// The address families (ipam.go:32).
const (
	IPv4 Family = "ipv4"
	IPv6 Family = "ipv6"
)

// familyOf is DeriveFamily (ipam.go:37): an IPv4-mapped address counts as IPv6.
func familyOf(addr netip.Addr) Family {
	if addr.Is6() {
		return IPv6
	}
	return IPv4
}

func (f Family) number() ipalloc.Family {
	if f == IPv6 {
		return ipalloc.IPv6
	}
	return ipalloc.IPv4
}

// StoreOptions configure a Store.
type StoreOptions struct {
	// Families are the families the agent allocates for. Empty: IPv4.
	Families []Family
	// HealthChecking doubles the minimum pool size to 2 (crd.go:335).
	HealthChecking bool
	// Pick chooses one of the pool keys that may be allocated, which are sorted; the real agent
	// takes the first in map order. Nil: the lowest.
	Pick func(candidates []string) string
	// Trigger requests a status write with a reason (pkg/trigger). It is called under the
	// Store's lock: it must neither block nor call back.
	Trigger func(reason string)
}

// Store is the knowledge and the allocations of one run of an agent: nodeStore and its
// crdAllocators (crd.go:59, crd.go:665). It is safe for concurrent use and holds no goroutine,
// clock or client.
//
// Keys of the pool and of the allocations are the strings of the API object, not addresses: two
// spellings of one address must count twice.
type Store struct {
	opts StoreOptions

	mu sync.Mutex
	// seen is the object in the informer's cache, own is the agent's working copy: the same, plus
	// its answers that are not written yet.
	seen, own *ciliumv2.CiliumNode
	// allocators is nil until Open.
	allocators map[Family]ipamtypes.AllocationMap
	excluded   map[netip.Addr]bool
}

// NewStore returns a Store that has seen no object.
func NewStore(opts StoreOptions) *Store {
	if len(opts.Families) == 0 {
		opts.Families = []Family{IPv4}
	}
	if opts.Pick == nil {
		opts.Pick = func(candidates []string) string { return candidates[0] }
	}
	if opts.Trigger == nil {
		opts.Trigger = func(string) {}
	}
	return &Store{opts: opts, excluded: map[netip.Addr]bool{}}
}

// Observe receives the next version of the CiliumNode from the watch; nil: it was deleted. It
// does not modify cn.
func (s *Store) Observe(cn *ciliumv2.CiliumNode) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.seen
	s.seen = cn
	switch {
	case cn == nil: // deleteLocalNodeResource, crd.go:374
		s.own = nil
	case before != nil && before.DeepEqual(cn):
		// setOwnNodeWithoutPoolUpdate, crd.go:149 and crd.go:492: only the metadata changed.
		// Answers that are not written yet are lost here.
		s.own = workingCopy(cn)
	default: // updateLocalNodeResource, crd.go:383
		s.own = workingCopy(cn)
		s.answer()
	}
}

// workingCopy copies the part that an agent changes: the answers in release-ips. The rest stays
// shared with the informer's cache (crd.go:132 copies it all).
func workingCopy(cn *ciliumv2.CiliumNode) *ciliumv2.CiliumNode {
	own := *cn
	own.Status.IPAM.ReleaseIPs = maps.Clone(cn.Status.IPAM.ReleaseIPs)
	return &own
}

// Seen returns the resourceVersion of the CiliumNode that the agent works on; "": there is
// none.
func (s *Store) Seen() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.own == nil {
		return ""
	}
	return s.own.ResourceVersion
}

// pool returns the resourceVersion of the CiliumNode that the agent works on, the number of its
// addresses, and the number of these that are being released.
func (s *Store) pool() (seen string, addresses, leaving int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.own == nil {
		return "", 0, 0
	}
	for key := range s.own.Spec.IPAM.Pool {
		if s.releasing(key) {
			leaving++
		}
	}
	return s.own.ResourceVersion, len(s.own.Spec.IPAM.Pool), leaving
}

// MinimumReached reports whether the pool suffices for the agent to continue its start
// (hasMinimumIPsInPool, crd.go:322, and staticIPStatus, crd.go:361).
func (s *Store) MinimumReached() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.own == nil {
		return false
	}
	spec := s.own.Spec.IPAM
	required := 1
	switch {
	case spec.MinAllocate != 0:
		required = spec.MinAllocate
	case spec.PreAllocate != 0:
		required = spec.PreAllocate
	case s.opts.HealthChecking:
		required = 2
	}
	static := len(spec.StaticIPTags) == 0 || s.own.Status.IPAM.AssignedStaticIP != ""
	return spec.Pool != nil && len(spec.Pool) >= required && static
}

// Open adds the allocators, empty (newCRDAllocator, crd.go:685). Until then
// the agent neither allocates nor answers for addresses in its pool.
func (s *Store) Open() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.allocators = map[Family]ipamtypes.AllocationMap{}
	for _, f := range s.opts.Families {
		s.allocators[f] = ipamtypes.AllocationMap{}
	}
}

// Exclude prevents the allocation of addr, an address of the node itself (ExcludeIP,
// ipam.go:248).
func (s *Store) Exclude(addr netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.excluded[addr] = true
}

// Report returns the object of the next full UpdateStatus; nil: there is no CiliumNode
// (refreshNode, crd.go:514). The update is conditional on its resourceVersion. The caller may
// modify it.
func (s *Store) Report() *ciliumv2.CiliumNode {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.own == nil {
		return nil
	}
	cn := s.own.DeepCopy()
	cn.Status.IPAM.Used = ipamtypes.AllocationMap{}
	for _, allocated := range s.allocators {
		maps.Copy(cn.Status.IPAM.Used, allocated)
	}
	return cn
}

// Allocated returns the allocated addresses and their owners (Dump, crd.go:916).
func (s *Store) Allocated() map[netip.Addr]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[netip.Addr]string{}
	for _, allocated := range s.allocators {
		for key, ip := range allocated {
			// Allocations are always written in canonical form.
			if addr, err := netip.ParseAddr(key); err == nil {
				all[addr] = ip.Owner
			}
		}
	}
	return all
}
