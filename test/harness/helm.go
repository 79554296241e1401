package harness

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// The major versions of Helm in use.
const (
	Helm3 = "v3"
	Helm4 = "v4"
)

// HelmPath is where make puts Helm.
func HelmPath(major string) (string, error) {
	name := map[string]string{Helm3: "helm3", Helm4: "helm"}[major]
	mod, err := os.ReadFile(filepath.Join(Root(), "hack/tools", name, "go.mod"))
	if err != nil {
		return "", err
	}
	version := regexp.MustCompile(`helm\.sh/helm/` + major + ` (v\S+)`).FindSubmatch(mod)
	if version == nil {
		return "", fmt.Errorf("hack/tools/%s/go.mod does not name a version of Helm", name)
	}
	path := filepath.Join(Root(), ".cache/tools", name+"-"+string(version[1]))
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%w: make helm builds it", err)
	}
	return path, nil
}

// Helm runs a Helm with an empty folder as its home, and returns its output.
func Helm(ctx context.Context, major, home string, args ...string) (string, error) {
	path, err := HelmPath(major)
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(os.Environ(), "HOME="+home, "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home,
		"KUBECONFIG=/nonexistent")
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("helm %s: %w\n%s", strings.Join(args, " "), err, &stderr)
	}
	return out.String(), nil
}

// ChartNamespace is where RenderChart installs.
const ChartNamespace = "kube-system"

// RenderChart returns the objects of the chart as a Helm renders it with further arguments.
func RenderChart(ctx context.Context, major string, args ...string) ([]*unstructured.Unstructured, error) {
	home, err := os.MkdirTemp("", "helm-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(home)
	// A Helm 3 from a Go module takes no newer Kubernetes for granted than 1.20.
	all := []string{"template", "cilium-pool-operator", filepath.Join(Root(), "charts/cilium-pool-operator"), "--namespace", ChartNamespace, "--kube-version", "1.36"}
	manifest, err := Helm(ctx, major, home, append(all, args...)...)
	if err != nil {
		return nil, err
	}
	return Objects(manifest)
}
