//go:build linux

package main

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/cilium-pool/cilium-pool-operator/test/cluster/page"
	"github.com/cilium-pool/cilium-pool-operator/test/e2e/bed"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

// The scenarios run exactly the lines with kubectl of these pages.
func TestMigrationCommands(t *testing.T) {
	run, err := scripts.ReadFile("testdata/modes-pools.txtar")
	harness.Must(t, err)
	for page, want := range map[string][]string{
		"../../docs/migration.md": migrateCommands(), "../../docs/modes.md": modeCommands(),
	} {
		var shown []string
		for _, code := range fencesOf(t, page, "sh") {
			for line := range strings.Lines(code) {
				line, _, _ = strings.Cut(line, " #")
				if line = strings.TrimSpace(line); strings.HasPrefix(line, "kubectl ") && !strings.Contains(string(run), "\nexec "+line+"\n") {
					shown = append(shown, line)
				}
			}
		}
		slices.Sort(shown)
		slices.Sort(want)
		if diff := cmp.Diff(want, slices.Compact(shown)); diff != "" {
			t.Errorf("%s shows other commands than the scenarios run (-run +shown):\n%s", page, diff)
		}
	}
}

// The scenarios apply the CiliumNodeConfigs of these pages.
func TestMigrationHoldConfig(t *testing.T) {
	for page, keys := range map[string]map[string]string{
		"../../docs/migration.md": holdConfig("cluster-pool", false),
		"../../docs/modes.md":     modeHoldConfig(map[string]string{"ipam": crdMode, "ipv4-range": "169.254.254.0/24", "ipv6-range": "100::/96", "mtu": "1500"}),
	} {
		var found bool
		for _, code := range fencesOf(t, page, "yaml") {
			var shown, run ciliumv2.CiliumNodeConfig
			harness.Must(t, yaml.Unmarshal([]byte(code), &shown))
			if shown.Kind != "CiliumNodeConfig" {
				continue
			}
			data, err := holdManifest(keys)
			if err != nil {
				t.Fatal(err)
			}
			harness.Must(t, yaml.Unmarshal(data, &run))
			if diff := cmp.Diff(run, shown); diff != "" {
				t.Errorf("%s shows another CiliumNodeConfig (-run +shown):\n%s", page, diff)
			}
			found = true
		}
		if !found {
			t.Errorf("%s shows no CiliumNodeConfig", page)
		}
	}
}

func TestDiffer(t *testing.T) {
	before := map[string]string{"ipam": "cluster-pool", "cluster-pool-ipv4-cidr": "10.0.0.0/8", "mtu": "1500", "debug": "false"}
	for name, test := range map[string]struct {
		after, held map[string]string
		want        []string
	}{
		"nothing":           {after: before},
		"changed":           {after: map[string]string{"ipam": "crd", "cluster-pool-ipv4-cidr": "10.0.0.0/8", "mtu": "1400", "debug": "false"}, want: []string{"ipam", "mtu"}},
		"held":              {after: map[string]string{"ipam": "crd", "mtu": "1500", "debug": "false"}, held: map[string]string{"ipam": "cluster-pool"}},
		"added and removed": {after: map[string]string{"ipam": "cluster-pool", "mtu": "1500", "ipv4-range": "x"}, want: []string{"debug", "ipv4-range"}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, differ(before, test.after, test.held)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestFailedAddOverlaps(t *testing.T) {
	at := func(second int) time.Time { return time.Unix(int64(second), 0) }
	down := bed.Downtime{From: at(10), Until: at(20)}
	for name, test := range map[string]struct {
		began, ended int
		want         bool
	}{
		"before":           {1, 9, false},
		"in flight":        {9, 11, true},
		"within":           {12, 13, true},
		"until it is back": {19, 25, true},
		"over all of it":   {5, 25, true},
		"after":            {20, 21, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := (failedAdd{began: at(test.began), ended: at(test.ended)}).overlaps(down); got != test.want {
				t.Errorf("overlaps is %t, want %t", got, test.want)
			}
		})
	}
}

func fencesOf(t *testing.T, path, language string) []string {
	t.Helper()
	text, err := os.ReadFile(path)
	harness.Must(t, err)
	return page.OfLanguage(string(text), language)
}
