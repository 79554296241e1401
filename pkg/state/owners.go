package state

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
)

// Holders are the pods of owners that have an address, by address.
type Holders map[netip.Addr]*OwnerPod

// HoldersOf returns the pods with addresses.
func HoldersOf(pods []OwnerPod) Holders {
	holders := Holders{}
	for i := range pods {
		for _, addr := range pods[i].IPs {
			holders[addr] = &pods[i]
		}
	}
	return holders
}

// WaitsFor returns that a pod waits for an address that another pod of its owner has; "": it does not.
func (h Holders) WaitsFor(pod *OwnerPod, pins *Pins) string {
	if len(pod.IPs) > 0 {
		return ""
	}
	for _, choice := range pod.Choices {
		owner := crd.OwnerOfPool(choice.Pool)
		if owner == "" {
			continue
		}
		for _, cidr := range pins.Of(owner) {
			if other := h[cidr.Addr()]; other != nil {
				return fmt.Sprintf("it waits for %s, which is kept for %s: pod %s on node %s has it until it ends", cidr.Addr(), crd.OwnerWords(owner), other.Name, other.Node)
			}
		}
	}
	return ""
}

// Release is when the operator deletes a pin that it made and that no node holds in service.
type Release struct {
	// Stays is why it never does; "": it does.
	Stays string
	// Leaves: at once, as the range or the pool drains.
	Leaves bool
	// After is the time since the last pod of the owner.
	After time.Duration
}

// neverHeldFor is how long a pin stays that no node has ever held.
const neverHeldFor = time.Minute

// ReleaseOf returns when a pin that the operator made ends. Where no pool has or keeps the address any more, the default
// of releaseAfter applies.
func (p *Pools) ReleaseOf(obj *v1alpha1.PodIPPin, pin crd.Pin) Release {
	pool := p.Having(pin.CIDR)
	if reason := p.noRelease(pool); reason != "" {
		return Release{Stays: reason}
	}
	if pool != nil && (pool.Drains(pin.CIDR) || pool.Deleting) {
		return Release{Leaves: true}
	}
	if neverHeld(obj) {
		return Release{After: neverHeldFor}
	}
	if pool == nil || pool.PodAddresses == nil {
		return Release{After: crd.DefaultReleaseAfter}
	}
	if pool.PodAddresses.Never {
		return Release{Stays: "releaseAfter of PodIPPool " + pool.Name + " is Never"}
	}
	return Release{After: pool.PodAddresses.ReleaseAfter}
}

// Having returns the pool that has the addresses of a block, or nil. Of overlapping pools it prefers the assigning one.
func (p *Pools) Having(cidr netip.Prefix) (found *crd.Pool) {
	for _, name := range p.Names() {
		if pool := p.Get(name); pool != nil && pool.Overlaps(cidr) && (found == nil || found.Yields(cidr) || pool.Assigns(cidr) && !found.Assigns(cidr)) {
			found = pool
		}
	}
	return found
}

// noRelease returns why the pool of a pin, nil if it has none, lets no pin end; "": it lets them.
func (p *Pools) noRelease(pool *crd.Pool) string {
	isInvalid := func(name string) bool { return p.Invalid(name) != nil }
	if pool == nil {
		names := p.Names()
		if i := slices.IndexFunc(names, isInvalid); i >= 0 {
			return "PodIPPool " + names[i] + " is invalid, and may have it"
		}
		return ""
	}
	if isInvalid(pool.Name) {
		return "PodIPPool " + pool.Name + " is invalid"
	}
	if pool.Paused {
		return "PodIPPool " + pool.Name + " is paused"
	}
	return ""
}

// neverHeld reports whether no node has held the address of a pin: its condition Ready, which is False, is as old as the
// pin. A held address would have cooled down since.
func neverHeld(obj *v1alpha1.PodIPPin) bool {
	ready := meta.FindStatusCondition(obj.Status.Conditions, v1alpha1.PinReady)
	return ready != nil && ready.Status == metav1.ConditionFalse && ready.LastTransitionTime.Sub(obj.CreationTimestamp.Time) < crd.MinMultiPoolCooldown
}
