package controlplane_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cilium-pool/cilium-pool-operator/test/controlplane"
	"github.com/cilium-pool/cilium-pool-operator/test/controlplane/cptest"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

// Additional flags and variables apply only to kube-apiserver, also when it restarts.
func TestAPIServerArgsAndEnv(t *testing.T) {
	const arg, variable = "--profiling=false", "GOGC=123"
	c := cptest.New(t, controlplane.Options{CRDs: noCRDs, APIServerArgs: []string{arg}, APIServerEnv: []string{variable}})
	has := func(pid int, file, want string) bool {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
		if err != nil {
			t.Fatal(err)
		}
		return slices.Contains(strings.Split(string(data), "\x00"), want)
	}
	for range 2 {
		etcd, apiServer := c.PIDs()
		if !has(apiServer, "cmdline", arg) || !has(apiServer, "environ", variable) {
			t.Errorf("kube-apiserver lacks %s or %s", arg, variable)
		}
		if has(etcd, "environ", variable) {
			t.Errorf("etcd has %s", variable)
		}
		harness.Must(t, c.KillAPIServer())
		harness.Must(t, c.StartAPIServer(t.Context()))
	}
}

// The error contains what kube-apiserver refuses.
func TestRefusedAPIServerArgs(t *testing.T) {
	_, err := controlplane.Start(t.Context(), controlplane.Options{CRDs: noCRDs, APIServerArgs: []string{"--no-such-flag"}})
	if err == nil || !strings.Contains(err.Error(), "unknown flag: --no-such-flag") {
		t.Errorf("got %v", err)
	}
}
