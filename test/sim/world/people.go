package world

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
)

// enableCollect enables what the garbage collectors of Kubernetes and Cilium do about a Node
// that is gone.
func (w *World) enableCollect(m *machine) {
	node := w.api.Get(KindNode, m.name)
	if cn := w.api.Get(KindCiliumNode, m.name); cn != nil && !ownedBy(cn, node) {
		w.can(Collect, m.name, "ciliumnode")
	}
	if node == nil {
		w.can(NodeMake, m.name, "")
	}
	if !m.off {
		return
	}
	for _, slot := range append([]string{"agent"}, w.slots...) {
		if w.api.Get(KindPod, m.podOf(slot)) != nil {
			w.can(Collect, m.name, slot)
		}
	}
}

func (m *machine) podOf(slot string) string {
	if slot == "agent" {
		return "kube-system/cilium-" + m.name
	}
	return m.podKey(slot)
}

func ownedBy(obj, owner client.Object) bool {
	for _, ref := range obj.GetOwnerReferences() {
		if owner != nil && ref.UID == owner.GetUID() {
			return true
		}
	}
	return false
}

func (w *World) enablePeople() {
	for _, m := range w.machines {
		w.enableNodeEdits(m)
		w.enableCiliumNodeEdits(m)
		w.canIf(BlockEdits, BlockMake, m.name, "")
		if !w.cfg.Faults.Has(Relist) { // docs/reliability.md: what we do not promise
			w.canIf(BlockEdits, BlockMake, m.name, wide)
		}
		for _, name := range w.servedNow() {
			w.canIf(BlockEdits, BlockMake, m.name, name)
		}
	}
	if !w.sparesForeign() || w.shownToAll(w.carrier()) { // else an operator could not know of it
		w.canIf(PoolEdits, PoolEdit, people, "add")
	}
	for _, what := range []string{"cordon", "drain", "remove", "min-free", "reserve", "pause", "other"} {
		w.canIf(PoolEdits, PoolEdit, people, what)
	}
	if w.cfg.Maintenance != nil && len(w.cfg.Maintenance.Edits) > 0 {
		w.canIf(PoolEdits, PoolEdit, people, "maintenance")
	}
	if w.cfg.SwitchesFamilies && len(w.cfg.Families) > 1 {
		w.canIf(PoolEdits, PoolEdit, people, "family")
	}
	w.enableBlockEdits()
	w.canIf(Restore, BackupTake, people, "")
	if w.backup != nil && w.allListed() { // the same
		w.canIf(Restore, BackupAgain, people, "")
	}
	w.enableAskingEdits()
	w.enableSelectors()
	w.enableServices()
}

// enableNodeEdits enables what users can do to a Node.
func (w *World) enableNodeEdits(m *machine) {
	if w.api.Get(KindNode, m.name) == nil {
		return
	}
	if w.cfg.Maintenance != nil && w.cfg.Maintenance.Cordons {
		w.can(Cordon, m.name, "")
	}
	w.enableLabels(m)
	w.enableAddresses(m)
	if w.cfg.Move == nil && (!w.cfg.Settings.Mode.WholeBlocks() || len(w.torn) == 0) { // or nothing would be left that names a block
		w.canIf(NodeGone, NodeDelete, m.name, "")
	}
	w.canIf(NodeGone, NodeOff, m.name, "")
}

// enableCiliumNodeEdits enables what users can do to its CiliumNode.
func (w *World) enableCiliumNodeEdits(m *machine) {
	if w.api.Get(KindCiliumNode, m.name) == nil {
		return
	}
	if !w.whole() || len(w.torn) == 0 { // the same
		w.canIf(CiliumNodeGone, CNDelete, m.name, "")
	}
	for _, what := range []string{"release", "entry", "touch"} {
		w.canIf(Edits, CNEdit, m.name, what)
	}
	// Else people would have to keep it unique (docs/reliability.md).
	if !w.isOurs(foreignOf(m)) && (!w.sparesForeign() || w.shownToAll(KindPool)) {
		w.canIf(Edits, CNEdit, m.name, "foreign")
	}
	if w.cfg.Asking != nil {
		w.canIf(Edits, CNEdit, m.name, "list=blue")
	}
	if len(w.torn) == 0 && w.shownToAll(KindBlock) { // the same
		w.canIf(Edits, CNEdit, m.name, "cidr")
	}
}

