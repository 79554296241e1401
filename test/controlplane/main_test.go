package controlplane_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/cilium-pool/cilium-pool-operator/test/controlplane"
	"github.com/cilium-pool/cilium-pool-operator/test/controlplane/cptest"
)

var shared = cptest.Shared{Options: controlplane.Options{AuditLog: true}}

func TestMain(m *testing.M) {
	if dir := os.Getenv(orphanEnv); dir != "" {
		startOrphans(dir)
	}
	os.Exit(shared.Main(m))
}

// orphanEnv makes this test binary start a cluster in the folder that it names, print the
// folder, and wait until it is killed or its stdin ends.
const orphanEnv = "CONTROLPLANE_TEST_ORPHANS"

func startOrphans(dir string) {
	_, err := controlplane.Start(context.Background(), controlplane.Options{Dir: dir, CRDs: noCRDs})
	fmt.Println("started", err)
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(1)
}

func clientFor(t *testing.T, cfg *rest.Config) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func wantNoProcess(t *testing.T, pids ...int) {
	t.Helper()
	for _, pid := range pids {
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("pid %d still runs: %v", pid, err)
		}
	}
}

func wantNoFile(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is still there: %v", path, err)
	}
}
