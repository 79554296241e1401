package integration

import (
	"fmt"
	"slices"
	"testing"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The operator ends the tracking of fields with the first address that it publishes. Neither
// the agent's reports nor later blocks start it again; a client that applies the object does.
func TestManagedFieldsAreDropped(t *testing.T) {
	e := newEnv(t)
	e.start(quick())
	e.pool("all", nil, "10.1.0.0/24")
	a := e.node("n1", nil)
	e.Pods("n1", "load", 40)
	e.running("load", 40)
	e.hasBlocks("n1", 2)
	e.eventuallyOn("all use is reported, and no field is tracked", "n1", func(cn *ciliumv2.CiliumNode) error {
		if len(cn.Status.IPAM.Used) != len(a.Addresses()) || len(cn.ManagedFields) > 0 {
			return fmt.Errorf("%d used of %d held, managed fields %v", len(cn.Status.IPAM.Used), len(a.Addresses()), cn.ManagedFields)
		}
		return nil
	})

	applied := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "cilium.io/v2", "kind": "CiliumNode",
		"metadata": map[string]any{"name": "n1", "annotations": map[string]any{"example.com/rack": "7"}},
	}}
	e.Must(e.Client.Apply(e.Ctx, client.ApplyConfigurationFromUnstructured(applied), client.FieldOwner("inventory")))
	e.Pods("n1", "more", 30)
	e.running("more", 30)
	e.hasBlocks("n1", 3)
	cn := e.theCiliumNode("n1")
	byInventory := func(m metav1.ManagedFieldsEntry) bool {
		return m.Manager == "inventory" && m.Operation == metav1.ManagedFieldsOperationApply
	}
	if !slices.ContainsFunc(cn.ManagedFields, byInventory) || cn.Annotations["example.com/rack"] != "7" {
		t.Errorf("annotations %v, managed fields %v: want those applied", cn.Annotations, cn.ManagedFields)
	}
}

func TestManagedFieldsAreKept(t *testing.T) {
	e := newEnv(t)
	s := quick()
	s.KeepManagedFields = true
	e.start(s)
	e.pool("all", nil, "10.1.0.0/24")
	e.node("n1", nil)
	e.Pods("n1", "load", 40)
	e.running("load", 40)
	e.hasBlocks("n1", 2)
	if cn := e.theCiliumNode("n1"); len(cn.ManagedFields) == 0 {
		t.Error("no managed fields are left")
	}
}