// enableBlockEdits enables what users can do to existing blocks.
func (w *World) enableBlockEdits() {
	for _, name := range w.api.Keys(KindBlock) {
		b := w.api.Get(KindBlock, name)
		if b.GetDeletionTimestamp() == nil && (len(b.GetFinalizers()) > 0 || w.allKnow(name)) {
			w.canIf(BlockEdits, BlockDelete, people, name)
		}
		if w.allKnow(name) && w.onGrid(name) {
			w.canIf(Torn, BlockTear, people, name)
			w.canIf(Torn, BlockStrip, people, name)
		}
		w.canIf(Torn, BlockStatus, people, name)
		w.canIf(Edits, Touch, people, name)
	}
}

// shownToAll reports whether every running operator has received all versions of a kind.
func (w *World) shownToAll(kind Kind) bool {
	for _, o := range w.operators {
		for _, s := range o.streams {
			if _, more := s.next(w.api); o.up && s.kind == kind && (more || len(s.undelivered) > 0) {
				return false
			}
		}
	}
	return true
}

// foreignOf is the address that users write into a node's pool.
func foreignOf(m *machine) netip.Addr { return netip.MustParseAddr("172.16.0." + m.name[1:]) }

// isOurs reports whether an address belongs to a pool or a block.
func (w *World) isOurs(addr netip.Addr) bool {
	holds := func(cidr string) bool {
		p, err := netip.ParsePrefix(cidr)
		return err == nil && p.Contains(addr)
	}
	for _, name := range w.api.Keys(KindPool) {
		cidrs, _ := ranges(w.api.Get(KindPool, name).(*v1alpha1.PodIPPool), addr.Is4())
		if slices.ContainsFunc(cidrs, func(c v1alpha1.PoolCIDR) bool { return holds(c.CIDR) }) {
			return true
		}
	}
	return slices.ContainsFunc(w.api.Keys(KindBlock), func(name string) bool {
		return holds(w.api.Get(KindBlock, name).(*v1alpha1.PodIPBlock).Spec.CIDR)
	})
}

// sparesForeign reports whether addresses that users write into pools by hand may later fall
// into a range.
func (w *World) sparesForeign() bool {
	return slices.ContainsFunc(w.cfg.Spare, func(c v1alpha1.PoolCIDR) bool {
		return netip.MustParsePrefix(c.CIDR).Contains(foreignOf(w.machines[0]))
	})
}

// allListed reports whether all podCIDRs entries that were removed are back.
func (w *World) allListed() bool {
	whole := true
	for _, m := range w.machines {
		if !m.unlisted {
			continue
		}
		m.unlisted = false
		for _, name := range w.api.Keys(KindBlock) {
			if b := w.api.Get(KindBlock, name).(*v1alpha1.PodIPBlock); b.Spec.NodeName == m.name && !w.lists(b) {
				m.unlisted = true
			}
		}
		whole = whole && !m.unlisted
	}
	return whole
}

// allKnow reports whether a block is published, and all operators know it, with no
// reconcile of its node under way, nor a claim of it for another node. Only then is
// removing it by force safe: the operator does not guard against that while it
// publishes the block, or while a leader sleeps that is about to claim it.
func (w *World) allKnow(name string) bool {
	b := w.api.Get(KindBlock, name).(*v1alpha1.PodIPBlock)
	if !w.lists(b) {
		return false
	}
	for _, o := range w.operators {
		if !o.up {
			continue
		}
		if o.flight("node/"+b.Spec.NodeName) != nil || o.claims(name) {
			return false
		}
		for _, s := range o.streams {
			if _, more := s.next(w.api); s.kind == w.carrier() && (more || len(s.undelivered) > 0) {
				return false
			}
		}
	}
	return true
}

const people = "people"

