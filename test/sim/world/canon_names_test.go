package world

import (
	"reflect"
	"testing"

	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/common"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/event"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/node"
	poolcontroller "github.com/cilium-pool/cilium-pool-operator/pkg/controller/pool"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant"
)

// The canonical form knows some types and fields by name. If one is renamed or moved,
// states that differ could count as equal, and the exhaustive search would skip them.
func TestNamesOfTheCanonicalForm(t *testing.T) {
	ledger := reflect.TypeFor[state.Ledger]()
	nodes, ok := ledger.FieldByName("ciliumNodes")
	if !ok {
		t.Fatal("the ledger has no field ciliumNodes")
	}
	for _, of := range []struct {
		t     reflect.Type
		field string
	}{{ledger, "byNode"}, {nodes.Type, "foreign"}} {
		if _, ok := of.t.FieldByName(of.field); !ok || !ofAll(of.t, of.field) {
			t.Errorf("%s.%s is not among the maps by node of which a reconcile reads all", of.t, of.field)
		}
	}
	blocks, _ := ledger.FieldByName("blocks")
	for _, of := range []struct {
		t     reflect.Type
		field string
	}{{ledger, "byPool"}, {blocks.Type.Elem().Elem(), "inPool"}} {
		if _, ok := of.t.FieldByName(of.field); !ok || !follows(of.t, of.field) {
			t.Errorf("%s.%s is not among the fields that follow from others", of.t, of.field)
		}
	}
	pods, _ := reflect.TypeFor[state.Pods]().FieldByName("byNode")
	if held := pods.Type.Elem().Elem().String(); held != "state.heldPod" {
		t.Errorf("pods are held as %s, not as state.heldPod", held)
	}
	for _, of := range []reflect.Type{
		reflect.TypeFor[node.Metrics](), reflect.TypeFor[poolcontroller.Metrics](), reflect.TypeFor[common.Shared](), reflect.TypeFor[event.Recorder](), reflect.TypeFor[invariant.Stats](),
		reflect.TypeFor[World](), reflect.TypeFor[API](), reflect.TypeFor[Operator](), reflect.TypeFor[queue](),
	} {
		if !left(of) {
			t.Errorf("%s is not left out", of)
		}
	}
}
