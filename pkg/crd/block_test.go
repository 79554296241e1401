package crd_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

func noon() time.Time { return time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC) }

func condition(kind, reason string, status metav1.ConditionStatus, at time.Time) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, LastTransitionTime: metav1.NewTime(at)}
}

func TestBlockFrom(t *testing.T) {
	draining := condition(v1alpha1.BlockDraining, "Reclaim", metav1.ConditionTrue, noon())
	cooling := condition(v1alpha1.BlockCoolingDown, "Returned", metav1.ConditionTrue, noon().Add(time.Minute))
	base := func(change func(*v1alpha1.PodIPBlock)) *v1alpha1.PodIPBlock {
		obj := crd.NewBlock(prefixes("10.20.0.32/27")[0], "beijing", "n1", "node-uid")
		obj.UID, obj.ResourceVersion, obj.CreationTimestamp = "uid", "7", birth(1)
		if change != nil {
			change(obj)
		}
		return obj
	}
	plain := func(change func(*crd.Block)) crd.Block {
		b := crd.Block{
			Name: "10.20.0.32-27", UID: "uid", ResourceVersion: "7",
			CIDR: prefixes("10.20.0.32/27")[0], Pool: "beijing", Node: "n1", NodeUID: "node-uid",
			Created: birth(1).Time, Finalized: true,
		}
		if change != nil {
			change(&b)
		}
		return b
	}
	tests := map[string]struct {
		obj  *v1alpha1.PodIPBlock
		want crd.Block
	}{
		"new": {base(nil), plain(nil)},
		"draining": {
			base(func(o *v1alpha1.PodIPBlock) { o.Status.Conditions = []metav1.Condition{draining} }),
			plain(func(b *crd.Block) { b.Phase, b.Reason, b.Since = ipalloc.Draining, expand.Reclaim, noon() }),
		},
		"cooling down wins": {
			base(func(o *v1alpha1.PodIPBlock) { o.Status.Conditions = []metav1.Condition{draining, cooling} }),
			plain(func(b *crd.Block) {
				b.Phase, b.Reason, b.Since = ipalloc.CoolingDown, expand.Returned, noon().Add(time.Minute)
			}),
		},
		"conditions that are not True": {
			base(func(o *v1alpha1.PodIPBlock) {
				o.Status.Conditions = []metav1.Condition{
					condition(v1alpha1.BlockDraining, "Reclaim", metav1.ConditionFalse, noon()),
					condition(v1alpha1.BlockConflict, "Overlap", metav1.ConditionUnknown, noon()),
				}
			}),
			plain(nil),
		},
		"its drain has not begun": {
			base(func(o *v1alpha1.PodIPBlock) {
				o.Status.Conditions = []metav1.Condition{condition(v1alpha1.BlockDraining, "CIDRDraining", metav1.ConditionFalse, noon())}
				o.Status.WaitsFor = &v1alpha1.BlockWait{Reason: "NoWindow", Message: "a window"}
			}),
			plain(func(b *crd.Block) {
				b.Obstacle = expand.Obstacle{Reason: expand.WaitNoWindow, Request: expand.CIDRDraining, Note: "a window"}
			}),
		},
		"it drains, and pods use it": {
			base(func(o *v1alpha1.PodIPBlock) {
				o.Status.Conditions, o.Status.WaitsFor = []metav1.Condition{draining}, &v1alpha1.BlockWait{Reason: "Pods"}
			}),
			plain(func(b *crd.Block) {
				b.Phase, b.Reason, b.Since, b.Obstacle = ipalloc.Draining, expand.Reclaim, noon(), expand.Obstacle{Reason: expand.WaitPods}
			}),
		},
		"by hand, in conflict, on its way out": {
			base(func(o *v1alpha1.PodIPBlock) {
				o.Finalizers, o.DeletionTimestamp = []string{"other"}, ptr(birth(2))
				o.Status.Conditions = []metav1.Condition{condition(v1alpha1.BlockConflict, "Overlap", metav1.ConditionTrue, noon())}
			}),
			plain(func(b *crd.Block) { b.Finalized, b.Deleting, b.Conflict = false, true, true }),
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := crd.BlockFrom(tt.obj)
			if err != nil {
				t.Fatal(err)
			}
			checkEqual(t, "block", tt.want, got)
		})
	}
}