func (w *World) doPeople(a Action) {
	w.Counts.Faults[string(a.Verb)]++
	m := w.machine(a.Who)
	switch a.Verb {
	case Collect:
		w.collect(m, a.What)
	case Configure:
		w.configure(m, a.What)
	case AgentFamilies:
		m.setFamilies(a.What)
	case Cordon, NodeLabel, NodeAddress, NodeMake, NodeDelete, NodeOff:
		w.editNode(m, a)
	case ServiceEdit:
		w.editService(a.What)
	case CNDelete:
		w.mustNot(w.api.Delete(KindCiliumNode, m.name, nil, nil))
	case CNEdit:
		w.editCiliumNode(m, a.What)
	case PoolEdit:
		w.editPool(a.What)
	case BlockMake:
		if a.What == wide {
			w.Counts.Faults["block of another size made"]++
			w.makeWideBlock(m)
		} else {
			w.makeBlock(m, cmp.Or(a.What, w.cfg.Pools[0].Name))
		}
	case BackupTake:
		w.takeBackup()
	case BackupAgain:
		w.restore()
	case CiliumPoolEdit, NamespaceEdit:
		w.editAsking(a)
	default:
		w.editBlock(a.Verb, a.What)
	}
}

func (w *World) editNode(m *machine, a Action) {
	switch a.Verb {
	case Cordon:
		w.cordon(m.name)
	case NodeLabel:
		w.label(m.name, a.What)
	case NodeAddress:
		w.setAddress(m.name, a.What)
	case NodeMake:
		m.off = false
		w.makeNode(m.name)
	case NodeOff:
		m.switchOff()
		w.mustNot(w.api.Delete(KindNode, m.name, nil, nil))
	default:
		w.mustNot(w.api.Delete(KindNode, m.name, nil, nil))
	}
}

func (w *World) collect(m *machine, what string) {
	if what == "ciliumnode" {
		w.mustNot(w.api.Delete(KindCiliumNode, m.name, nil, nil))
		return
	}
	w.mustNot(w.api.Delete(KindPod, m.podOf(what), nil, nil))
	if what == "agent" {
		m.pod = podState{}
	}
}

func (w *World) editCiliumNode(m *machine, what string) {
	cn := w.api.Get(KindCiliumNode, m.name).(*ciliumv2.CiliumNode).DeepCopy()
	switch what {
	case "release":
		cn.Status.IPAM.ReleaseIPs = nil
		w.must(w.api.Update(cn, true))
		return
	case "entry":
		for _, key := range sortedKeys(cn.Spec.IPAM.Pool) {
			if addr, err := netip.ParseAddr(key); err == nil && !m.has(addr) {
				delete(cn.Spec.IPAM.Pool, key)
				break
			}
		}
	case "foreign":
		if cn.Spec.IPAM.Pool == nil {
			cn.Spec.IPAM.Pool = ipamtypes.AllocationMap{}
		}
		cn.Spec.IPAM.Pool[foreignOf(m).String()] = ipamtypes.AllocationIP{}
	case "cidr":
		if len(cn.Spec.IPAM.PodCIDRs) > 0 {
			cn.Spec.IPAM.PodCIDRs = cn.Spec.IPAM.PodCIDRs[1:]
			m.unlisted = true
		}
	case "touch":
		touch(cn)
	default:
		_, pool, _ := strings.Cut(what, "=")
		m.listForeign(cn, pool)
	}
	w.must(w.api.Update(cn, false))
}

// has says that a pod or the agent itself has an address.
func (m *machine) has(addr netip.Addr) bool {
	for _, e := range m.endpoints {
		if contains(e.addrs(), addr) {
			return true
		}
	}
	for _, own := range m.router {
		if own == addr {
			return true
		}
	}
	return false
}

func touch(obj client.Object) {
	annotations := map[string]string{"touched": "yes"}
	if obj.GetAnnotations() != nil {
		annotations = nil
	}
	obj.SetAnnotations(annotations)
}

// tear removes an object despite its finalizers.
func (w *World) tear(k Kind, key string) {
	obj := w.api.Get(k, key).DeepCopyObject().(client.Object)
	if len(obj.GetFinalizers()) > 0 {
		obj.SetFinalizers(nil)
		w.must(w.api.Update(obj, false))
	}
	if w.api.Get(k, key) != nil {
		w.mustNot(w.api.Delete(k, key, nil, nil))
	}
}

// unpause undoes what users did that prevents rest.
func (w *World) unpause() {
	if pool, ok := w.api.Get(KindPool, w.cfg.Pools[0].Name).(*v1alpha1.PodIPPool); ok && pool.Spec.Paused {
		w.editPool("pause")
	}
	w.repairSelectors()
	for _, m := range w.machines {
		m.silent = false
		if w.api.Get(KindNode, m.name) == nil {
			w.doPeople(Action{NodeMake, m.name, ""})
		}
		w.untaint(m.name)
	}
}
