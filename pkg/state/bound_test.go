package state_test

import (
	"testing"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

func TestPodsSeenWhenFirstBound(t *testing.T) {
	pods := state.NewPods()
	pods.Set(state.ReadPod(fixtures.Pod("a", "1", "n")), fixtures.Noon())
	pods.Set(state.ReadPod(fixtures.Pod("a", "1", "n", "10.0.0.1")), fixtures.Noon().Add(time.Minute))
	if got := pods.On("n")[0].Seen; !got.Equal(fixtures.Noon()) {
		t.Errorf("first seen at %v, want %v", got, fixtures.Noon())
	}
}
