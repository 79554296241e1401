package config

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// Every field that is published is read back unchanged.
func TestPublishedThereAndBack(t *testing.T) {
	s := DefaultSettings()
	s.Version, s.Commit, s.Mode, s.Paused, s.Shadow = "v1.2.3", "abc", ciliumnode.Kubernetes, true, true
	s.CRDSchemas = map[string]string{"podippools.cilium-pool.io": "abc"}
	p := &s.Defaults.Policy
	p.ExpandPercent, p.MinFree, p.MaxBlocks, p.MaxAddresses = 71, 3, 5, 999
	p.ReclaimDisabled, p.ReclaimPercent, p.IdleFor, p.PressurePercent = true, 41, 5*time.Second, 88
	p.AckHold, p.AckTimeout = 31*time.Second, 121*time.Second
	s.Defaults.Cooldown, s.Defaults.NodeGoneCooldown, s.Defaults.Maintenance.BlocksPerHour = 7*time.Second, 8*time.Minute, 9
	s.Windows = []v1alpha1.MaintenanceWindow{{Schedule: "0 22 * * *", Duration: "6h", TimeZone: "UTC"}}
	s.AgentNamespace, s.AgentSelector, s.AgentSettle = "cilium", labels.SelectorFromSet(labels.Set{"app": "agent"}), 2*time.Second
	s.ReclaimsPerMinute, s.ReclaimsPerMinutePerPool = 1, 2
	s.StartupTaints, s.OfferFamilies = []string{"c"}, []ipalloc.Family{ipalloc.IPv6}
	s.FRRNamespace, s.IgnoreTaints, s.ShortageTaint, s.NodeCondition, s.KeepCiliumPools = "frr", []string{"a", "b"}, "short", false, false
	s.ParkBlocks, s.CompactBlocks, s.KeepManagedFields, s.SkipModeCheck = true, true, true, true
	body, err := s.Publish()
	if err != nil {
		t.Fatal(err)
	}
	got, err := ReadPublished(body)
	if err != nil {
		t.Fatal(err)
	}
	if is := got.Defaults.Maintenance.Windows.At(time.Date(2026, 11, 21, 23, 0, 0, 0, time.UTC)); !is.Open {
		t.Error("the maintenance window was not read")
	}
	got.Defaults.Maintenance.Windows = nil
	again, err := got.Publish()
	if err != nil || again != body {
		t.Errorf("error %v, published\n%s\nand then\n%s", err, body, again)
	}
	// No setting has its default value, so that no field is left out.
	defaults := DefaultSettings()
	for _, pair := range [][2]any{{defaults, got}, {defaults.Defaults, got.Defaults}, {defaults.Defaults.Policy, got.Defaults.Policy}} {
		was, is := reflect.ValueOf(pair[0]), reflect.ValueOf(pair[1])
		for i := range was.NumField() {
			name := was.Type().Field(i).Name
			if !unpublished[name] && reflect.DeepEqual(was.Field(i).Interface(), is.Field(i).Interface()) {
				t.Errorf("%s.%s is not published, or not tried here", was.Type(), name)
			}
		}
	}
}

// unpublished are fields that follow from others, or that concern only the process.
var unpublished = map[string]bool{
	"NodeWorkers": true, "Registry": true, "CiliumConfigEvery": true, "WholeBlocks": true, "CiliumPools": true,
	"Webhook": true, "WebhookAddress": true, "Observe": true,
}

func TestReadPublished(t *testing.T) {
	got, err := ReadPublished(`{"version":"v9.0.0","cooldown":"5s","a-flag-of-tomorrow":true}`)
	if err != nil || got.Version != "v9.0.0" || got.Defaults.Cooldown != 5*time.Second || got.Defaults.NodeGoneCooldown != 10*time.Minute {
		t.Errorf("error %v, settings %+v", err, got)
	}
	for body, want := range map[string]string{
		`nonsense`:                         "reading the operator's settings",
		`{"agent-selector":"a in b"}`:      "agent-selector",
		`{"expand-threshold-percent":300}`: "ExpandPercent",
		`{"maintenance-windows":[{}]}`:     "maintenance-windows",
		`{"cooldown":7}`:                   "reading the operator's settings",
	} {
		if _, err := ReadPublished(body); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %s", body, err, want)
		}
	}
}
