package world

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"

	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
)

// users edit Nodes, CiliumNodes and blocks, and restore backups.
type users struct {
	*World
	backup map[Kind]map[string]client.Object
}

// enableCollect enables the garbage collectors of Kubernetes and Cilium.
func (u *users) enableCollect(m *machine) {
	node := u.api.Get(KindNode, m.name)
	if cn := u.api.Get(KindCiliumNode, m.name); cn != nil && !ownedBy(cn, node) {
		u.can(Collect, m.name, "ciliumnode")
	}
	if node == nil {
		u.can(NodeMake, m.name, "")
	}
	if !m.off {
		return
	}
	for _, slot := range append([]string{"agent"}, u.workload.slots...) {
		if u.api.Get(KindPod, m.podOf(slot)) != nil {
			u.can(Collect, m.name, slot)
		}
	}
}

func (m *machine) podOf(slot string) string {
	if slot == "agent" {
		return "kube-system/cilium-" + m.name
	}
	return m.kubelet.podKey(slot)
}

func ownedBy(obj, owner client.Object) bool {
	for _, ref := range obj.GetOwnerReferences() {
		if owner != nil && ref.UID == owner.GetUID() {
			return true
		}
	}
	return false
}

func (u *users) enablePeople() {
	for _, m := range u.machines {
		u.enableNodeEdits(m)
		u.enableCiliumNodeEdits(m)
		u.canIf(BlockEdits, BlockMake, m.name, "")
		if !u.cfg.Faults.Has(Relist) { // docs/reliability.md: our limits
			u.canIf(BlockEdits, BlockMake, m.name, wide)
		}
		for _, name := range u.poolUsers.servedNow() {
			u.canIf(BlockEdits, BlockMake, m.name, name)
		}
		u.canIf(BlockEdits, PinMake, m.name, "")
		if u.cfg.stays() > 0 {
			u.canIf(BlockEdits, PinMake, m.name, staying+"0")
		}
	}
	if !u.sparesForeign() || u.processes.shownToAll(u.carrier()) { // else an operator could not know of it
		u.canIf(PoolEdits, PoolEdit, people, "add")
	}
	for _, what := range []string{"cordon", "drain", "remove", "min-free", "reserve", "pause", "other"} {
		u.canIf(PoolEdits, PoolEdit, people, what)
	}
	if u.cfg.Maintenance != nil && len(u.cfg.Maintenance.Edits) > 0 {
		u.canIf(PoolEdits, PoolEdit, people, "maintenance")
	}
	if u.cfg.SwitchesFamilies && len(u.cfg.Families) > 1 {
		u.canIf(PoolEdits, PoolEdit, people, "family")
	}
	u.enableBlockEdits()
	u.canIf(Restore, BackupTake, people, "")
	if u.backup != nil && u.allListed() { // the same
		u.canIf(Restore, BackupAgain, people, "")
	}
	u.poolUsers.enableAskingEdits()
	u.poolUsers.enableSelectors()
	u.enableServices()
}

// enableNodeEdits enables the users' edits of a Node.
func (u *users) enableNodeEdits(m *machine) {
	if u.api.Get(KindNode, m.name) == nil {
		return
	}
	if u.cfg.Maintenance != nil && u.cfg.Maintenance.Cordons {
		u.can(Cordon, m.name, "")
	}
	u.enableLabels(m)
	u.enableAddresses(m)
	if u.cfg.Move == nil && (!u.cfg.Settings.Mode.WholeBlocks() || len(u.rules.torn) == 0) { // or no object would be left that names a block
		u.canIf(NodeGone, NodeDelete, m.name, "")
	}
	u.canIf(NodeGone, NodeOff, m.name, "")
}

