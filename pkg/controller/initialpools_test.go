package controller

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/event"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/pool"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/test/fakeapi"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// initialConfig is the ConfigMap with the chart's pools.
func initialConfig(t *testing.T, pools ...*v1alpha1.PodIPPool) *corev1.ConfigMap {
	t.Helper()
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "pools"}, Data: map[string]string{}}
	for _, p := range pools {
		p.APIVersion, p.Kind, p.UID = v1alpha1.GroupVersion.String(), "PodIPPool", ""
		manifest, err := yaml.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		config.Data[p.Name] = string(manifest)
	}
	return config
}

// initialPools is an operator that starts.
func initialPools(b *fakeapi.Cluster) *InitialPools {
	return &InitialPools{
		ConfigMap: client.ObjectKey{Namespace: "kube-system", Name: "pools"},
		Live:      b.API, Client: b.API, Events: b.Events, Shared: b.Shared, Unrecorded: &state.Unrecorded{},
	}
}

// podIPPool returns a pool, or nil.
func podIPPool(b *fakeapi.Cluster, name string) *v1alpha1.PodIPPool {
	b.T.Helper()
	pool := &v1alpha1.PodIPPool{}
	err := b.API.Get(b.T.Context(), types.NamespacedName{Name: name}, pool)
	if client.IgnoreNotFound(err) != nil {
		b.T.Fatal(err)
	}
	if err != nil {
		return nil
	}
	return pool
}

// letGo removes the finalizer of pool p, as the reconciler of pools does.
func letGo(b *fakeapi.Cluster, initial *InitialPools) {
	b.T.Helper()
	r := poolReconciler(b)
	r.Unrecorded = initial.Unrecorded
	if _, err := r.Reconcile(b.T.Context(), fakeapi.RequestOf("p")); err != nil {
		b.T.Fatal(err)
	}
}

// An operator is killed before or after any of its writes, and an administrator deletes the
// pool before the next operator starts. No pool is lost, and the deleted one is not created
// again unless it never existed.
func TestInitialPoolsKilledAtAnyWrite(t *testing.T) {
	for _, outcome := range []fakeapi.Fate{fakeapi.Refused, fakeapi.Unheard} {
		for n := 1; n <= 4; n++ {
			b := fakeapi.New(t, ciliumnode.CRD, initialConfig(t, fixtures.PodIPPool("p", 1, "10.0.0.0/28"), fixtures.PodIPPool("q", 1, "10.1.0.0/28")))
			writes := 0
			b.Fate = func(string) fakeapi.Fate {
				if writes++; writes == n {
					return outcome
				}
				return fakeapi.Done
			}
			if _, err := initialPools(b).createAll(t.Context()); !errors.Is(err, fakeapi.ErrLine) {
				t.Fatalf("killed at write %d: %v", n, err)
			}
			b.Fate = func(string) fakeapi.Fate { return fakeapi.Done }
			deleted := podIPPool(b, "p")
			if deleted != nil {
				if err := b.API.Delete(t.Context(), deleted); err != nil {
					t.Fatal(err)
				}
			}
			next := initialPools(b)
			letGo(b, next) // before it has read anything
			for range 2 {
				if refused, err := next.createAll(t.Context()); refused != 0 || err != nil {
					t.Fatalf("killed at write %d: the next one: %d refused, %v", n, refused, err)
				}
				letGo(b, next)
				next = initialPools(b)
			}
			if got := podIPPool(b, "p"); (got == nil) != (deleted != nil) {
				t.Errorf("killed at write %d (%v): pool p was there: %v, is there: %v", n, outcome, deleted != nil, got != nil)
			}
			if podIPPool(b, "q") == nil {
				t.Errorf("killed at write %d (%v): pool q is lost", n, outcome)
			}
		}
	}
}

func TestInitialPoolsLeaveOthersAlone(t *testing.T) {
	own := fixtures.PodIPPool("p", 1, "10.9.0.0/28")
	b := fakeapi.New(t, ciliumnode.CRD, own, initialConfig(t, fixtures.PodIPPool("p", 1, "10.0.0.0/28"), fixtures.PodIPPool("q", 1, "10.1.0.0/28")))
	if _, err := initialPools(b).createAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := podIPPool(b, "p"); got.Spec.IPv4.CIDRs[0].CIDR != "10.9.0.0/28" || len(got.Finalizers) != 0 {
		t.Errorf("a pool that was there has become %+v", got)
	}
	if got := podIPPool(b, "q"); got == nil || !slices.Contains(got.Finalizers, v1alpha1.Finalizer) {
		t.Errorf("pool q is %+v, want one with its finalizer", got)
	}
	b.Calls = nil
	if _, err := initialPools(b).createAll(t.Context()); err != nil || len(b.Calls) != 0 {
		t.Errorf("all recorded, but the next start writes %v, %v", b.Calls, err)
	}
}

