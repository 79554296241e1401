package invariant

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
)

// model is the state of the whole cluster at one version.
type model struct {
	objects map[Kind]map[string]client.Object
	// views are the CiliumNodes, parsed; deleted are the last states of deleted ones while their
	// Node exists.
	views, deleted map[string]*view
	// byHand are the addresses outside blocks in CiliumNodes that were since deleted, by node,
	// while their Node exists and no block has covered them.
	byHand map[string]map[netip.Addr]bool
	// remade is when a deleted CiliumNode was recreated.
	remade map[string]time.Time
	// published maps an address to the nodes with pools that contain it.
	published map[netip.Addr][]string
	blocks    map[netip.Prefix]*block
	// holds is the number of blocks of a family that a node has.
	holds map[holder]int
	// sizes counts blocks by prefix length.
	sizes  map[int]int
	podsOn map[string]map[string]*corev1.Pod
}

type holder struct {
	node string
	ipv4 bool
}

// block is a PodIPBlock.
type block struct {
	name, node string
	cidr       netip.Prefix
	draining   bool
	// vacated: it needed to leave at least once, so a write decided on then may arrive late.
	vacated bool
	// cooling: it is cooling down, at least since that time; from is the version where that was
	// first seen.
	cooling bool
	since   time.Time
	from    uint64
	// made is the version of its creation. Zero: it existed before.
	made uint64
}

func newModel() *model {
	m := &model{
		objects: map[Kind]map[string]client.Object{},
		views:   map[string]*view{}, deleted: map[string]*view{}, remade: map[string]time.Time{},
		byHand:    map[string]map[netip.Addr]bool{},
		published: map[netip.Addr][]string{},
		blocks:    map[netip.Prefix]*block{}, sizes: map[int]int{}, holds: map[holder]int{},
		podsOn: map[string]map[string]*corev1.Pod{},
	}
	for _, k := range kinds() {
		m.objects[k] = map[string]client.Object{}
	}
	return m
}

// apply makes a change part of the state.
func (m *model) apply(c Change) {
	if c.New == nil {
		delete(m.objects[c.Kind], c.Name)
	} else {
		m.objects[c.Kind][c.Name] = c.New
	}
	switch c.Kind {
	case KindCiliumNode:
		m.setView(c.Name, newView(c), c.Received)
	case KindBlock:
		m.setBlock(blockOf(c.Old), blockOf(c.New), c.Version)
	case KindPod:
		m.setPod(c)
	case KindNode:
		if c.New == nil {
			delete(m.deleted, c.Name)
			delete(m.remade, c.Name)
			delete(m.byHand, c.Name)
		}
	}
}

func (m *model) setView(name string, v *view, at time.Time) {
	old := m.views[name]
	for _, addr := range without(old, v) {
		m.published[addr] = slices.DeleteFunc(m.published[addr], func(n string) bool { return n == name })
		if len(m.published[addr]) == 0 {
			delete(m.published, addr)
		}
	}
	for _, addr := range without(v, old) {
		m.published[addr] = append(m.published[addr], name)
		if was := m.deleted[name]; was != nil {
			delete(was.pool, addr) // it is put back
		}
		delete(m.byHand[name], addr)
	}
	switch {
	case v == nil:
		delete(m.views, name)
		if old != nil && m.objects[KindNode][name] != nil {
			m.deleted[name] = old
			m.keepByHand(name, old)
		}
	case old == nil && m.deleted[name] != nil:
		m.remade[name] = at
		fallthrough
	default:
		m.views[name] = v
	}
}

// keepByHand records which addresses of a deleted CiliumNode lie in no block.
func (m *model) keepByHand(node string, v *view) {
	for addr := range v.pool {
		if len(m.blocksOver(addr)) > 0 {
			continue
		}
		if m.byHand[node] == nil {
			m.byHand[node] = map[netip.Addr]bool{}
		}
		m.byHand[node][addr] = true
	}
}

