package world

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
)

// Maintenance limits the times at which blocks drain.
type Maintenance struct {
	// Flags is the policy that the operators' flags set for all pools.
	Flags v1alpha1.Maintenance
	// Edits are the users' settings of the first pool, one after the other.
	Edits []v1alpha1.Maintenance
	// Longest is the longest wait of a block for a window or its turn, if one ever comes.
	Longest time.Duration
	// Cordons: users cordon nodes.
	Cordons bool
}

// apply writes the flags into settings.
func (m *Maintenance) apply(d *crd.Defaults) {
	if m == nil {
		return
	}
	if len(m.Flags.Windows) > 0 {
		d.Maintenance.Windows, d.Maintenance.Problem = crd.WindowsFrom(m.Flags.Windows, nil)
	}
	if m.Flags.BlocksPerHour != nil {
		d.Maintenance.BlocksPerHour = m.Flags.BlocksPerHour.IntValue()
	}
}

// shut reports whether no window of a pool ever opens.
func (m *Maintenance) shut(pool *v1alpha1.PodIPPool) bool {
	if m == nil || pool.Spec.Maintenance.Policy == v1alpha1.MaintenanceUnrestricted {
		return false
	}
	specs := pool.Spec.Maintenance.Windows
	if len(specs) == 0 {
		specs = m.Flags.Windows
	}
	windows, _ := crd.WindowsFrom(specs, nil)
	for from, at := time.Unix(0, 0).UTC(), time.Duration(0); at < time.Hour; at += time.Minute {
		if len(specs) == 0 || windows.At(from.Add(at)).Open {
			return false
		}
	}
	return true
}

// setMaintenance sets the next of the users' edits in the first pool.
func (m *Maintenance) setMaintenance(pool *v1alpha1.PodIPPool) {
	next := 0
	for i, p := range m.Edits {
		if equality.Semantic.DeepEqual(p, pool.Spec.Maintenance) {
			next = (i + 1) % len(m.Edits)
		}
	}
	pool.Spec.Maintenance = *m.Edits[next].DeepCopy()
}

// perMinute is the number of writes of one object per minute that windows may cause: here they open
// and close on the minute, and two leaders may report it.
const perMinute = 4

// ofTheHour reports whether a write only shows that a window has opened or closed, or that a
// block waits for one. Such writes continue as long as there are windows, and are few.
func (r *writeRules) ofTheHour(v Version) bool {
	if r.cfg.Maintenance == nil || !onlyTheHour(v) {
		return false
	}
	minute := r.clock.now.Truncate(time.Minute)
	key := hourKey{v.Kind, v.Key}
	if h := r.hours[key]; h.minute.Equal(minute) {
		r.hours[key] = hour{minute, h.writes + 1}
	} else {
		r.hours[key] = hour{minute, 1}
	}
	return r.hours[key].writes <= perMinute
}

// hour counts the writes of an object in a minute because of windows.
type hour struct {
	minute time.Time
	writes int
}

type hourKey struct {
	kind Kind
	key  string
}

func onlyTheHour(v Version) bool {
	if v.Old == nil || v.New == nil {
		return false
	}
	switch now := v.New.(type) {
	case *v1alpha1.PodIPPool:
		return now.Generation == v.Old.GetGeneration() // its status, with which counts are noted
	case *v1alpha1.PodIPBlock:
		old := v.Old.(*v1alpha1.PodIPBlock)
		return phaseOf(old) == "" && phaseOf(now) == "" && len(old.Finalizers) == len(now.Finalizers)
	}
	return false
}

// cordon cordons or uncordons a node.
func (u *users) cordon(name string) {
	node := u.api.Get(KindNode, name).DeepCopyObject().(*corev1.Node)
	node.Spec.Unschedulable = !node.Spec.Unschedulable
	u.must(u.api.Update(node, false))
}
