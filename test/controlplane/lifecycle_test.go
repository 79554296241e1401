package controlplane_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/test/controlplane"
	"github.com/cilium-pool/cilium-pool-operator/test/controlplane/cptest"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

// noCRDs is for tests that need none.
var noCRDs = []*apiextensionsv1.CustomResourceDefinition{}

func TestTwoAtOnceAndStop(t *testing.T) {
	first := shared.Cluster(t)
	second, err := controlplane.Start(t.Context(), controlplane.Options{CRDs: noCRDs})
	if err != nil {
		t.Fatal(err)
	}
	createNode(t, second, "only-in-second")
	err = getNode(t.Context(), t, first, "only-in-second")
	if !apierrors.IsNotFound(err) {
		t.Errorf("the first cluster sees the second's node: %v", err)
	}
	etcd, apiServer := second.PIDs()
	for range 2 {
		harness.Must(t, second.Stop())
	}
	wantNoProcess(t, etcd, apiServer)
	wantNoFile(t, second.Dir())
	if err := first.Ready(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestStopAndStartAgainKeepsData(t *testing.T) {
	o := controlplane.Options{Dir: t.TempDir(), CRDs: noCRDs}
	c, err := controlplane.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Stop() })
	createNode(t, c, "kept")
	if _, err := controlplane.Start(t.Context(), o); err == nil || !strings.Contains(err.Error(), "runs already") {
		t.Errorf("a second start in the same folder: %v", err)
	}
	if err := getNode(t.Context(), t, c, "kept"); err != nil {
		t.Errorf("after the refused start: %v", err)
	}
	harness.Must(t, c.Stop())

	again, err := controlplane.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = again.Stop() })
	// With the old configuration: port and certificates are the same.
	if err := getNode(t.Context(), t, c, "kept"); err != nil {
		t.Error(err)
	}
}

func TestKillAndStartParts(t *testing.T) {
	c := cptest.New(t, controlplane.Options{CRDs: noCRDs})
	createNode(t, c, "kept")
	type step struct {
		name string
		do   func() error
	}
	startEtcd := step{"start etcd", func() error { return c.StartEtcd(t.Context()) }}
	startAPIServer := step{"start kube-apiserver", func() error { return c.StartAPIServer(t.Context()) }}
	killEtcd := step{"kill etcd", c.KillEtcd}
	killAPIServer := step{"kill kube-apiserver", c.KillAPIServer}
	for _, steps := range [][]step{
		{killAPIServer, startAPIServer},
		{killEtcd, startEtcd},
		{killEtcd, killAPIServer, startEtcd, startAPIServer},
	} {
		for _, s := range steps {
			if err := s.do(); err != nil {
				t.Fatalf("%s: %v", s.name, err)
			}
		}
		if err := getNode(t.Context(), t, c, "kept"); err != nil {
			t.Error(err)
		}
	}
}

func TestDetachedAndAttach(t *testing.T) {
	dir := t.TempDir()
	started, err := controlplane.Start(t.Context(), controlplane.Options{Dir: dir, CRDs: noCRDs, Detached: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = started.Stop() })
	createNode(t, started, "kept")
	c, err := controlplane.Attach(dir)
	if err != nil {
		t.Fatal(err)
	}
	harness.Must(t, c.KillAPIServer())
	harness.Must(t, c.StartAPIServer(t.Context()))
	if err := getNode(t.Context(), t, c, "kept"); err != nil {
		t.Error(err)
	}
	etcd, apiServer := c.PIDs()
	harness.Must(t, c.Stop())
	wantNoProcess(t, apiServer)
	wantNoRunning(t, dir)
	if etcd == 0 {
		t.Error("the attached cluster did not know etcd's pid")
	}
}

func TestAttachNowhere(t *testing.T) {
	if _, err := controlplane.Attach(t.TempDir()); err == nil || !strings.Contains(err.Error(), "no control plane in") {
		t.Errorf("got %v", err)
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
			if err != nil {
				t.Fatal(err)
			}
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

func TestStartErrors(t *testing.T) {
	broken := t.TempDir()
	for _, name := range []string{"etcd", "kube-apiserver"} {
		script := "#!/bin/sh\necho the disk is full >&2\nexit 1\n"
		harness.Must(t, os.WriteFile(filepath.Join(broken, name), []byte(script), 0o700))
	}
	for name, test := range map[string]struct {
		options controlplane.Options
		want    string
	}{
		"no binaries":      {controlplane.Options{BinDir: t.TempDir()}, "run 'make controlplane'"},
		"a part that ends": {controlplane.Options{BinDir: broken}, "the disk is full"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := controlplane.Start(t.Context(), test.options)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q in it", err, test.want)
			}
		})
	}
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
