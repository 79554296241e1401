package api

import (
	"os"
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

	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

// kubectl runs kubectl against the control plane and returns its output.
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
		"podippool":                           {"KIND:       PodIPPool", "PodIPPool is a set of pod addresses for the nodes that a selector picks."},
		"podippool.spec":                      {"nodeSelector", "priority decides where several pools match a node"},
		"podippool.spec.ipv4.cidrs":           {"allocationPolicy is the use of this range for nodes", "cidr is the range, in canonical form"},
		"podippool.spec.expand":               {"expand says when a node gets another block", "minFreeAddresses is the least number of addresses that a node keeps free"},
		"podippool.status":                    {"Ready (the spec is in force, and nodes are served by this pool or by the next pool that selects them)"},
		"podipblock":                          {"Creating it is the claim"},
		"podipblock.spec.nodeName":            {"nodeName is the Node that holds the block"},
		"podipblock.status.conditions.reason": {"programmatic identifier"},
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
heldPercent: 0
roomForNodes: 0
selectedNodes: 5
nodes: 0
ipv4:
  blocks: {assignable: 2048, held: 3, inService: 1, draining: 1, coolingDown: 1, free: 2045}
  addresses: {assignable: 61440, held: 90, inService: 30, draining: 30, coolingDown: 30, free: 61350, used: 41}
conditions:
- {type: Overlapping, status: "False", reason: Apart, message: "", lastTransitionTime: "2026-01-01T00:00:00Z"}
- {type: Ready, status: "True", reason: AllRight, message: "", lastTransitionTime: "2026-01-01T00:00:00Z"}`)

	want := []string{
		"NAME CIDR BLOCK-SIZE SELECTED NODES HELD FREE USED READY AGE",
		"beijing 10.20.0.0/16 27 5 0 3 2045 41 True AGE",
		"new fd00:10::/48 122 AGE",
	}
	if diff := cmp.Diff(want, table(kubectl(t, "get", "podippools"))); diff != "" {
		t.Errorf("columns (-want +got):\n%s", diff)
	}
	want = []string{
		"NAME CIDR BLOCK-SIZE SELECTED NODES HELD FREE USED READY REASON FULL% ROOM PRIORITY IPV6-CIDR IPV6-HELD IPV6-FREE AGE",
		"beijing 10.20.0.0/16 27 5 0 3 2045 41 True AllRight 0 0 10 AGE",
	}
	if diff := cmp.Diff(want, table(kubectl(t, "get", "podippools", "beijing", "-o", "wide"))); diff != "" {
		t.Errorf("wide columns (-want +got):\n%s", diff)
	}
}

func TestColumnsOfBlocks(t *testing.T) {
	client := resource(t, "podipblocks")
	draining := create(t, client, object(t, "PodIPBlock", "10.20.0.0-27", blockSpec("10.20.0.0/27", "beijing", "node-1")))
	create(t, client, object(t, "PodIPBlock", "10.20.0.32-27", blockSpec("10.20.0.32/27", "beijing", "node-2")))
	held := create(t, client, object(t, "PodIPBlock", "10.20.0.64-27", blockSpec("10.20.0.64/27", "beijing", "node-2")))
	cooling := create(t, client, object(t, "PodIPBlock", "10.20.0.96-27", blockSpec("10.20.0.96/27", "beijing", "node-2")))
	setStatus(t, client, cooling, `
phase: CoolingDown
conditions:
- {type: Published, status: "False", reason: NotListed, message: "", lastTransitionTime: "2026-01-01T00:00:00Z"}
- {type: Draining, status: "False", reason: Returned, message: "", lastTransitionTime: "2026-01-01T00:00:00Z"}
- {type: CoolingDown, status: "True", reason: Returned, message: "", lastTransitionTime: "2026-01-01T00:00:00Z"}`)
	setStatus(t, client, held, `
phase: InService
waitsFor: {reason: Window, message: "the window that opens at ten"}
conditions:
- {type: Conflict, status: "True", reason: Overlap, message: "", lastTransitionTime: "2026-01-01T00:00:00Z"}
- {type: Draining, status: "False", reason: CIDRDraining, message: "", lastTransitionTime: "2026-01-01T00:00:00Z"}`)
	setStatus(t, client, draining, `
phase: Draining
waitsFor: {reason: Pods}
conditions:
- {type: Draining, status: "True", reason: Reclaim, message: "", lastTransitionTime: "2026-01-01T00:00:00Z"}`)

	want := []string{
		"NAME CIDR POOL NODE PHASE REASON WAITS FOR AGE",
		"10.20.0.0-27 10.20.0.0/27 beijing node-1 Draining Reclaim Pods AGE",
		"10.20.0.32-27 10.20.0.32/27 beijing node-2 AGE",
		"10.20.0.64-27 10.20.0.64/27 beijing node-2 InService CIDRDraining Window AGE",
		"10.20.0.96-27 10.20.0.96/27 beijing node-2 CoolingDown Returned AGE",
	}
	if diff := cmp.Diff(want, table(kubectl(t, "get", "podipblocks"))); diff != "" {
		t.Errorf("columns (-want +got):\n%s", diff)
	}
	if got := table(kubectl(t, "get", "podipblocks", "10.20.0.64-27", "-o", "wide"))[1]; got != "10.20.0.64-27 10.20.0.64/27 beijing node-2 InService CIDRDraining Window True AGE" {
		t.Errorf("wide columns: %s", got)
	}
	want = []string{"NAME CIDR POOL NODE PHASE REASON WAITS FOR AGE", want[1]}
	if diff := cmp.Diff(want, table(kubectl(t, "get", "podipblocks", "--field-selector", "spec.nodeName=node-1"))); diff != "" {
		t.Errorf("columns of one node (-want +got):\n%s", diff)
	}
	if got := kubectl(t, "get", "cilium-pool", "-o", "name"); !strings.Contains(got, "podipblock.cilium-pool.io/10.20.0.0-27") {
		t.Errorf("category cilium-pool lists %q", got)
	}
}

// The API server invents no status for a claim: kubectl waits for a written one. Applying the same
// again makes no change.
func TestBlockSaysNothingByItself(t *testing.T) {
	client := resource(t, "podipblocks")
	const manifest = `apiVersion: cilium-pool.io/v1alpha1
kind: PodIPBlock
metadata: {name: 10.20.0.0-27}
spec: {cidr: 10.20.0.0/27, poolName: beijing, nodeName: node-1}
`
	file := filepath.Join(t.TempDir(), "block.yaml")
	harness.Must(t, os.WriteFile(file, []byte(manifest), 0o600))
	defer func() { kubectl(t, "delete", "-f", file) }()
	for range 2 {
		kubectl(t, "apply", "--server-side", "-f", file)
	}
	kubectl(t, "diff", "--server-side", "-f", file) // exits with 1 if there is a difference
	o, err := client.Get(t.Context(), "10.20.0.0-27", metav1.GetOptions{})
	harness.Must(t, err)
	if _, there := o.Object["status"]; there || o.GetGeneration() != 1 || len(o.GetManagedFields()) != 1 {
		t.Errorf("status %v, generation %d, managed by %v", o.Object["status"], o.GetGeneration(), o.GetManagedFields())
	}
	setStatus(t, client, o, `conditions: [{type: Published, status: "True", reason: InSpec, message: "", lastTransitionTime: "2026-01-01T00:00:00Z"}]`)
	kubectl(t, "wait", "--for=condition=Published", "podipblock/10.20.0.0-27", "--timeout=30s")
}

func setStatus(t *testing.T, client dynamic.ResourceInterface, o *unstructured.Unstructured, status string) {
	t.Helper()
	var fields map[string]any
	harness.Must(t, yaml.Unmarshal([]byte(status), &fields))
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
