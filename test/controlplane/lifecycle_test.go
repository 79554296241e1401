package controlplane_test

import (
	"context"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/test/controlplane"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

// noCRDs is for tests that need none.
var noCRDs = []*apiextensionsv1.CustomResourceDefinition{}

func TestStopAndStartAgainKeepsData(t *testing.T) {
	o := controlplane.Options{Dir: t.TempDir(), CRDs: noCRDs}
	c, err := controlplane.Start(t.Context(), o)
	harness.Must(t, err)
	t.Cleanup(func() { _ = c.Stop() })
	createNode(t, c, "kept")
	if _, err := controlplane.Start(t.Context(), o); err == nil || !strings.Contains(err.Error(), "runs already") {
		t.Errorf("a second start in the same folder: %v", err)
	}
	if err := getNode(t.Context(), t, c, "kept"); err != nil {
		t.Errorf("after the refused start: %v", err)
	}
	for range 2 {
		harness.Must(t, c.Stop())
	}
	wantNoRunning(t, o.Dir)

	again, err := controlplane.Start(t.Context(), o)
	harness.Must(t, err)
	t.Cleanup(func() { _ = again.Stop() })
	// With the old configuration: port and certificates are the same.
	if err := getNode(t.Context(), t, c, "kept"); err != nil {
		t.Error(err)
	}
}

// cancelOn cancels a context when a line with text is logged.
type cancelOn struct {
	text   string
	cancel context.CancelFunc
}

func (c cancelOn) Write(line []byte) (int, error) {
	if strings.Contains(string(line), c.text) {
		c.cancel()
	}
	return len(line), nil
}

func TestCancelledStartLeavesNothing(t *testing.T) {
	for _, at := range []string{"etcd started", "kube-apiserver started", "kube-apiserver serves"} {
		t.Run(at, func(t *testing.T) {
			temp := t.TempDir()
			t.Setenv("TMPDIR", temp)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			_, err := controlplane.Start(ctx, controlplane.Options{Log: cancelOn{at, cancel}})
			if err == nil || ctx.Err() == nil {
				t.Fatalf("start was not cancelled: %v", err)
			}
			left, err := os.ReadDir(temp)
			harness.Must(t, err)
			if len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

func TestCancelledStartLeavesNoProcess(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, err := controlplane.Start(ctx, controlplane.Options{Dir: dir, Log: cancelOn{"kube-apiserver started", cancel}})
	if err == nil {
		t.Fatal("start was not cancelled")
	}
	wantNoRunning(t, dir)
}

func wantNoRunning(t *testing.T, dir string) {
	t.Helper()
	running, err := controlplane.RunningIn(dir)
	if err != nil || len(running) > 0 {
		t.Errorf("still running: %v, %v", running, err)
	}
}

func createNode(t *testing.T, c *controlplane.Cluster, name string) {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := clientFor(t, c.Config()).CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func getNode(ctx context.Context, t *testing.T, c *controlplane.Cluster, name string) error {
	t.Helper()
	_, err := clientFor(t, c.Config()).CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	return err
}
