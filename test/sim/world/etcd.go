package world

import (
	"net/netip"
	"slices"
	"strconv"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
)

// etcd is put back to an older copy: all objects are as they were, and agents have what they have now. Its processes
// have noticed it, as the Lease shows (cmd/cilium-pool-operator/restore.go).
type etcd struct {
	*World
	// copied is the number of versions of each kind in the copy; nil: there is none.
	copied *[kindCount]int
	// restored: the Lease says so, until the leader's recovery has ended.
	restored bool
	since    time.Time // of the last restore
}

func (e *etcd) enable() {
	if !e.cfg.EtcdRestores || e.restored {
		return
	}
	e.can(EtcdCopy, people, "")
	if e.copied != nil && e.fits() {
		e.can(EtcdBack, people, "")
	}
}

// fits reports whether all agents run, as one that starts does not restore pods outside its pool, and no
// block of the copy has moved to another node since (docs/reliability.md).
func (e *etcd) fits() bool {
	if slices.ContainsFunc(e.machines, func(m *machine) bool { return m.phase != serving }) {
		return false
	}
	for _, obj := range e.api.at(KindBlock, e.copied[KindBlock]) {
		b := obj.(*v1alpha1.PodIPBlock)
		for _, m := range e.machines {
			if m.name != b.Spec.NodeName && m.uses(cidrOf(b)) {
				return false
			}
		}
	}
	return true
}

// uses reports whether a pod or the agent itself has an address of a CIDR.
func (m *machine) uses(cidr netip.Prefix) bool {
	for _, e := range m.endpoints {
		if slices.ContainsFunc(e.addrs(), cidr.Contains) {
			return true
		}
	}
	for _, own := range m.router {
		if own.IsValid() && cidr.Contains(own) {
			return true
		}
	}
	return false
}

func (e *etcd) do(verb Verb) {
	if verb == EtcdCopy {
		e.copied = &[kindCount]int{}
		for k := range kindCount {
			e.copied[k] = len(e.api.history[k])
		}
		return
	}
	for _, o := range e.operators {
		if o.up {
			o.crash()
		}
	}
	e.api.putBack(e.copied)
	e.copied = nil
	e.restored = true
	e.since = e.clock.now
	e.rules = newWriteRules(e.World)
	e.api.stored = e.rules.stored
	for k := range kindCount {
		for _, key := range e.api.Keys(k) {
			obj := e.api.Get(k, key)
			e.rules.stored(Version{Kind: k, Key: key, Version: e.api.version, New: obj})
		}
	}
	for _, m := range e.machines { // kubelets restart (docs/operations.md)
		m.kubelet.writePod()
	}
}

// putBack replaces all objects by those after so many versions of each kind. Watches deliver the differences, as after
// the list with which each begins again.
func (a *API) putBack(versions *[kindCount]int) {
	a.stored = nil
	for k := range kindCount {
		copied := a.at(k, versions[k])
		for _, key := range a.Keys(k) {
			if copied[key] == nil {
				a.remove(k, key, a.Get(k, key))
			}
		}
		for _, key := range sortedKeys(copied) {
			old := a.Get(k, key)
			if old == copied[key] {
				continue
			}
			obj := copied[key].DeepCopyObject().(client.Object)
			a.version++
			obj.SetResourceVersion(strconv.FormatUint(a.version, 10))
			a.objects[k][key] = obj
			a.log(Version{Kind: k, Key: key, Version: a.version, Old: old, New: obj})
		}
	}
}

// lead lets a process that leads begin a recovery, if the Lease asks for one.
func (e *etcd) lead(o *Operator) {
	if e.restored {
		o.recovery.Begin(true, processClock{o}.Now())
	}
}

// agentsRewrite runs the refresh of multi-pool agents, from a minute after a restore on. Each agent compares its CiliumNode with
// its own list (refreshPoolInterval in pkg/ipam/multipool_manager.go, Cilium v1.20.2).
func (e *etcd) agentsRewrite() {
	if !e.restored || e.clock.now.Sub(e.since) < time.Minute {
		return
	}
	for _, m := range e.machines {
		if m.whole == nil || m.phase != serving {
			continue
		}
		m.observeAll()
		m.update()
	}
}

// look ends the leader's recovery in time, as pkg/controller/recovery.go does each second.
func (e *etcd) look() {
	o := e.processes.lease.holder
	if !e.restored || o == nil || !o.running() || !o.leads || !o.begun {
		return
	}
	now := processClock{o}.Now()
	if o.recovery.MayEnd(len(o.parts.Node.Cluster.AwaitsReport(now)), o.settings.Defaults.NodeGoneCooldown, now) {
		o.recovery.End()
		e.restored = false
		e.Counts.Did["recover"]++
	}
}

// checkClaim checks that until agents have reported nodes only get blocks back that they use.
func (e *etcd) checkClaim(b *v1alpha1.PodIPBlock) {
	if !e.restored {
		return
	}
	if f := e.rules.writer.current; !e.machine(b.Spec.NodeName).uses(cidrOf(b)) && (f == nil || !f.knewUse(cidrOf(b))) {
		e.violate(1, "block %s was claimed for node %s, which uses none of it, before agents had reported after a restore of etcd", b.Name, b.Spec.NodeName)
	}
	e.Counts.Did["get back"]++
}

// knewUse reports whether the status of a pod named an address of a CIDR when the reconcile began: it may have ended since.
func (f *flight) knewUse(cidr netip.Prefix) bool {
	for addr := range f.pods {
		if cidr.Contains(addr) {
			return true
		}
	}
	return false
}
