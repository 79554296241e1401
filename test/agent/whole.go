package agent

import (
	"maps"
	"net/netip"
	"sync"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/test/agent/multipool"
)

// wholeStore makes the model of an agent that allocates from whole blocks safe for
// concurrent use. IPv4 only.
type wholeStore struct {
	// trigger requests a write. It must not block, nor call back.
	trigger func(reason string)
	// patience is the time that a pod that does not retry counts as waiting.
	patience time.Duration

	mu      sync.Mutex
	model   multipool.Agent
	waiting map[string]time.Time // by owner, until when
}

func newWholeStore(preAllocate int, patience time.Duration, trigger func(reason string)) *wholeStore {
	return &wholeStore{
		trigger: trigger, patience: patience, waiting: map[string]time.Time{},
		model: multipool.Agent{Reserve: preAllocate},
	}
}

// AllocateNext allocates an address for a pod, and requests a write even if there is
// none (multipool_manager.go, allocateNext).
func (s *wholeStore) AllocateNext(owner string) (v4, v6 netip.Addr, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v4, err = s.next(owner)
	s.trigger("allocation for " + owner)
	return v4, v6, err
}

// AllocateNextWithoutSync allocates one of the agent's own addresses.
func (s *wholeStore) AllocateNextWithoutSync(family Family, owner string) (netip.Addr, error) {
	if family != IPv4 {
		return netip.Addr{}, ErrFamilyOff
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.next(owner)
}

func (s *wholeStore) next(owner string) (netip.Addr, error) {
	addr, err := s.model.Allocate(owner)
	if err != nil {
		s.waiting[owner] = time.Now().Add(s.patience)
		return addr, err
	}
	delete(s.waiting, owner)
	return addr, nil
}

// Restore allocates an address that a pod or the agent had before the restart.
func (s *wholeStore) Restore(addr netip.Addr, owner string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.model.Restore(addr, owner)
	if err != nil {
		s.waiting[owner] = time.Now().Add(s.patience)
	}
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
	return maps.Clone(s.model.Live())
}

// sees receives the CIDRs assigned to the agent.
func (s *wholeStore) sees(assigned []netip.Prefix) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.model.Sees(assigned)
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
func (s *wholeStore) update() (cidrs []netip.Prefix, requested int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for owner, until := range s.waiting {
		if time.Now().After(until) {
			s.model.Forget(owner)
			delete(s.waiting, owner)
		}
	}
	return s.model.Update()
}
