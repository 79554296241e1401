package invariant_test

import (
	"testing"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant"
)

// Only the agent's own addresses may retire, in a block that must leave, while the agent can take
// others.
func TestRetiredAddresses(t *testing.T) {
	router := func(w *world) { w.status("a", func(cn *ciliumv2.CiliumNode) { use(cn, "10.9.0.1", "router") }) }
	tests := map[string]struct {
		plant  func(*world)
		breaks bool
	}{
		"the router's, of a deleted block": {plant: func(w *world) {
			router(w)
			w.drain(expand.Deleted)
			w.release("a", "10.9.0.1", "released")
		}},
		"the health endpoint's, of a CIDR that drains": {plant: func(w *world) {
			w.cilium("a", func(cn *ciliumv2.CiliumNode) { cn.Spec.HealthAddressing.IPv4 = "10.9.0.1" })
			w.drain(expand.CIDRDraining)
			w.release("a", "10.9.0.1", "released")
		}},
		"the router's, of a node that its pool no longer selects": {plant: func(w *world) {
			router(w)
			w.drain(expand.NodeUnselected)
			w.release("a", "10.9.0.1", "released")
		}},
		"by a write that was decided on before the drain was undone": {plant: func(w *world) {
			router(w)
			w.drain(expand.PoolDeleted)
			w.serve()
			w.release("a", "10.9.0.1", "released")
		}},
		"of a block in service": {breaks: true, plant: func(w *world) {
			router(w)
			w.release("a", "10.9.0.1", "released")
		}},
		"of a block that is reclaimed": {breaks: true, plant: func(w *world) {
			router(w)
			w.drain(expand.Reclaim)
			w.release("a", "10.9.0.1", "released")
		}},
		"a pod's, by the report": {breaks: true, plant: func(w *world) {
			w.status("a", func(cn *ciliumv2.CiliumNode) { use(cn, "10.9.0.1", "default/x") })
			w.drain(expand.Deleted)
			w.release("a", "10.9.0.1", "released")
		}},
		"a pod's, by its status": {breaks: true, plant: func(w *world) {
			router(w)
			w.drain(expand.Deleted)
			w.RunningPod("a", "x", "10.9.0.1")
			w.release("a", "10.9.0.1", "released")
		}},
		"a free one": {breaks: true, plant: func(w *world) {
			w.drain(expand.Deleted)
			w.release("a", "10.9.0.1", "released")
		}},
		"while there is no other": {breaks: true, plant: func(w *world) {
			w.status("a", func(cn *ciliumv2.CiliumNode) {
				use(cn, "10.9.0.1", "router")
				use(cn, "10.9.0.2", "default/x")
				use(cn, "172.16.0.1", "default/y")
			})
			w.drain(expand.Deleted)
			w.release("a", "10.9.0.1", "released")
		}},
		"while there is one for two": {breaks: true, plant: func(w *world) {
			w.status("a", func(cn *ciliumv2.CiliumNode) {
				use(cn, "10.9.0.1", "router")
				use(cn, "10.9.0.2", "health")
			})
			w.drain(expand.Deleted)
			w.release("a", "10.9.0.1", "released")
			w.release("a", "10.9.0.2", "released")
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var want []string
			if test.breaks {
				want = []string{"2 CiliumNode a"}
			}
			judged(t, invariant.Options{}, want, test.plant)
		})
	}
}

func (w *world) drain(why expand.Reason) { w.phase(ipalloc.Draining, why) }

func (w *world) serve() { w.phase(ipalloc.InService, expand.None) }

// phase sets the phase of node a's block.
func (w *world) phase(phase ipalloc.Phase, why expand.Reason) {
	w.TB.Helper()
	b := &v1alpha1.PodIPBlock{}
	w.Read(b, "", "10.9.0.0-30")
	crd.SetBlockPhase(b, phase, why, "", time.Now())
	w.UpdateStatus(b)
}
