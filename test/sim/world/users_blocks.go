package world

import (
	"encoding/binary"
	"net/netip"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
)

// onGrid reports whether a block has its pool's size. A block of another size is not recreated
// after it was torn away (docs/reliability.md), and its published addresses are then foreign.
func (u *users) onGrid(name string) bool {
	b := u.Block(name)
	cidr := cidrOf(b)
	pool, ok := u.api.Get(KindPool, b.Spec.PoolName).(*v1alpha1.PodIPPool)
	if !ok {
		return true
	}
	_, bits := ranges(pool, cidr.Addr().Is4())
	return cidr.Bits() >= bits
}

func (u *users) editBlock(verb Verb, name string) {
	obj := u.api.Get(KindBlock, name).(*v1alpha1.PodIPBlock).DeepCopy()
	switch verb {
	case BlockDelete:
		u.mustNot(u.api.Delete(KindBlock, name, nil, nil))
	case BlockTear:
		u.tear(KindBlock, name)
	case BlockStrip:
		obj.Finalizers = nil
		u.must(u.api.Update(obj, false))
	case BlockStatus:
		obj.Status = v1alpha1.PodIPBlockStatus{}
		u.must(u.api.Update(obj, true))
	case Touch:
		touch(obj)
		u.must(u.api.Update(obj, false))
	default:
		panic("no such action: " + string(verb))
	}
}

// makeBlock creates the highest free block of a pool's first range for a node, as other tools do.
func (u *users) makeBlock(m *machine, of string) {
	free := func(cidr netip.Prefix) bool {
		return u.api.Get(KindBlock, crd.BlockName(cidr)) == nil && !u.space.named(cidr)
	}
	if cidr := u.highest(of, free); cidr.IsValid() {
		u.create(cidr, of, m.name)
	}
}

func (u *users) editPin(m *machine, a Action) {
	if a.Verb == PinDelete {
		u.mustNot(u.api.Delete(KindPin, a.What, nil, nil))
		return
	}
	if u.workload.stays(a.What) {
		u.makePodPin(a.What)
		return
	}
	u.makePin(m)
}

// makePodPin pins the highest address of the pool that keeps addresses, which nobody has, to the owner of a pod.
func (u *users) makePodPin(slot string) {
	open := func(cidr netip.Prefix) bool {
		return u.api.Get(KindPin, crd.BlockName(cidr)) == nil && u.api.Get(KindBlock, crd.BlockName(cidr)) == nil
	}
	if cidr := u.highest(u.cfg.Asking.keeps().Name, open); cidr.IsValid() {
		u.must(u.api.Create(&v1alpha1.PodIPPin{
			ObjectMeta: metav1.ObjectMeta{Name: crd.BlockName(cidr)}, Spec: crd.PinSpec(cidr, podOwner(u.workload.named(slot))),
		}))
	}
}

// makePin pins the highest block of the first pool's first range that is not pinned to a node, held
// by another or not.
func (u *users) makePin(m *machine) {
	open := func(cidr netip.Prefix) bool { return u.api.Get(KindPin, crd.BlockName(cidr)) == nil }
	if cidr := u.highest(u.cfg.Pools[0].Name, open); cidr.IsValid() {
		u.must(u.api.Create(&v1alpha1.PodIPPin{
			ObjectMeta: metav1.ObjectMeta{Name: crd.BlockName(cidr)}, Spec: v1alpha1.PodIPPinSpec{CIDR: cidr.String(), NodeName: m.name},
		}))
	}
}

// highest returns the highest block of a pool's first range that is fit; invalid: there is none.
func (u *users) highest(of string, fit func(netip.Prefix) bool) netip.Prefix {
	pool, ok := u.api.Get(KindPool, of).(*v1alpha1.PodIPPool)
	if !ok || pool.Spec.IPv4 == nil {
		return netip.Prefix{}
	}
	rng, bits := netip.MustParsePrefix(pool.Spec.IPv4.CIDRs[0].CIDR), int(pool.Spec.IPv4.BlockSize)
	for i := 1<<(bits-rng.Bits()) - 1; i >= 0; i-- {
		if cidr := nth(rng, bits, i); fit(cidr) {
			return cidr
		}
	}
	return netip.Prefix{}
}

// create creates a block as other tools do.
func (u *users) create(cidr netip.Prefix, pool, node string) {
	block := crd.NewBlock(cidr, pool, node, "")
	block.Finalizers = nil
	u.must(u.api.Create(block))
}

// wide stands for a block of twice its pool's size.
const wide = "wide"

// makeWideBlock creates the lowest free one for a node: an operator that does not know of it yet
// would claim there next.
func (u *users) makeWideBlock(m *machine) {
	pool, ok := u.api.Get(KindPool, u.cfg.Pools[0].Name).(*v1alpha1.PodIPPool)
	if !ok || pool.Spec.IPv4 == nil {
		return
	}
	rng, bits := netip.MustParsePrefix(pool.Spec.IPv4.CIDRs[0].CIDR), int(pool.Spec.IPv4.BlockSize)-1
	for i := range 1 << max(0, bits-rng.Bits()) {
		if cidr := nth(rng, bits, i); u.space.isFree(cidr, &v1alpha1.PodIPPoolSpec{}) {
			u.create(cidr, pool.Name, m.name)
			return
		}
	}
}

// nth returns the i-th prefix of a length in rng, which spans at most 2^32 addresses.
func nth(rng netip.Prefix, bits, i int) netip.Prefix {
	a := rng.Addr().AsSlice()
	low := a[len(a)-4:]
	binary.BigEndian.PutUint32(low, binary.BigEndian.Uint32(low)+uint32(i)<<(rng.Addr().BitLen()-bits))
	addr, _ := netip.AddrFromSlice(a)
	return netip.PrefixFrom(addr, bits)
}

// takeBackup saves pools and blocks for restore.
func (u *users) takeBackup() {
	u.backup = map[Kind]map[string]client.Object{}
	for _, k := range []Kind{KindPool, KindBlock} {
		u.backup[k] = map[string]client.Object{}
		for _, key := range u.api.Keys(k) {
			u.backup[k][key] = u.api.Get(k, key)
		}
	}
}

// restore restores pools and blocks as a tool does that copies objects, not etcd: with new UIDs
// and without a status. CIDRs that now belong to another node are skipped.
func (u *users) restore() {
	for _, k := range []Kind{KindPool, KindBlock} {
		for _, key := range sortedKeys(u.backup[k]) {
			obj := u.backup[k][key].DeepCopyObject().(client.Object)
			if now := u.api.Get(k, key); now != nil {
				if k == KindBlock && now.(*v1alpha1.PodIPBlock).Spec.NodeName != obj.(*v1alpha1.PodIPBlock).Spec.NodeName {
					continue
				}
				if k == KindPool && crd.CiliumPoolObjectName(now.(*v1alpha1.PodIPPool)) != crd.CiliumPoolObjectName(obj.(*v1alpha1.PodIPPool)) {
					continue // which cannot be changed
				}
				u.tear(k, key)
			}
			obj.SetResourceVersion("")
			u.must(u.api.Create(obj))
		}
	}
}
