package pool

import (
	"time"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
)

const (
	// usedEvery is the least time between the last write of a status and one of used alone.
	usedEvery = time.Minute
	// usedParts is the number of parts of used, of which one must change for such a write.
	usedParts = 20
)

// setUsed adds the numbers of addresses in use, where agents report them.
func (u *poolUsage) setUsed(pool *crd.Pool, used [2]int64) {
	for i := range u.Families {
		if f := &u.Families[i]; !pool.WholeBlocks {
			f.Status.Addresses.Used = &used[f.Family]
		}
	}
}

// mayWrite reports whether a status that differs from the old one may be written now. One that
// differs in used alone waits for wait, or until more changes: used follows every pod.
func (r *Reconciler) mayWrite(obj *v1alpha1.PodIPPool, old *v1alpha1.PodIPPoolStatus, now time.Time) (wait time.Duration, may bool) {
	rest, much := obj.Status.DeepCopy(), false
	for _, f := range [][2]*v1alpha1.FamilyStatus{{old.IPv4, rest.IPv4}, {old.IPv6, rest.IPv6}} {
		if was, is := f[0], f[1]; was != nil && is != nil {
			much = much || changedMuch(was.Addresses.Used, is.Addresses.Used)
			is.Addresses.Used = was.Addresses.Used
		}
	}
	last, _ := r.wrote.Load(obj.Name)
	at, _ := last.(time.Time) // zero: this process has not written it
	switch wait = at.Add(usedEvery).Sub(now); {
	case !equality.Semantic.DeepEqual(old, rest), much && wait <= 0:
		return 0, true
	case much:
		return wait, false
	}
	return 0, false
}

func changedMuch(was, is *int64) bool {
	if was == nil || is == nil {
		return was != is
	}
	by := max(*is-*was, *was-*is)
	return by > 0 && by*usedParts >= *was
}
