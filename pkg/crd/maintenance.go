package crd

import (
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/window"
)

// Maintenance holds the times when drains may begin, and their number in an hour. The zero
// Maintenance allows all.
type Maintenance struct {
	// Windows are the times when drains may begin. Nil: at any time.
	Windows *window.Set
	// BlocksPerHour limits the drains that begin in an hour; 0: no limit.
	BlocksPerHour int
	// Unrestricted: the pool's policy sets neither, whatever the defaults are.
	Unrestricted bool
	// Problem is the fault of invalid windows or of an unknown policy; no window opens then. Nodes
	// must not lack addresses because of that, so the pool is valid otherwise.
	Problem error
}

// Delay returns the reason that keeps drains from beginning at now. The caller enforces the rate.
func (m *Maintenance) Delay(now time.Time) expand.Obstacle {
	current := m.Windows.At(now)
	if current.Open {
		return expand.Obstacle{}
	}
	if current.Until.IsZero() {
		return expand.Obstacle{Reason: expand.WaitNoWindow}
	}
	return expand.Obstacle{Reason: expand.WaitWindow, Until: current.Until}
}

// parseMaintenance merges the spec with the defaults.
func parseMaintenance(spec *v1alpha1.Maintenance, defaults Maintenance, path *field.Path) (Maintenance, field.ErrorList) {
	if spec.Policy == v1alpha1.MaintenanceUnrestricted {
		return Maintenance{Unrestricted: true}, nil
	}
	m := defaults
	problems := setLimit(&m.BlocksPerHour, spec.BlocksPerHour, v1alpha1.Unlimited, 1_000_000, path.Child("blocksPerHour"))
	if spec.RatePolicy == v1alpha1.RateUnlimited {
		m.BlocksPerHour = 0
	}
	if len(spec.Windows) > 0 {
		m.Windows, m.Problem = WindowsFrom(spec.Windows, path.Child("windows"))
	}
	if spec.Policy != "" && spec.Policy != v1alpha1.MaintenanceScheduled {
		m.Windows = window.NewSet()
		m.Problem = field.Invalid(path.Child("policy"), spec.Policy,
			"this version of the operator does not know it, and opens no window: write Scheduled or Unrestricted, or upgrade the operator")
	}
	return m, problems
}

// maxWindows is the most windows of a pool, as in the API.
const maxWindows = 16

// WindowsFrom reads windows, and accepts none that the API refuses. If one is invalid, it returns a
// set that never opens and an error that names each.
func WindowsFrom(specs []v1alpha1.MaintenanceWindow, path *field.Path) (*window.Set, error) {
	var windows []window.Window
	var problems field.ErrorList
	if len(specs) > maxWindows {
		problems = append(problems, field.TooMany(path, len(specs), maxWindows))
	}
	for i, s := range specs {
		length, err := s.Duration.Parse()
		if err != nil {
			problems = append(problems, field.Invalid(path.Index(i).Child("duration"), s.Duration, err.Error()))
			continue
		}
		w, err := window.Parse(s.Schedule, length, s.TimeZone)
		if err != nil {
			problems = append(problems, field.Invalid(path.Index(i), s.Schedule, err.Error()))
			continue
		}
		windows = append(windows, w)
	}
	if len(problems) > 0 {
		return window.NewSet(), problems.ToAggregate()
	}
	return window.NewSet(windows...), nil
}
