package agent

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
)

// Errors of allocation, with Cilium's texts.
var (
	ErrNoCiliumNode = errors.New("CiliumNode for own node is not available")
	ErrNoPool       = errors.New("no IPs available")
	ErrReleasing    = errors.New("IP not available, marked or ready for release")
	ErrNotInPool    = errors.New("IP is not available")
	ErrInUse        = errors.New("IP already in use")
	ErrExcluded     = errors.New("IP is excluded, owned by node-ip")
	ErrFamilyOff    = errors.New("allocation disabled for the address family")
	ErrExhausted    = errors.New("no IPs currently available on the node")
	ErrBadKey       = errors.New("invalid custom IP")
)

// Allocate allocates addr and requests a status write (crd.go:793).
func (s *Store) Allocate(addr netip.Addr, owner string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.allocate(addr, owner); err != nil {
		return err
	}
	s.opts.Trigger("allocation of IP " + addr.String())
	return nil
}

// Restore allocates addr without requesting a status write (AllocateWithoutSyncUpstream,
// crd.go:822).
func (s *Store) Restore(addr netip.Addr, owner string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.allocate(addr, owner)
}

// allocate is allocateIP (allocator.go:65) down to nodeStore.allocate
// (crd.go:548).
func (s *Store) allocate(addr netip.Addr, owner string) error {
	if s.excluded[addr] {
		return ErrExcluded
	}
	allocated, ok := s.allocators[familyOf(addr)]
	if !ok {
		return ErrFamilyOff
	}
	key := addr.String()
	if _, ok := allocated[key]; ok {
		return ErrInUse
	}
	if s.own == nil {
		return ErrNoCiliumNode
	}
	if s.own.Spec.IPAM.Pool == nil {
		return ErrNoPool
	}
	if s.releasing(key) {
		return ErrReleasing
	}
	ip, ok := s.own.Spec.IPAM.Pool[key]
	if !ok {
		return ErrNotInPool
	}
	ip.Owner = owner
	allocated[key] = ip
	return nil
}

// AllocateNext allocates an address of each family for owner, as a CNI ADD does, or none
// (IPAM.AllocateNext, allocator.go:240). For a family that is off it returns the zero address.
func (s *Store) AllocateNext(owner string) (v4, v6 netip.Addr, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.allocators[IPv6]; ok {
		if v6, err = s.next(IPv6, owner, true); err != nil {
			return netip.Addr{}, netip.Addr{}, err
		}
	}
	if _, ok := s.allocators[IPv4]; ok {
		if v4, err = s.next(IPv4, owner, true); err != nil {
			if v6.IsValid() {
				s.release(v6)
			}
			return netip.Addr{}, netip.Addr{}, err
		}
	}
	return v4, v6, nil
}

// AllocateNextWithoutSync allocates one address without requesting a status write, as for the
// router and the health endpoint (crd.go:896).
func (s *Store) AllocateNextWithoutSync(family Family, owner string) (netip.Addr, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.next(family, owner, false)
}

// next is allocateNextFamily (allocator.go:144): if an excluded address turns up, it stays
// allocated and the next one is taken. If the owner path offers an excluded address, the real
// function never returns; this one fails.
func (s *Store) next(family Family, owner string, sync bool) (netip.Addr, error) {
	skipped := map[netip.Addr]bool{}
	for {
		addr, err := s.nextAny(family, owner)
		if err != nil {
			return netip.Addr{}, err
		}
		if sync {
			s.opts.Trigger("allocation of IP " + addr.String())
		}
		if !s.excluded[addr] {
			return addr, nil
		}
		if skipped[addr] {
			return netip.Addr{}, ErrExcluded
		}
		skipped[addr] = true
	}
}

// nextAny is allocateNext (crd.go:586) and markAllocated (crd.go:864).
func (s *Store) nextAny(family Family, owner string) (netip.Addr, error) {
	if s.own == nil {
		return netip.Addr{}, ErrNoCiliumNode
	}
	allocated, ok := s.allocators[family]
	if !ok {
		return netip.Addr{}, ErrFamilyOff
	}
	candidates := s.reservedFor(family, owner)
	if len(candidates) == 0 {
		candidates = s.free(family, allocated)
	}
	if len(candidates) == 0 {
		return netip.Addr{}, ErrExhausted
	}
	key := s.opts.Pick(candidates)
	addr, err := netip.ParseAddr(key)
	if err != nil { // crd.go:598
		return netip.Addr{}, fmt.Errorf("%w %s for %s", ErrBadKey, key, owner)
	}
	ip := s.own.Spec.IPAM.Pool[key]
	ip.Owner = owner
	allocated[addr.String()] = ip
	return addr, nil
}

// reservedFor lists the pool entries that carry owner's name (crd.go:594). Like the real agent it
// ignores the handshake and its own allocations, and a key that is not an address ends the search
// with an error.
func (s *Store) reservedFor(family Family, owner string) []string {
	if owner == "" {
		return nil
	}
	return s.keys(func(key string, ip ipamtypes.AllocationIP) bool {
		addr, err := netip.ParseAddr(key)
		return ip.Owner == owner && (err != nil || familyOf(addr) == family)
	})
}

// free lists the pool entries available to any pod (crd.go:617).
func (s *Store) free(family Family, allocated ipamtypes.AllocationMap) []string {
	return s.keys(func(key string, ip ipamtypes.AllocationIP) bool {
		// The notation of the key counts, not the address.
		if _, ok := allocated[key]; ok || ip.Owner != "" || s.releasing(key) {
			return false
		}
		addr, err := netip.ParseAddr(key)
		return err == nil && familyOf(addr) == family
	})
}

func (s *Store) keys(match func(string, ipamtypes.AllocationIP) bool) []string {
	var keys []string
	for _, key := range slices.Sorted(maps.Keys(s.own.Spec.IPAM.Pool)) {
		if match(key, s.own.Spec.IPAM.Pool[key]) {
			keys = append(keys, key)
		}
	}
	return keys
}

// Release frees addr and requests a status write. It ignores an address that is not allocated
// (releaseIPLocked, allocator.go:291).
func (s *Store) Release(addr netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.release(addr)
}

func (s *Store) release(addr netip.Addr) {
	allocated := s.allocators[familyOf(addr)]
	if _, ok := allocated[addr.String()]; !ok {
		return
	}
	delete(allocated, addr.String())
	s.opts.Trigger("release of IP " + addr.String())
}
