package integration

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/cilium-pool/cilium-pool-operator/test/controlplane"
	"github.com/cilium-pool/cilium-pool-operator/test/controlplane/cptest"
)

// TestRefusesToStart runs the operator's binary where it could do nothing, or
// harm.
func TestRefusesToStart(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "cilium-pool-operator")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "../../cmd/cilium-pool-operator")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	c := cptest.New(t, controlplane.Options{CRDs: []*apiextensionsv1.CustomResourceDefinition{}})
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := c.WriteKubeconfig(kubeconfig); err != nil {
		t.Fatal(err)
	}
	refuses := func(want ...string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		out, err := exec.CommandContext(ctx, binary, "--kubeconfig", kubeconfig,
			"--metrics-bind-address=0", "--health-probe-bind-address=0").CombinedOutput()
		if code := exitCode(err); code != 1 {
			t.Errorf("exit code is %d, want 1", code)
		}
		for _, part := range want {
			if !strings.Contains(string(out), part) {
				t.Errorf("%q is not in what it says:\n%s", part, out)
			}
		}
	}
	refuses("PodIPPool.cilium-pool.io/v1alpha1", "install the chart's CRDs")

	all, err := controlplane.DefaultCRDs()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.InstallCRDs(t.Context(), all...); err != nil {
		t.Fatal(err)
	}
	clients, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	_, err = clients.CoreV1().ConfigMaps("kube-system").Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "cilium-config"}, Data: map[string]string{"ipam": "cluster-pool"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	refuses("cluster-pool", "kube-system/cilium-config", "ipam.mode=crd", "--shadow")
}

func exitCode(err error) int {
	exit, ok := err.(*exec.ExitError) //nolint:errorlint // exec returns it bare
	if !ok {
		return 0
	}
	return exit.ExitCode()
}
