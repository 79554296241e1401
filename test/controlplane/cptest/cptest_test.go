package cptest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/cilium-pool/cilium-pool-operator/test/controlplane"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

func TestLogsAreKeptOnFailure(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	c, err := start(t.Context(), controlplane.Options{CRDs: []*apiextensionsv1.CustomResourceDefinition{}})
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	logf := func(format string, args ...any) { fmt.Fprintf(&said, format, args...) }
	harness.Must(t, stop(c, true, logf))
	if !strings.Contains(said.String(), c.Dir()) {
		t.Errorf("said %q, want the folder %s in it", said.String(), c.Dir())
	}
	for _, name := range []string{"etcd.log", "kube-apiserver.log"} {
		if _, err := os.Stat(filepath.Join(c.Dir(), name)); err != nil {
			t.Error(err)
		}
	}
	harness.Must(t, stop(c, false, logf))
	if _, err := os.Stat(c.Dir()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after success the folder is still there: %v", err)
	}
}
