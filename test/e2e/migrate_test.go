//go:build linux

package main

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	"sigs.k8s.io/yaml"

	"github.com/cilium-pool/cilium-pool-operator/test/cluster/page"
	"github.com/cilium-pool/cilium-pool-operator/test/e2e/bed"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

// The scripts run the lines with kubectl, and apply the CiliumNodeConfig, of these pages.
func TestPagesAreRun(t *testing.T) {
	for doc, names := range map[string][]string{"migration": {"migrate", "migrate-to-multi-pool", "modes-in-place"}, "modes": {"modes-move", "modes-pools", "modes-hand-over"}} {
		text, err := os.ReadFile("../../docs/" + doc + ".md")
		harness.Must(t, err)
		ofCluster := slices.Collect(maps.Values(page.Marked(string(text), "move"))) // run by test/cluster
		run := deleteAgent + "n1\n"
		var want ciliumv2.CiliumNodeConfig
		for _, name := range names {
			text, err := scripts.ReadFile("testdata/" + name + ".txtar")
			harness.Must(t, err)
			run += string(text)
			for _, f := range txtar.Parse(text).Files {
				if f.Name == "old-ipam.yaml" {
					harness.Must(t, yaml.Unmarshal(f.Data, &want))
				}
			}
		}
		filled := strings.NewReplacer("NODE:", "NODE:", "NODE", "n1", "BLOCK", "$BLOCK")
		for _, code := range fencesOf(t, "../../docs/"+doc+".md", "sh") {
			if doc == "modes" && slices.Contains(ofCluster, code) {
				continue
			}
			for line := range strings.Lines(code) {
				line, _, _ = strings.Cut(line, " #")
				if line = filled.Replace(strings.TrimSpace(line)); strings.HasPrefix(line, "kubectl ") && !strings.Contains(run, line) {
					t.Errorf("docs/%s.md shows a command that no script runs: %s", doc, line)
				}
			}
		}
		shown := slices.ContainsFunc(fencesOf(t, "../../docs/"+doc+".md", "yaml"), func(code string) bool {
			var c ciliumv2.CiliumNodeConfig
			harness.Must(t, yaml.Unmarshal([]byte(code), &c))
			return cmp.Equal(want, c)
		})
		if !shown {
			t.Errorf("docs/%s.md shows another CiliumNodeConfig than %v", doc, want.Spec)
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
	second := func(second int) time.Time { return time.Unix(int64(second), 0) }
	down := bed.Downtime{From: second(10), Until: second(20)}
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
			if got := (failedAdd{began: second(test.began), ended: second(test.ended)}).overlaps(down); got != test.want {
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
