package controlplane_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/cilium-pool/cilium-pool-operator/test/controlplane"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(orphanEnv); dir != "" {
		startOrphans(dir)
	}
	os.Exit(m.Run())
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
