package main

import (
	"strings"
	"testing"

	"github.com/cilium-pool/cilium-pool-operator/pkg/config"
	"github.com/cilium-pool/cilium-pool-operator/test/bench/floor"
)

// Floors have as many requests in flight as the operator has by default, and the page says
// so.
func TestWorkers(t *testing.T) {
	if got := config.DefaultSettings().NodeWorkers; got != floor.Workers {
		t.Errorf("the operator has %d workers by default, floors %d", got, floor.Workers)
	}
	if want := "`--node-workers=32`"; !strings.Contains(operator().settings, want) {
		t.Errorf("its settings lack %s: %s", want, operator().settings)
	}
}