// enableCiliumNodeEdits enables the users' edits of its CiliumNode.
func (u *users) enableCiliumNodeEdits(m *machine) {
	if u.api.Get(KindCiliumNode, m.name) == nil {
		return
	}
	if (!u.whole() || len(u.rules.torn) == 0) && (!u.sparesForeign() || !u.holdsForeign(m)) { // the same
		u.canIf(CiliumNodeGone, CNDelete, m.name, "")
	}
	for _, what := range []string{"release", "entry", "touch"} {
		u.canIf(Edits, CNEdit, m.name, what)
	}
	// Else people would have to keep it unique (docs/reliability.md).
	if !u.isOurs(foreignOf(m)) && (!u.sparesForeign() || u.processes.shownToAll(KindPool)) {
		u.canIf(Edits, CNEdit, m.name, "foreign")
	}
	if u.cfg.Asking != nil {
		u.canIf(Edits, CNEdit, m.name, "list=blue")
	}
	if len(u.rules.torn) == 0 && u.processes.shownToAll(KindBlock) { // the same
		u.canIf(Edits, CNEdit, m.name, "cidr")
	}
}

// enableBlockEdits enables the users' edits of existing blocks.
func (u *users) enableBlockEdits() {
	for _, name := range u.api.Keys(KindPin) {
		u.canIf(BlockEdits, PinDelete, people, name)
	}
	for _, name := range u.api.Keys(KindBlock) {
		b := u.api.Get(KindBlock, name)
		if b.GetDeletionTimestamp() == nil && (len(b.GetFinalizers()) > 0 || u.allKnow(name)) {
			u.canIf(BlockEdits, BlockDelete, people, name)
		}
		if u.allKnow(name) && u.onGrid(name) {
			u.canIf(Torn, BlockTear, people, name)
			u.canIf(Torn, BlockStrip, people, name)
		}
		u.canIf(Torn, BlockStatus, people, name)
		u.canIf(Edits, Touch, people, name)
	}
}

// foreignOf is the address that users write into a node's pool.
func foreignOf(m *machine) netip.Addr { return netip.MustParseAddr("172.16.0." + m.name[1:]) }

// sparesForeign reports whether addresses that users write into pools may later fall into a range.
func (u *users) sparesForeign() bool {
	return slices.ContainsFunc(u.cfg.Spare, func(c v1alpha1.PoolCIDR) bool {
		return netip.MustParsePrefix(c.CIDR).Contains(foreignOf(u.machines[0]))
	})
}

// holdsForeign reports whether a CiliumNode has the address that users write into it.
func (u *users) holdsForeign(m *machine) bool {
	cn := u.CiliumNode(m.name)
	return cn != nil && contains(slices.Collect(maps.Keys(cn.Spec.IPAM.Pool)), foreignOf(m).String())
}

// allListed reports whether all podCIDRs entries that were removed are back.
func (u *users) allListed() bool {
	whole := true
	for _, m := range u.machines {
		if !m.unlisted {
			continue
		}
		m.unlisted = false
		for _, b := range u.Blocks() {
			m.unlisted = m.unlisted || b.Spec.NodeName == m.name && !u.lists(b)
		}
		whole = whole && !m.unlisted
	}
	return whole
}

// allKnow reports whether a block is published, and all operators know it, with no
// reconcile of its node under way, nor a claim of it for another node. Only then is
// removing it by force safe: the operator does not guard against that while it
// publishes the block, or while a leader sleeps that is about to claim it.
func (u *users) allKnow(name string) bool {
	b := u.api.Get(KindBlock, name).(*v1alpha1.PodIPBlock)
	if !u.lists(b) {
		return false
	}
	for _, o := range u.operators {
		if !o.up {
			continue
		}
		if o.flight("node/"+b.Spec.NodeName) != nil || o.claims(name) {
			return false
		}
		for _, s := range o.streams {
			if _, more := s.next(u.api); s.kind == u.carrier() && (more || len(s.undelivered) > 0) {
				return false
			}
		}
	}
	return true
}

const people = "people"

