package world

import (
	"testing"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
)

// TestWindowsAreReadAlike compares the judge's reading of windows with the operator's, second
// by second, so that a violation is never a mistake of the judge.
func TestWindowsAreReadAlike(t *testing.T) {
	w := func(schedule string, d time.Duration) v1alpha1.MaintenanceWindow {
		return v1alpha1.MaintenanceWindow{Schedule: schedule, Duration: v1alpha1.NewDuration(d)}
	}
	tests := map[string]struct {
		windows []v1alpha1.MaintenanceWindow
		shut    bool
	}{
		"none":            {},
		"often":           {windows: []v1alpha1.MaintenanceWindow{w("*/5 * * * *", 2*time.Minute)}},
		"two, that meet":  {windows: []v1alpha1.MaintenanceWindow{w("*/10 * * * *", time.Minute), w("3 * * * *", 30*time.Minute)}},
		"beyond the hour": {windows: []v1alpha1.MaintenanceWindow{w("50 * * * *", 15*time.Minute)}},
		"half a minute":   {windows: []v1alpha1.MaintenanceWindow{w("*/15 * * * *", 90*time.Second)}},
		"never":           {windows: []v1alpha1.MaintenanceWindow{w("0 0 29 2 *", time.Hour)}, shut: true},
		"unreadable":      {windows: []v1alpha1.MaintenanceWindow{w("61 * * * *", time.Hour)}, shut: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := &Maintenance{Flags: v1alpha1.MaintenancePolicy{Windows: test.windows}}
			pool := &v1alpha1.PodIPPool{}
			defaults := crd.Defaults{}
			m.apply(&defaults)
			opened := 0
			for at := time.Date(2026, 1, 1, 11, 0, 0, 0, time.UTC); at.Hour() < 13; at = at.Add(time.Second) {
				want := defaults.Maintenance.Windows.At(at).Open
				if got := m.isOpen(pool, at); got != want {
					t.Fatalf("at %s: open %t, and the operator says %t", at, got, want)
				}
				if want {
					opened++
				}
			}
			if got := m.shut(pool); got != test.shut || got != (opened == 0) {
				t.Errorf("shut %t, want %t; it was open for %d seconds", got, test.shut, opened)
			}
		})
	}
	t.Run("a pool may say that it is always open", func(t *testing.T) {
		m := &Maintenance{Flags: v1alpha1.MaintenancePolicy{Windows: tests["never"].windows}}
		if pool := (&v1alpha1.PodIPPool{Spec: v1alpha1.PodIPPoolSpec{Maintenance: v1alpha1.MaintenancePolicy{Mode: v1alpha1.MaintenanceUnrestricted}}}); m.shut(pool) {
			t.Error("shut")
		}
	})
}
