package api

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"
)

// kubectl runs kubectl against the control plane and returns what it prints.
func kubectl(t *testing.T, args ...string) string {
	t.Helper()
	cluster := shared.Cluster(t)
	args = append([]string{"--kubeconfig", filepath.Join(cluster.Dir(), "kubeconfig"), "--cache-dir", t.TempDir()}, args...)
	out, err := exec.CommandContext(t.Context(), kubectlPath(), args...).CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl %v: %v\n%s", args, err, out)
	}
	return string(out)
}

func TestExplain(t *testing.T) {
	tests := map[string][]string{
		"podippool":                    {"KIND:       PodIPPool", "PodIPPool is a set of pod addresses for the nodes that a selector picks."},
		"podippool.spec":               {"nodeSelector", "priority decides where several pools match a node"},
		"podippool.spec.ipv4.cidrs":    {"Cordon: no new blocks; those that nodes hold keep serving", "cidr is the range, in canonical form"},
		"podippool.spec.expand":        {"expand says when a node gets another block", "minFree is how many addresses a node keeps free at least"},
		"pip.status":                   {"Ready (the pool gives out what it says)"},
		"podipblock":                   {"Creating it is the claim"},
		"pib.spec.nodeName":            {"nodeName is the Node that holds the block"},
		"pib.status.conditions.reason": {"programmatic identifier"},
	}
	for field, want := range tests {
		t.Run(field, func(t *testing.T) {
			got := strings.Join(strings.Fields(kubectl(t, "explain", field)), " ")
			for _, want := range want {
				if want = strings.Join(strings.Fields(want), " "); !strings.Contains(got, want) {
					t.Errorf("no %q in\n%s", want, got)
				}
			}
		})
	}
}

func TestColumnsOfPools(t *testing.T) {
	client := resource(t, "podippools")
	pool := create(t, client, object(t, "PodIPPool", "beijing", ipv4Pool+", priority: 10}"))
	create(t, client, object(t, "PodIPPool", "new", ipv6Pool+"}"))
	setStatus(t, client, pool, `
observedGeneration: 1
blocks: 12/256
full: 5%
room: "244"
nodes: 7
conditions:
- {type: Overlapping, status: "False", reason: Apart, message: "", lastTransitionTime: "2026-01-01T00:00:00Z"}
- {type: Ready, status: "True", reason: AllRight, message: "", lastTransitionTime: "2026-01-01T00:00:00Z"}
- {type: ExhaustedSoon, status: "False", reason: Lasts, message: "", lastTransitionTime: "2026-01-01T00:00:00Z"}`)

	want := []string{
		"NAME PRIORITY BLOCKS FULL ROOM NODES READY REASON AGE",
		"beijing 10 12/256 5% 244 7 True AllRight AGE",
		"new 0 AGE",
	}
	if diff := cmp.Diff(want, table(kubectl(t, "get", "pip"))); diff != "" {
		t.Errorf("columns (-want +got):\n%s", diff)
	}
	want = []string{
		"NAME PRIORITY BLOCKS FULL ROOM NODES READY REASON EXHAUSTED-SOON AGE",
		"beijing 10 12/256 5% 244 7 True AllRight False AGE",
	}
	if diff := cmp.Diff(want, table(kubectl(t, "get", "pip", "beijing", "-o", "wide"))); diff != "" {
		t.Errorf("wide columns (-want +got):\n%s", diff)
	}
}

func TestColumnsOfBlocks(t *testing.T) {
	client := resource(t, "podipblocks")
	draining := create(t, client, object(t, "PodIPBlock", "10.20.0.0-27", blockSpec("10.20.0.0/27", "beijing", "node-1")))
	create(t, client, object(t, "PodIPBlock", "10.20.0.32-27", blockSpec("10.20.0.32/27", "beijing", "node-2")))
	setStatus(t, client, draining, `
conditions:
- {type: Conflict, status: "False", reason: Apart, message: "", lastTransitionTime: "2026-01-01T00:00:00Z"}
- {type: Draining, status: "True", reason: Reclaim, message: "", lastTransitionTime: "2026-01-01T00:00:00Z"}`)

	want := []string{
		"NAME CIDR POOL NODE STATE AGE",
		"10.20.0.0-27 10.20.0.0/27 beijing node-1 Draining AGE",
		"10.20.0.32-27 10.20.0.32/27 beijing node-2 AGE",
	}
	if diff := cmp.Diff(want, table(kubectl(t, "get", "pib"))); diff != "" {
		t.Errorf("columns (-want +got):\n%s", diff)
	}
	want = []string{
		"NAME CIDR POOL NODE STATE REASON AGE",
		"10.20.0.0-27 10.20.0.0/27 beijing node-1 Draining Reclaim AGE",
	}
	if diff := cmp.Diff(want, table(kubectl(t, "get", "pib", "-o", "wide", "--field-selector", "spec.nodeName=node-1"))); diff != "" {
		t.Errorf("wide columns (-want +got):\n%s", diff)
	}
	if got := kubectl(t, "get", "cilium-pool", "-o", "name"); !strings.Contains(got, "podipblock.cilium-pool.io/10.20.0.0-27") {
		t.Errorf("category cilium-pool lists %q", got)
	}
}

func setStatus(t *testing.T, client dynamic.ResourceInterface, o *unstructured.Unstructured, status string) {
	t.Helper()
	var fields map[string]any
	if err := yaml.Unmarshal([]byte(status), &fields); err != nil {
		t.Fatal(err)
	}
	o = o.DeepCopy()
	o.Object["status"] = fields
	if _, err := client.UpdateStatus(t.Context(), o, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// table returns the lines of kubectl get with one space between columns and
// AGE for every age.
func table(out string) []string {
	age := regexp.MustCompile(`\S+$`)
	var lines []string
	for line := range strings.Lines(out) {
		lines = append(lines, age.ReplaceAllString(strings.Join(strings.Fields(line), " "), "AGE"))
	}
	return lines
}