func TestBlockFromMalformed(t *testing.T) {
	tests := map[string]struct {
		name   string
		spec   v1alpha1.PodIPBlockSpec
		cidr   string // the part that is read all the same
		errors []string
	}{
		"empty": {
			errors: []string{
				`spec.cidr: Invalid value: "": is not a CIDR`,
				"spec.poolName: Required value: name the PodIPPool",
				"spec.nodeName: Required value: name the Node",
			},
		},
		"host bits": {
			name: "10.0.0.1-27", spec: v1alpha1.PodIPBlockSpec{CIDR: "10.0.0.1/27", PoolName: "p", NodeName: "n"}, cidr: "10.0.0.0/27",
			errors: []string{`spec.cidr: Invalid value: "10.0.0.1/27": has host bits set: write 10.0.0.0/27`},
		},
		"not canonical": {
			name: "FD00--122", spec: v1alpha1.PodIPBlockSpec{CIDR: "FD00::/122", PoolName: "p", NodeName: "n"}, cidr: "fd00::/122",
			errors: []string{`spec.cidr: Invalid value: "FD00::/122": is not in canonical form: write fd00::/122`},
		},
		"IPv4-mapped": {
			name: "0--ffff-10.0.0.0-122", spec: v1alpha1.PodIPBlockSpec{CIDR: "::ffff:10.0.0.0/122", PoolName: "p", NodeName: "n"},
			errors: []string{`spec.cidr: Invalid value: "::ffff:10.0.0.0/122": holds IPv4-mapped addresses`},
		},
		"name": {
			name: "mine", spec: v1alpha1.PodIPBlockSpec{CIDR: "10.0.0.0/27", PoolName: "p", NodeName: "n"}, cidr: "10.0.0.0/27",
			errors: []string{`metadata.name: Invalid value: "mine": does not follow from spec.cidr: must be 10.0.0.0-27`},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			b, err := crd.BlockFrom(&v1alpha1.PodIPBlock{ObjectMeta: metav1.ObjectMeta{Name: tt.name}, Spec: tt.spec})
			checkProblems(t, err, tt.errors)
			if tt.cidr == "" && b.CIDR.IsValid() || tt.cidr != "" && b.CIDR.String() != tt.cidr {
				t.Errorf("CIDR read is %s, want %q", b.CIDR, tt.cidr)
			}
		})
	}
}

// The write of Published says of a block that nothing drains that it does not drain, also of its
// present generation, and leaves a drain that has not begun alone.
func TestSetBlockPublishedWritesDraining(t *testing.T) {
	waits := expand.Obstacle{Reason: expand.WaitTurn, Request: expand.CIDRDraining, Note: "its turn"}
	for name, test := range map[string]struct {
		drain  bool
		before func(*v1alpha1.PodIPBlock)
		want   string
	}{
		"just claimed":                 {want: "False InService 2"},
		"just claimed, and to drain":   {drain: true},
		"a drain was taken back":       {before: func(o *v1alpha1.PodIPBlock) { o.Generation = 1; crd.SetBlockPublished(o, true, noon()) }, want: "False InService 2"},
		"its drain waits for its turn": {before: func(o *v1alpha1.PodIPBlock) { crd.SetBlockObstacle(o, waits, "what", noon()) }, want: "False CIDRDraining 2"},
	} {
		t.Run(name, func(t *testing.T) {
			obj := crd.NewBlock(prefixes("10.0.0.0/27")[0], "p", "n", "")
			obj.Spec.Drain, obj.Generation = new(test.drain), 2
			if test.before != nil {
				test.before(obj)
			}
			obj.Generation = 2
			crd.SetBlockPublished(obj, true, noon())
			got := ""
			if c := meta.FindStatusCondition(obj.Status.Conditions, v1alpha1.BlockDraining); c != nil {
				got = fmt.Sprintf("%s %s %d", c.Status, c.Reason, c.ObservedGeneration)
			}
			if got != test.want {
				t.Errorf("Draining is %q, want %q", got, test.want)
			}
		})
	}
}

