package migrate

import (
	"strings"
	"testing"
)

// A restart clears the report of crd mode since Cilium 1.20. For older agents, and unknown ones,
// people get the command that does.
func TestReports(t *testing.T) {
	for image, advises := range map[string]bool{"cilium:v1.19.9": true, "cilium:v1.20.1": false, "": true} {
		if got := reports("n1", image); strings.Contains(got, "kubectl patch ciliumnode n1 ") != advises {
			t.Errorf("image %q: %s", image, got)
		}
	}
}
