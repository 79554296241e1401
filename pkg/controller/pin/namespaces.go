package pin

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// namespaceIn is a namespace with addresses of one family of a pool.
type namespaceIn struct {
	namespace, pool string
	family          ipalloc.Family
}

// errShare means that a namespace has its share of a pool's addresses.
var errShare = errors.New("the namespace keeps as many addresses as one may")

// shareOf returns the number of a pool's addresses that one namespace may keep: half, so that owners
// that are gone do not take a pool from the others. It is unlimited if the pool selects one namespace.
func (k *Keeper) shareOf(ctx context.Context, pool *crd.Pool, f ipalloc.Family) (int, error) {
	if k.spaces == nil {
		list := &corev1.NamespaceList{}
		if err := k.Cache.List(ctx, list); err != nil {
			return 0, fmt.Errorf("listing namespaces: %w", err)
		}
		k.spaces = list
	}
	selected := 0
	for i := range k.spaces.Items {
		if pool.PodAddresses.PicksNamespace(k.spaces.Items[i].Labels) {
			selected++
		}
	}
	if selected <= 1 {
		return math.MaxInt, nil
	}
	cut, _ := pool.Cut(f)
	return int(min(cut.Total(), math.MaxInt-1)+1) / 2, nil
}

// countKept counts the addresses that namespaces keep.
func (k *Keeper) countKept(pins []v1alpha1.PodIPPin) {
	k.perNamespace = map[namespaceIn]int{}
	for key, made := range k.made {
		k.count(key, made.cidr)
	}
	for i := range pins {
		pin, err := crd.PinFrom(&pins[i])
		if err != nil || pin.Owner == "" {
			continue
		}
		key := ownerFamily{pin.Owner, ipalloc.FamilyOf(pin.CIDR.Addr())}
		if made, counted := k.made[key]; !counted || made.cidr != pin.CIDR {
			k.count(key, pin.CIDR)
		}
	}
}

func (k *Keeper) count(key ownerFamily, cidr netip.Prefix) {
	namespace, _, _ := crd.SplitOwner(key.owner)
	for _, pool := range k.pools {
		if pool.Contains(cidr) {
			k.perNamespace[namespaceIn{namespace, pool.Name, key.family}]++
		}
	}
}
