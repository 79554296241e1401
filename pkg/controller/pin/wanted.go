package pin

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/exclude"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// addressRefused says why an owner does not get the address that a pod of it names.
type addressRefused string

func (r addressRefused) Error() string {
	return fmt.Sprintf("the annotation %s is not followed: %s", state.AddressAnnotation, string(r))
}

// keepsAnother returns an error if an address other than the wanted one is kept for an owner.
func (k *Keeper) keepsAnother(key ownerFamily, wanted netip.Addr) error {
	kept := slices.DeleteFunc(k.Ledger.Pins.Of(key.owner), func(cidr netip.Prefix) bool { return !key.contains(cidr) })
	if !wanted.IsValid() || len(kept) == 0 || slices.ContainsFunc(kept, func(cidr netip.Prefix) bool { return cidr.Addr() == wanted }) {
		return nil
	}
	return addressRefused(fmt.Sprintf("%s is kept for %s already. To change it, scale its workload to 0, delete PodIPPin %s, and scale up once kubectl get podipblocks shows %s no more",
		kept[0].Addr(), crd.OwnerWords(key.owner), crd.BlockName(kept[0]), kept[0].Addr()))
}

// whyRefused says why a pool has an address for no further owner.
func (k *Keeper) whyRefused(cidr netip.Prefix, pool *crd.Pool) string {
	if pins := k.Ledger.Pins.In(cidr); len(pins) > 0 {
		return fmt.Sprintf("%s is kept for %s", cidr.Addr(), keptFor(pins[0].Owner.Node))
	}
	if blocks := k.Ledger.HeldIn(cidr); len(blocks) > 0 {
		return fmt.Sprintf("node %s holds %s", blocks[0].Owner.Node, cidr.Addr())
	}
	if excluded := k.Ledger.Exclusions.Excluded(cidr); len(excluded) > 0 {
		return fmt.Sprintf("%s covers %s", cidr.Addr(), exclude.Words(excluded, nil))
	}
	if !pool.AssignsNow(cidr) {
		return fmt.Sprintf("PodIPPool %s does not give %s away: %s", pool.Name, cidr.Addr(), whyNot(pool, crd.Pin{CIDR: cidr}))
	}
	return fmt.Sprintf("%s is not free: a CiliumNode names it, or a pin of it is being made", cidr.Addr())
}

// keptFor names whom a pin is for: an owner or a node.
func keptFor(of string) string {
	if crd.IsOwner(of) {
		return crd.OwnerWords(of)
	}
	return "node " + of
}
