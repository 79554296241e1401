package crd_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

func windows(list ...string) []v1alpha1.MaintenanceWindow {
	var out []v1alpha1.MaintenanceWindow
	for _, schedule := range list {
		out = append(out, v1alpha1.MaintenanceWindow{Schedule: schedule, Duration: "1h"})
	}
	return out
}

func TestMaintenance(t *testing.T) {
	nightly, err := crd.WindowsFrom(windows("0 22 * * *"), nil)
	if err != nil {
		t.Fatal(err)
	}
	byFlag := crd.Maintenance{Windows: nightly, BlocksPerHour: 60}
	// 12:00 on 1 January 2026.
	closed := func(hour int) expand.Obstacle {
		return expand.Obstacle{Reason: expand.WaitWindow, Until: time.Date(2026, 1, 1, hour, 0, 0, 0, time.UTC)}
	}
	tests := map[string]struct {
		spec    v1alpha1.Maintenance
		flags   crd.Maintenance
		delay   expand.Obstacle
		perHour int
		problem string
	}{
		"nothing is set":                   {},
		"by flag":                          {flags: byFlag, delay: closed(22), perHour: 60},
		"the pool's own windows":           {v1alpha1.Maintenance{Windows: windows("0 20 * * *")}, byFlag, closed(20), 60, ""},
		"open now":                         {v1alpha1.Maintenance{Windows: windows("0 20 * * *", "0 12 * * *")}, byFlag, expand.Obstacle{}, 60, ""},
		"the pool's own rate":              {v1alpha1.Maintenance{BlocksPerHour: new(intstr.FromInt32(5))}, byFlag, closed(22), 5, ""},
		"a rate without a limit":           {v1alpha1.Maintenance{BlocksPerHour: new(intstr.FromString("Unlimited"))}, byFlag, closed(22), 0, ""},
		"no limit":                         {v1alpha1.Maintenance{RatePolicy: v1alpha1.RateUnlimited, BlocksPerHour: new(intstr.FromInt32(5))}, byFlag, closed(22), 0, ""},
		"a limit by flag":                  {v1alpha1.Maintenance{RatePolicy: v1alpha1.RateLimited}, byFlag, closed(22), 60, ""},
		"a rate policy to come":            {v1alpha1.Maintenance{RatePolicy: "Daily"}, byFlag, closed(22), 60, "acts as for Limited: write Limited or one of [Unlimited]"},
		"a rate of 0":                      {v1alpha1.Maintenance{BlocksPerHour: new(intstr.FromInt32(0))}, byFlag, closed(22), 60, `spec.maintenance.blocksPerHour: Invalid value: "0": must be from 1 to 1000000, or Unlimited. Until then the operator uses its default, 60`},
		"unrestricted beats windows, rate": {v1alpha1.Maintenance{Policy: v1alpha1.MaintenanceUnrestricted, Windows: windows("0 20 * * *")}, byFlag, expand.Obstacle{}, 0, ""},
		"a bad window opens never":         {v1alpha1.Maintenance{Windows: windows("0 24 * * *")}, byFlag, expand.Obstacle{Reason: expand.WaitNoWindow}, 60, `spec.maintenance.windows[0]: Invalid value: "0 24 * * *"`},
		"one too many":                     {v1alpha1.Maintenance{Windows: windows(slices.Repeat([]string{"0 12 * * *"}, 17)...)}, crd.Maintenance{}, expand.Obstacle{Reason: expand.WaitNoWindow}, 0, "spec.maintenance.windows: Too many: 17"},
		"nor does a good one beside a bad": {v1alpha1.Maintenance{Windows: windows("0 12 * * *", "0 0 30 2 *")}, crd.Maintenance{}, expand.Obstacle{Reason: expand.WaitNoWindow}, 0, "spec.maintenance.windows[1]"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			d := defaults()
			d.Maintenance = test.flags
			spec := v1alpha1.PodIPPoolSpec{IPv4: ipv4(27, "10.0.0.0/16"), Maintenance: test.spec}
			p, err := crd.PoolFrom(object("p", spec), d)
			if err != nil {
				t.Fatalf("a pool must serve whatever its windows: %v", err)
			}
			checkEqual(t, "delay", test.delay, p.Maintenance.Delay(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)))
			if p.Maintenance.BlocksPerHour != test.perHour {
				t.Errorf("%d blocks per hour, want %d", p.Maintenance.BlocksPerHour, test.perHour)
			}
			problem := p.Problem()
			if (problem != nil) != (test.problem != "") || problem != nil && !strings.Contains(problem.Error(), test.problem) {
				t.Errorf("problem is %v, want %q", problem, test.problem)
			}
		})
	}
}

func TestSetBlockObstacle(t *testing.T) {
	type state struct {
		Status   metav1.ConditionStatus
		Reason   string
		Obstacle expand.Obstacle
	}
	window := expand.Obstacle{Reason: expand.WaitWindow, Request: expand.CIDRDraining, Note: "ten"}
	turn := expand.Obstacle{Reason: expand.WaitTurn, Request: expand.CIDRDraining, Note: "its turn"}
	asked := expand.Obstacle{Reason: expand.WaitTurn, Request: expand.DrainRequested, Note: "its turn"}
	pods := expand.Obstacle{Reason: expand.WaitPods, Note: "pods a/b"}
	obj := crd.NewBlock(prefixes("10.20.0.32/27")[0], "p", "n", "u")
	wait := func(w expand.Obstacle) func() bool {
		return func() bool { return crd.SetBlockObstacle(obj, w, "what happens", noon()) }
	}
	for i, step := range []struct {
		change func() bool
		want   state
	}{
		{wait(window), state{metav1.ConditionFalse, "CIDRDraining", window}},
		{wait(turn), state{metav1.ConditionFalse, "CIDRDraining", turn}},
		{wait(asked), state{metav1.ConditionFalse, "DrainRequested", asked}},
		{wait(expand.Obstacle{}), state{metav1.ConditionFalse, "InService", expand.Obstacle{}}},
		{func() bool { return crd.SetBlockPhase(obj, ipalloc.Draining, expand.Deleted, "what happens", noon()) }, state{metav1.ConditionTrue, "Deleted", expand.Obstacle{}}},
		{wait(pods), state{metav1.ConditionTrue, "Deleted", pods}},
		{wait(expand.Obstacle{}), state{metav1.ConditionTrue, "Deleted", expand.Obstacle{}}},
		{wait(pods), state{metav1.ConditionTrue, "Deleted", pods}},
		{func() bool { return crd.SetBlockPhase(obj, ipalloc.InService, "", "", noon()) }, state{metav1.ConditionFalse, "InService", expand.Obstacle{}}},
	} {
		if !step.change() || step.change() {
			t.Errorf("step %d: the first time is a change, the second is none", i)
		}
		b, err := crd.BlockFrom(obj)
		if err != nil {
			t.Fatal(err)
		}
		c := obj.Status.Conditions[0]
		checkEqual(t, fmt.Sprintf("step %d", i), step.want, state{c.Status, c.Reason, b.Obstacle})
		if strings.Contains(c.Message, step.want.Obstacle.Note) && step.want.Obstacle.Note != "" {
			t.Errorf("step %d: the message repeats status.waitsFor: %s", i, c.Message)
		}
	}
}
