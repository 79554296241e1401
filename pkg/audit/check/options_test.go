package check

import (
	"testing"

	"github.com/cilium-pool/cilium-pool-operator/pkg/config"
)

// An operator that is paused, or runs in shadow, makes no repair.
func TestSettingsOf(t *testing.T) {
	for name, test := range map[string]struct{ paused, shadow, want bool }{
		"it acts": {}, "paused": {paused: true, want: true}, "shadow": {shadow: true, want: true},
	} {
		s := config.DefaultSettings()
		s.Paused, s.Shadow = test.paused, test.shadow
		if got := SettingsOf(s).Paused; got != test.want {
			t.Errorf("%s: paused is %t", name, got)
		}
	}
}