// Without the ConfigMap, Start waits for no pools: Helm created them.
func TestInitialPoolsWithoutConfigMap(t *testing.T) {
	b := fakeapi.New(t, ciliumnode.CRD, fixtures.BeingDeleted(fixtures.Finalized(fixtures.PodIPPool("p", 1, "10.0.0.0/28"))))
	initial := initialPools(b)
	letGo(b, initial)
	if podIPPool(b, "p") == nil {
		t.Fatal("a deleted pool went before it was known whether it has a record")
	}
	if _, err := initial.createAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	letGo(b, initial)
	if podIPPool(b, "p") != nil {
		t.Error("a deleted pool stays")
	}
}

// A pool that cannot be created is reported once, naming the value to correct, and does not
// hold up the others.
func TestInitialPoolRefused(t *testing.T) {
	for name, manifest := range map[string]string{
		"no YAML":      "a: b: c",
		"another kind": "apiVersion: v1\nkind: Pod\nmetadata: {name: bad}\n",
		"another name": "apiVersion: cilium-pool.io/v1alpha1\nkind: PodIPPool\nmetadata: {name: other}\n",
	} {
		t.Run(name, func(t *testing.T) {
			config := initialConfig(t, fixtures.PodIPPool("p", 1, "10.0.0.0/28"))
			config.Data["bad"] = manifest
			b := fakeapi.New(t, ciliumnode.CRD, config)
			initial := initialPools(b)
			for range 2 {
				if refused, err := initial.createAll(t.Context()); refused != 1 || err != nil {
					t.Errorf("%d refused, %v", refused, err)
				}
			}
			if podIPPool(b, "p") == nil {
				t.Error("the other pool is not created")
			}
			if got := b.EventsOf(event.ReasonInitialPoolRefused); len(got) != 1 || !strings.Contains(got[0], "pools.bad in the chart's values") {
				t.Errorf("events: %q", got)
			}
		})
	}
	b := fakeapi.New(t, ciliumnode.CRD)
	initialPools(b).refused(t.Context(), "p", apierrors.NewForbidden(schema.GroupResource{Resource: "podippools"}, "p", errors.New("no right")))
	if got := b.EventsOf(event.ReasonInitialPoolRefused); len(got) != 1 || strings.Contains(got[0], "Correct the value") {
		t.Errorf("no value helps where a right is missing: %q", got)
	}
	if !isRefusal(apierrors.NewInvalid(v1alpha1.GroupVersion.WithKind("PodIPPool").GroupKind(), "p", nil)) {
		t.Error("what the API server holds for invalid is tried again and again")
	}
}

func TestHandedOver(t *testing.T) {
	entry := func(manager string, op metav1.ManagedFieldsOperationType, fields string) metav1.ManagedFieldsEntry {
		raw := &metav1.FieldsV1{}
		raw.SetRawString(fields)
		return metav1.ManagedFieldsEntry{Manager: manager, Operation: op, FieldsV1: raw}
	}
	created := entry(fieldOwner, metav1.ManagedFieldsOperationUpdate,
		`{"f:metadata":{"f:finalizers":{".":{},"v:\"cilium-pool.io/in-use\"":{}},"f:labels":{}},"f:spec":{"f:priority":{}}}`)
	finalizer := entry(fieldOwner, metav1.ManagedFieldsOperationUpdate, `{"f:metadata":{"f:finalizers":{".":{},"v:\"cilium-pool.io/in-use\"":{}}}}`)
	helm := entry("helm", metav1.ManagedFieldsOperationApply, `{"f:metadata":{"f:labels":{}},"f:spec":{"f:priority":{}}}`)
	person := entry("kubectl", metav1.ManagedFieldsOperationUpdate, `{"f:spec":{"f:paused":{}}}`)
	status := created
	status.Subresource = "status"
	for name, test := range map[string]struct {
		have, want []metav1.ManagedFieldsEntry
		mine       bool
	}{
		"as created":          {have: []metav1.ManagedFieldsEntry{created}, want: []metav1.ManagedFieldsEntry{helm, finalizer}, mine: true},
		"edited since":        {have: []metav1.ManagedFieldsEntry{person, created}, want: []metav1.ManagedFieldsEntry{helm, person, finalizer}, mine: true},
		"handed over already": {have: []metav1.ManagedFieldsEntry{helm, finalizer}, want: []metav1.ManagedFieldsEntry{helm, finalizer}},
		"made by another":     {have: []metav1.ManagedFieldsEntry{person, status}, want: []metav1.ManagedFieldsEntry{person, status}},
	} {
		t.Run(name, func(t *testing.T) {
			got, mine := handedOver(test.have)
			if mine != test.mine {
				t.Errorf("mine is %v", mine)
			}
			if diff := cmp.Diff(asJSON(t, test.want), asJSON(t, got)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	out, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func poolReconciler(b *fakeapi.Cluster) *pool.Reconciler {
	b.T.Helper()
	own, err := pool.NewMetrics(prometheus.NewRegistry())
	if err != nil {
		b.T.Fatal(err)
	}
	return &pool.Reconciler{
		Cache: b.Cached(), Live: b.Live(), Client: b.API, Ledger: b.Ledger, Pools: b.Pools, CiliumPools: state.NewCiliumPools(),
		Pacing: b.Pacing, Pressure: b.Pressure,
		Events: b.Events, Metrics: own, Shared: b.Shared, Clock: b.Clock,
	}
}
