package integration

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/cilium-pool/cilium-pool-operator/test/controlplane"
	"github.com/cilium-pool/cilium-pool-operator/test/controlplane/cptest"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
	"github.com/cilium-pool/cilium-pool-operator/test/harness/process"
)

// emptyCluster is a control plane without Cilium's CRDs and ours, and the operator's
// binary.
type emptyCluster struct {
	*testing.T
	*controlplane.Cluster
	binary, kubeconfig string
	ours, ciliums      []*apiextensionsv1.CustomResourceDefinition
}

func newEmptyCluster(t *testing.T) *emptyCluster {
	t.Helper()
	t.Parallel()
	e := &emptyCluster{T: t, binary: harness.Program(t, "cilium-pool-operator"), kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	e.Cluster = cptest.New(t, controlplane.Options{CRDs: []*apiextensionsv1.CustomResourceDefinition{}})
	harness.Must(t, e.WriteKubeconfig(e.kubeconfig))
	all, err := controlplane.DefaultCRDs()
	harness.Must(t, err)
	for _, crd := range all {
		if crd.Spec.Group == "cilium.io" {
			e.ciliums = append(e.ciliums, crd)
		} else {
			e.ours = append(e.ours, crd)
		}
	}
	return e
}

func (e *emptyCluster) install(crds ...*apiextensionsv1.CustomResourceDefinition) {
	e.Helper()
	harness.Must(e, e.InstallCRDs(e.Context(), crds...))
}

// configureCilium creates the ConfigMap that Cilium's chart creates.
func (e *emptyCluster) configureCilium(mode string) {
	e.Helper()
	clients, err := kubernetes.NewForConfig(e.Config())
	if err != nil {
		e.Fatal(err)
	}
	_, err = clients.CoreV1().ConfigMaps("kube-system").Create(e.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "cilium-config"}, Data: map[string]string{"ipam": mode},
	}, metav1.CreateOptions{})
	if err != nil {
		e.Fatal(err)
	}
}

func (e *emptyCluster) start(args ...string) *process.Process {
	e.Helper()
	p, err := process.Start(process.Command{
		Name: "operator", Dir: e.TempDir(), Args: append([]string{e.binary, "--kubeconfig", e.kubeconfig, "--metrics-bind-address=0"}, args...),
	})
	if err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() {
		if err := p.Kill(); err != nil {
			e.Error(err)
		}
	})
	return p
}

// exits waits until the operator exits with code 1, and has logged all of want.
func (e *emptyCluster) exits(p *process.Process, want ...string) {
	e.Helper()
	select {
	case <-p.Ended():
		if code := exitCode(p.Err()); code != 1 {
			e.Errorf("exit code is %d, want 1", code)
		}
	case <-time.After(patience):
		e.Fatalf("still running:\n%s", p.Log())
	}
	for _, part := range want {
		if !strings.Contains(p.Log(), part) {
			e.Errorf("%q is not in its log:\n%s", part, p.Log())
		}
	}
}

// says waits until the log of a running operator contains part.
func (e *emptyCluster) says(p *process.Process, part string) {
	e.Helper()
	e.eventually(p, fmt.Sprintf("%q in its log", part), func() bool { return strings.Contains(p.Log(), part) })
}

func (e *emptyCluster) eventually(p *process.Process, what string, holds func() bool) {
	e.Helper()
	harness.Eventually(e, what, func() error {
		if !p.Running() {
			e.Fatalf("waiting for %s: the operator exited: %v\n%s", what, p.Err(), p.Log())
		}
		if !holds() {
			return errors.New(p.Log())
		}
		return nil
	})
}

// answers reports whether an HTTP GET returns 200.
func answers(ctx context.Context, url string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return false
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// Helm and GitOps install Cilium and the operator in any order. Until all CRDs exist the operator
// is alive and Ready, and logs the missing ones; then it starts by itself.
func TestStartsBeforeItsCRDs(t *testing.T) {
	e := newEmptyCluster(t)
	port, err := controlplane.FreePort("127.0.0.1")
	harness.Must(t, err)
	health := fmt.Sprintf("127.0.0.1:%d", port)
	p := e.start("--health-probe-bind-address=" + health)
	e.says(p, "PodIPPool.cilium-pool.io/v1alpha1")
	e.says(p, "CiliumNode.cilium.io/v2: install Cilium")
	for _, path := range []string{"/healthz", "/readyz"} {
		e.eventually(p, path, func() bool { return answers(t.Context(), "http://"+health+path) })
	}
	e.install(e.ours...)
	e.says(p, `"missing":"CRD CiliumNode.cilium.io/v2: install Cilium`)
	if strings.Contains(p.Log(), "decisions begin") {
		t.Errorf("it began without Cilium's CRDs:\n%s", p.Log())
	}
	e.configureCilium("crd\n")
	e.install(e.ciliums...)
	e.says(p, "all prerequisites are there")
	e.says(p, "decisions begin")
}

// If Cilium runs in another IPAM mode, the operator's writes would have no reader: it exits with an
// error, even if Cilium is installed later.
func TestRefusesAnotherMode(t *testing.T) {
	e := newEmptyCluster(t)
	e.install(e.ours...)
	p := e.start("--health-probe-bind-address=0")
	e.says(p, "CiliumNode.cilium.io/v2: install Cilium")
	e.configureCilium("cluster-pool")
	e.install(e.ciliums...)
	want := []string{"cluster-pool", "kube-system/cilium-config", "ipam.mode=crd", "--shadow"}
	e.exits(p, want...)
	e.exits(e.start("--health-probe-bind-address=0"), want...)
}

func exitCode(err error) int {
	exit, ok := err.(*exec.ExitError) //nolint:errorlint // exec returns it bare
	if !ok {
		return 0
	}
	return exit.ExitCode()
}
