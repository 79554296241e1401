package controller

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	iputil "github.com/cilium/cilium/pkg/ip"
	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

func compareNetip() cmp.Option { return cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}) }

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func addrs(list ...string) []netip.Addr {
	var out []netip.Addr
	for _, s := range list {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

func defaults() crd.Defaults {
	return crd.Defaults{Policy: expand.DefaultPolicy(), Cooldown: time.Minute, NodeGoneCooldown: 10 * time.Minute}
}

// noon is when tests begin.
func noon() time.Time { return time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC) }

// podIPPool is a pool object with IPv4 ranges in blocks of /30, made on the
// given day.
func podIPPool(name string, day int, ranges ...string) *v1alpha1.PodIPPool {
	obj := &v1alpha1.PodIPPool{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: types.UID("uid-" + name), Generation: 1,
			CreationTimestamp: metav1.NewTime(time.Date(2026, 1, day, 0, 0, 0, 0, time.UTC)),
		},
		Spec: v1alpha1.PodIPPoolSpec{IPv4: &v1alpha1.IPv4Ranges{BlockSize: 30}},
	}
	for _, r := range ranges {
		obj.Spec.IPv4.CIDRs = append(obj.Spec.IPv4.CIDRs, v1alpha1.PoolCIDR{CIDR: r})
	}
	return obj
}

func poolOf(t testing.TB, obj *v1alpha1.PodIPPool) *crd.Pool {
	t.Helper()
	p, err := crd.PoolFrom(obj, defaults())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// block is a block in service, at a resourceVersion that its UID derives from.
func block(cidr, pool, node string, version int) crd.Block {
	p := prefix(cidr)
	return crd.Block{
		Name: crd.BlockName(p), UID: types.UID(fmt.Sprintf("%s@%d", cidr, version)), ResourceVersion: fmt.Sprint(version),
		CIDR: p, Pool: pool, Node: node,
	}
}

// at is the same block in a later version and another phase.
func at(b crd.Block, version int, phase ipalloc.Phase) crd.Block {
	b.ResourceVersion, b.Phase = fmt.Sprint(version), phase
	return b
}

// readyLedger knows of these blocks, and that there are no others.
func readyLedger(blocks ...crd.Block) *Ledger {
	l := NewLedger()
	for _, b := range blocks {
		l.Observed(b)
	}
	l.SetReady()
	return l
}

func podCIDR(s string) iputil.Prefix { return iputil.PrefixFrom(prefix(s)) }

func allocationMap(keys ...string) ipamtypes.AllocationMap {
	m := ipamtypes.AllocationMap{}
	for _, key := range keys {
		m[key] = ipamtypes.AllocationIP{}
	}
	return m
}

// beingDeleted is the object on its way out.
func beingDeleted[T client.Object](obj T) T {
	out := obj.DeepCopyObject().(T)
	now := metav1.NewTime(noon())
	out.SetDeletionTimestamp(&now)
	return out
}