func (u *users) doPeople(a Action) {
	m := u.machine(a.Who)
	switch a.Verb {
	case Collect:
		u.collect(m, a.What)
	case Configure:
		u.migration.configure(m, a.What)
	case AgentFamilies:
		m.setFamilies(a.What)
	case Cordon, NodeLabel, NodeAddress, NodeMake, NodeDelete, NodeOff:
		u.editNode(m, a)
	case ServiceEdit:
		u.editService(a.What)
	case CNDelete:
		u.mustNot(u.api.Delete(KindCiliumNode, m.name, nil, nil))
	case CNEdit:
		u.editCiliumNode(m, a.What)
	case PoolEdit:
		u.poolUsers.editPool(a.What)
	case BlockMake:
		u.makeAnyBlock(m, a.What)
	case PinMake, PinDelete:
		u.editPin(m, a)
	case BackupTake:
		u.takeBackup()
	case BackupAgain:
		u.restore()
	case EtcdCopy, EtcdBack:
		u.etcd.do(a.Verb)
	case CiliumPoolEdit, NamespaceEdit:
		u.poolUsers.editAsking(a)
	default:
		u.editBlock(a.Verb, a.What)
	}
}

func (u *users) makeAnyBlock(m *machine, pool string) {
	if pool == wide {
		u.makeWideBlock(m)
		return
	}
	u.makeBlock(m, cmp.Or(pool, u.cfg.Pools[0].Name))
}

func (u *users) editNode(m *machine, a Action) {
	switch a.Verb {
	case Cordon:
		u.cordon(m.name)
	case NodeLabel:
		u.label(m.name, a.What)
	case NodeAddress:
		u.setAddress(m.name, a.What)
	case NodeMake:
		m.off = false
		u.makeNode(m.name)
	case NodeOff:
		m.switchOff()
		u.mustNot(u.api.Delete(KindNode, m.name, nil, nil))
	default:
		u.mustNot(u.api.Delete(KindNode, m.name, nil, nil))
	}
}

func (u *users) collect(m *machine, what string) {
	if what == "ciliumnode" {
		u.mustNot(u.api.Delete(KindCiliumNode, m.name, nil, nil))
		return
	}
	u.mustNot(u.api.Delete(KindPod, m.podOf(what), nil, nil))
	if what == "agent" {
		m.kubelet.pod = podState{}
	}
}

func (u *users) editCiliumNode(m *machine, what string) {
	cn := u.api.Get(KindCiliumNode, m.name).(*ciliumv2.CiliumNode).DeepCopy()
	switch what {
	case "release":
		cn.Status.IPAM.ReleaseIPs = nil
		u.must(u.api.Update(cn, true))
		return
	case "entry":
		for _, key := range sortedKeys(cn.Spec.IPAM.Pool) {
			if !m.hasAddress(netip.MustParseAddr(key)) {
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
	u.must(u.api.Update(cn, false))
}

// hasAddress says that a pod or the agent itself has an address.
func (m *machine) hasAddress(addr netip.Addr) bool {
	for _, e := range m.endpoints {
		if contains(e.addrs(), addr) {
			return true
		}
	}
	return contains(slices.Collect(maps.Values(m.router)), addr)
}

func touch(obj client.Object) {
	annotations := map[string]string{"touched": "yes"}
	if obj.GetAnnotations() != nil {
		annotations = nil
	}
	obj.SetAnnotations(annotations)
}

// tear removes an object despite its finalizers.
func (u *users) tear(k Kind, key string) {
	obj := u.api.Get(k, key).DeepCopyObject().(client.Object)
	if len(obj.GetFinalizers()) > 0 {
		obj.SetFinalizers(nil)
		u.must(u.api.Update(obj, false))
	}
	if u.api.Get(k, key) != nil {
		u.mustNot(u.api.Delete(k, key, nil, nil))
	}
}

// unpause undoes the users' actions that prevent rest.
func (u *users) unpause() {
	if pool, ok := u.api.Get(KindPool, u.cfg.Pools[0].Name).(*v1alpha1.PodIPPool); ok && isPaused(pool) {
		u.poolUsers.editPool("pause")
	}
	u.poolUsers.repairSelectors()
	for _, m := range u.machines {
		m.silent = false
		if u.api.Get(KindNode, m.name) == nil {
			u.doPeople(Action{NodeMake, m.name, ""})
		}
		u.untaint(m.name)
	}
}
