package agent

import (
	"cmp"
	"net/netip"
	"sync"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/agent/multipool"
)

// wholeStore makes the model of an agent that allocates from whole blocks safe for
// concurrent use. A Cilium pool "" is pool default (PoolOrDefault).
type wholeStore struct {
	// trigger requests a write. It must not block, nor call back.
	trigger func(reason string)
	// patience is the time that a pod that does not retry counts as waiting.
	patience time.Duration

	mu      sync.Mutex
	model   *multipool.Pools
	waiting map[waiter]time.Time // until when
}

// waiter is an owner that waits for an address.
type waiter struct {
	pool   string
	family ipalloc.Family
	owner  string
}

func newWholeStore(model *multipool.Pools, patience time.Duration, trigger func(reason string)) *wholeStore {
	return &wholeStore{trigger: trigger, patience: patience, waiting: map[waiter]time.Time{}, model: model}
}

// AllocateNext allocates an address of each family for a pod, IPv6 first, or none, and requests a
// write even then (allocator.go, AllocateNext; multipool_manager.go, allocateNext).
func (s *wholeStore) AllocateNext(owner string, from ciliumPools) (v4, v6 netip.Addr, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.trigger("allocation for " + owner)
	if s.model.IPv6 {
		if v6, err = s.next(ipalloc.IPv6, owner, from[ipalloc.IPv6]); err != nil {
			return netip.Addr{}, netip.Addr{}, err
		}
	}
	if v4, err = s.next(ipalloc.IPv4, owner, from[ipalloc.IPv4]); err != nil {
		s.model.Release(v6)
		return netip.Addr{}, netip.Addr{}, err
	}
	return v4, v6, nil
}

// AllocateNextWithoutSync allocates one of the agent's own addresses.
func (s *wholeStore) AllocateNextWithoutSync(family Family, owner string) (netip.Addr, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.next(family.number(), owner, "")
}

func (s *wholeStore) next(f ipalloc.Family, owner, pool string) (netip.Addr, error) {
	pool = cmp.Or(pool, crd.DefaultCiliumPool)
	addr, err := s.model.Allocate(pool, f, owner)
	s.note(waiter{pool, f, owner}, err)
	return addr, err
}

// note records whether an owner waits after an attempt.
func (s *wholeStore) note(w waiter, err error) {
	if delete(s.waiting, w); err != nil {
		s.waiting[w] = time.Now().Add(s.patience)
	}
}

// Restore allocates an address that a pod or the agent had before the restart.
func (s *wholeStore) Restore(addr netip.Addr, owner, pool string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	pool = cmp.Or(pool, crd.DefaultCiliumPool)
	err := s.model.Restore(pool, addr, owner)
	s.note(waiter{pool, ipalloc.FamilyOf(addr), owner}, err)
	return err
}

// Release frees an address and requests a write.
func (s *wholeStore) Release(addr netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.model.Release(addr)
	s.trigger("release of IP " + addr.String())
}

// Exclude is empty: no address of a node lies in its blocks.
func (s *wholeStore) Exclude(netip.Addr) {}

// Allocated returns the allocated addresses and their owners.
func (s *wholeStore) Allocated() map[netip.Addr]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.model.Owners()
}

// sees receives the CIDRs assigned to the agent.
func (s *wholeStore) sees(cn *ciliumv2.CiliumNode) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.model.SeesAll(cn)
}

func (s *wholeStore) ready() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.model.Ready()
}

func (s *wholeStore) restored() {
	s.mu.Lock()
	s.model.Restored()
	s.mu.Unlock()
	s.trigger("restore finished")
}

// update drops unneeded CIDRs, and returns the write.
func (s *wholeStore) update() []multipool.Share {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w, until := range s.waiting {
		if time.Now().After(until) {
			s.model.Forget(w.pool, w.family, w.owner)
			delete(s.waiting, w)
		}
	}
	return s.model.Update()
}