func blockOf(o client.Object) *block {
	obj, ok := o.(*v1alpha1.PodIPBlock)
	if !ok {
		return nil
	}
	cidr, err := netip.ParsePrefix(obj.Spec.CIDR)
	if err != nil {
		return nil
	}
	b := &block{name: obj.Name, node: obj.Spec.NodeName, cidr: cidr}
	if c := meta.FindStatusCondition(obj.Status.Conditions, v1alpha1.BlockDraining); c != nil && c.Status == "True" {
		b.draining = true
		switch c.Reason {
		case v1alpha1.ReasonDeleted, v1alpha1.ReasonDrainRequested, v1alpha1.ReasonCIDRDraining, v1alpha1.ReasonPoolDeleted, v1alpha1.ReasonNodeUnselected:
			b.vacated = true
		}
	}
	if c := meta.FindStatusCondition(obj.Status.Conditions, v1alpha1.BlockCoolingDown); c != nil && c.Status == "True" {
		b.cooling, b.since = true, c.LastTransitionTime.Time
	}
	return b
}

func (m *model) setBlock(old, b *block, version uint64) {
	if b != nil {
		b.made = version
		if was := m.blocks[b.cidr]; was != nil && old != nil {
			b.made = was.made
			b.vacated = b.vacated || was.vacated
		}
	}
	if b != nil && b.cooling {
		b.from = version
		if was := m.blocks[b.cidr]; was != nil && was.cooling {
			b.from = was.from
		}
	}
	if old != nil {
		delete(m.blocks, old.cidr)
		less(m.sizes, old.cidr.Bits())
		less(m.holds, holder{old.node, old.cidr.Addr().Is4()})
	}
	if b != nil {
		m.blocks[b.cidr] = b
		m.sizes[b.cidr.Bits()]++
		m.holds[holder{b.node, b.cidr.Addr().Is4()}]++
		for _, addrs := range m.byHand {
			maps.DeleteFunc(addrs, func(addr netip.Addr, _ bool) bool { return b.cidr.Contains(addr) })
		}
	}
}

func less[K comparable](counts map[K]int, key K) {
	if counts[key]--; counts[key] == 0 {
		delete(counts, key)
	}
}

func (m *model) setPod(c Change) {
	if old, ok := c.Old.(*corev1.Pod); ok {
		delete(m.podsOn[old.Spec.NodeName], c.Name)
		if len(m.podsOn[old.Spec.NodeName]) == 0 {
			delete(m.podsOn, old.Spec.NodeName)
		}
	}
	pod, ok := c.New.(*corev1.Pod)
	if !ok || pod.Spec.NodeName == "" || pod.Spec.HostNetwork ||
		pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return
	}
	if m.podsOn[pod.Spec.NodeName] == nil {
		m.podsOn[pod.Spec.NodeName] = map[string]*corev1.Pod{}
	}
	m.podsOn[pod.Spec.NodeName][c.Name] = pod
}

// blocksOver returns the blocks that contain an address.
func (m *model) blocksOver(addr netip.Addr) []*block {
	var out []*block
	for _, bits := range slices.Sorted(maps.Keys(m.sizes)) {
		if bits > addr.BitLen() {
			continue
		}
		cidr, err := addr.Prefix(bits)
		if b := m.blocks[cidr]; err == nil && b != nil {
			out = append(out, b)
		}
	}
	return out
}

// heldBy returns the node's own block that contains an address, or nil. Of several it is the
// oldest, because no address of the others may be published.
func (m *model) heldBy(node string, addr netip.Addr) *block {
	var first *block
	for _, b := range m.blocksOver(addr) {
		if b.node == node && (first == nil || b.made < first.made) {
			first = b
		}
	}
	return first
}

// overlapped returns an older block that overlaps b, or nil.
func (m *model) overlapped(b *block) *block {
	if len(m.sizes) < 2 { // blocks of one size do not overlap
		return nil
	}
	for _, other := range m.blocks {
		if other.made < b.made && other.cidr.Overlaps(b.cidr) {
			return other
		}
	}
	return nil
}

// inPool returns a PodIPPool with a CIDR that contains an address; "": none.
func (m *model) inPool(addr netip.Addr) string {
	for name, o := range m.objects[KindPool] {
		pool, ok := o.(*v1alpha1.PodIPPool)
		if !ok {
			continue
		}
		var cidrs []v1alpha1.PoolCIDR
		if pool.Spec.IPv4 != nil {
			cidrs = append(cidrs, pool.Spec.IPv4.CIDRs...)
		}
		if pool.Spec.IPv6 != nil {
			cidrs = append(cidrs, pool.Spec.IPv6.CIDRs...)
		}
		for _, c := range cidrs {
			if cidr, err := netip.ParsePrefix(c.CIDR); err == nil && cidr.Contains(addr) {
				return name
			}
		}
	}
	return ""
}
