package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

var (
	// stand matches names that readers replace; in the test each is that of all objects.
	stand  = regexp.MustCompile(`\b(NODE|POOL|NAME|beijing-01)\b`)
	reads  = regexp.MustCompile(`^kubectl (-n kube-system )?(get|describe|explain) [a-z]`)
	reason = regexp.MustCompile(`reason=(\w+)`)
	anyPod = regexp.MustCompile(`logs (ds|daemonset|deploy|deployment)/`)
)

// commandsOf returns the commands of a page that kubectl runs: each on one line, without the rest
// of a pipe that is no grep.
func commandsOf(t *testing.T, path string) []string {
	t.Helper()
	text := read(t, path)
	var out []string
	for _, m := range regexp.MustCompile("`(kubectl [^`]+)`").FindAllStringSubmatch(prose(text), -1) {
		out = append(out, m[1])
	}
	for _, f := range fences(text) {
		if f.language != "sh" {
			continue
		}
		for line := range strings.Lines(strings.ReplaceAll(f.code, "\\\n", " ")) {
			line, _, _ = strings.Cut(line, " #")
			out = append(out, strings.TrimSpace(line))
		}
	}
	for i, line := range out {
		if before, after, piped := strings.Cut(line, " |"); piped && !strings.HasPrefix(after, " grep ") {
			out[i] = before
		}
	}
	return out
}

// A real API server answers each kubectl get, describe and explain that pages show. A grep
// behind it finds something where a node is not ready, and one of two overlapping blocks
// drains.
func TestReadsOfPages(t *testing.T) {
	b := harness.NewBed(t, shared.Cluster(t).Config())
	const name = "beijing"
	block := &v1alpha1.PodIPBlock{ObjectMeta: metav1.ObjectMeta{Name: "10.0.0.0-27"}, Spec: v1alpha1.PodIPBlockSpec{CIDR: "10.0.0.0/27", PoolName: name, NodeName: name}}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	b.Create(node)
	b.Create(block)
	b.Create(&ciliumv2.CiliumNode{ObjectMeta: metav1.ObjectMeta{Name: name}})
	b.Create(&v1alpha1.PodIPPool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.PodIPPoolSpec{
		IPv4: &v1alpha1.IPv4Ranges{BlockSize: 27, CIDRs: []v1alpha1.PoolCIDR{{CIDR: "10.0.0.0/24"}}},
	}})
	b.Create(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "cilium-pool-operator"}})
	b.Create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "cilium-config"}})
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse}}
	b.UpdateStatus(node)
	block.Status.Phase = v1alpha1.PhaseDraining
	for _, c := range []metav1.Condition{{Type: v1alpha1.BlockDraining, Reason: "Deleted"}, {Type: v1alpha1.BlockConflict, Reason: "Overlap"}} {
		c.Status, c.LastTransitionTime = metav1.ConditionTrue, metav1.Now()
		block.Status.Conditions = append(block.Status.Conditions, c)
	}
	b.UpdateStatus(block)

	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	b.Must(shared.Cluster(t).WriteKubeconfig(kubeconfig))
	bin, err := filepath.Abs(shared.Cluster(t).BinDir())
	b.Must(err)
	events := append(constants(t, "pkg/controller/event", "Reason"), constants(t, "pkg/config", "Reason")...)
	ran := map[string]bool{}
	for _, path := range files(t, isMarkdown) {
		for _, line := range commandsOf(t, path) {
			if anyPod.MatchString(line) {
				t.Errorf("%s: %s shows the log of one pod, whichever", path, line)
			}
			// Not read: a kind that only Cilium's operator installs, and commands that go on.
			if !reads.MatchString(line) || strings.Contains(line, "ciliumnodeconfigs") || strings.Contains(line, " -w") || ran[line] {
				continue
			}
			ran[line] = true
			if m := reason.FindStringSubmatch(line); m != nil && !slices.Contains(events, m[1]) {
				t.Errorf("%s: %s: no event has that reason", path, line)
			}
			cmd := exec.CommandContext(t.Context(), "bash", "-o", "pipefail", "-c", stand.ReplaceAllString(line, name))
			cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "PATH="+bin+":"+os.Getenv("PATH"))
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%s: %s: %v\n%s", path, line, err, out)
			}
		}
	}
	if len(ran) < 20 {
		t.Errorf("%d commands found: the pages show more", len(ran))
	}
}

// A helm upgrade on a page keeps the values of the release, or names all files of values.
func TestUpgradesKeepValues(t *testing.T) {
	for _, path := range files(t, isMarkdown) {
		for _, f := range fences(read(t, path)) {
			for line := range strings.Lines(strings.ReplaceAll(f.code, "\\\n", " ")) {
				if strings.HasPrefix(strings.TrimSpace(line), "helm upgrade ") && !strings.Contains(line, " --reset-then-reuse-values") &&
					(strings.Contains(line, " --set") || strings.Contains(line, " --reuse-values") || !strings.Contains(line, " -f ")) {
					t.Errorf("%s: %s drops values", path, line)
				}
			}
		}
	}
}