// A block that cools down is no longer published, by the same write. The conditions stay in order.
func TestSetBlockPublished(t *testing.T) {
	obj := crd.NewBlock(prefixes("10.0.0.0/27")[0], "p", "n", "")
	crd.SetBlockPublished(obj, true, noon())
	for _, step := range []struct {
		phase     ipalloc.Phase
		published bool
		want      []string
	}{
		{ipalloc.InService, true, []string{"Draining False InService", "Published True InSpec"}},
		{ipalloc.Draining, true, []string{"Draining True Reclaim", "Published True InSpec"}},
		{ipalloc.CoolingDown, false, []string{"CoolingDown True Reclaim", "Draining False Reclaim", "Published False NotInSpec"}},
		{ipalloc.InService, false, []string{"Draining False InService", "Published False NotInSpec"}},
	} {
		crd.SetBlockPhase(obj, step.phase, expand.Reclaim, "why", noon())
		var got []string
		for _, c := range obj.Status.Conditions {
			got = append(got, fmt.Sprintf("%s %s %s", c.Type, c.Status, c.Reason))
		}
		checkEqual(t, step.phase.String(), step.want, got)
		if b, err := crd.BlockFrom(obj); err != nil || b.Published != step.published {
			t.Errorf("%s: read as published: %t, %v", step.phase, b.Published, err)
		}
	}
}

func TestSetBlockPhase(t *testing.T) {
	start := noon().Add(300 * time.Millisecond)
	type step struct {
		phase   ipalloc.Phase
		reason  expand.Reason
		at      time.Time
		changed bool
		want    []metav1.Condition
	}
	condition := func(kind string, status metav1.ConditionStatus, reason, message string, at time.Time) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(at), ObservedGeneration: 3}
	}
	draining := func(reason string, at time.Time) []metav1.Condition {
		return []metav1.Condition{condition("Draining", "True", reason, "why", at)}
	}
	cooling := func(at time.Time) []metav1.Condition {
		return []metav1.Condition{condition("CoolingDown", "True", "Returned", "why", at), condition("Draining", "False", "Returned", "why", at)}
	}
	serves := func(at time.Time) []metav1.Condition {
		return []metav1.Condition{condition("Draining", "False", "InService", "its node may keep it", at)}
	}
	second := noon().Add(time.Second)
	later := noon().Add(time.Hour)
	obj := crd.NewBlock(prefixes("10.0.0.0/27")[0], "p", "n", "")
	obj.Generation = 3
	for i, s := range []step{
		{phase: ipalloc.InService, at: start, changed: true, want: serves(second)},
		{phase: ipalloc.InService, at: later, want: serves(second)},
		{ipalloc.Draining, expand.Reclaim, start, true, draining("Reclaim", second)},
		{ipalloc.Draining, expand.Reclaim, later, false, draining("Reclaim", second)},
		{ipalloc.Draining, expand.Deleted, later, true, draining("Deleted", second)},
		{phase: ipalloc.InService, at: later, changed: true, want: serves(later)},
		{ipalloc.Draining, expand.Deleted, later, true, draining("Deleted", later)},
		{ipalloc.CoolingDown, expand.Returned, start, true, cooling(second)},
		{ipalloc.CoolingDown, expand.Returned, later, false, cooling(second)},
		{ipalloc.Draining, expand.Deleted, later, true, draining("Deleted", later)},
	} {
		if got := crd.SetBlockPhase(obj, s.phase, s.reason, "why", s.at); got != s.changed {
			t.Errorf("step %d: changed is %v", i, got)
		}
		phases := []v1alpha1.BlockPhase{ipalloc.InService: v1alpha1.PhaseInService, ipalloc.Draining: v1alpha1.PhaseDraining, ipalloc.CoolingDown: v1alpha1.PhaseCoolingDown}
		if obj.Status.Phase != phases[s.phase] {
			t.Errorf("step %d: phase %s", i, obj.Status.Phase)
		}
		if diff := cmp.Diff(append([]metav1.Condition{}, s.want...), append([]metav1.Condition{}, obj.Status.Conditions...)); diff != "" {
			t.Errorf("step %d: %s", i, diff)
		}
	}
	b, err := crd.BlockFrom(obj)
	if err != nil || b.Phase != ipalloc.Draining || b.Reason != expand.Deleted || !b.Since.Equal(later) {
		t.Errorf("read back: %+v, %v", b, err)
	}
}
