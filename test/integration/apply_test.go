package integration

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
)

// Once the operator has processed the applied examples, the files still match the
// objects: applying them again causes no conflict and no change, and the operator
// owns only the fields that it writes.
func TestExamplesApplyAgain(t *testing.T) {
	for name, how := range map[string][]string{"client side": nil, "server side": {"--server-side"}} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			e.start(quick())
			e.bareNode("gateway-1", nil)
			files := e.manifests()
			for range 2 { // the second time against the objects of the first operator
				for _, f := range files {
					e.kubectl(append([]string{"apply", "-f", f}, how...)...)
				}
				e.Eventually("the operator has seen to all", e.seenTo)
			}
			for _, f := range files {
				if out := e.kubectl(append([]string{"diff", "-f", f}, how...)...); out != "" {
					t.Errorf("%s differs from what is there:\n%s", f, out)
				}
				if out := e.kubectl("apply", "-f", f); how == nil && slices.ContainsFunc(strings.Split(strings.TrimSpace(out), "\n"),
					func(line string) bool { return !strings.HasSuffix(line, " unchanged") }) {
					t.Errorf("applied again: %s", out)
				}
			}
			for _, o := range e.poolsAndBlocks() {
				managed := o.GetManagedFields()
				if !slices.ContainsFunc(managed, byKubectl) {
					continue // a block that the operator created
				}
				for _, m := range managed {
					if err := ownsOnlyItsOwn(m); err != nil {
						t.Errorf("%s: %v", o.GetName(), err)
					}
				}
			}
		})
	}
}

// manifests returns the example files with pools and blocks, pools first.
func (e *env) manifests() []string {
	e.TB.Helper()
	all, err := filepath.Glob("../../examples/*.yaml")
	if err != nil {
		e.TB.Fatal(err)
	}
	var files []string
	for _, f := range all {
		body, err := os.ReadFile(f)
		if err != nil {
			e.TB.Fatal(err)
		}
		if bytes.Contains(body, []byte("\napiVersion: cilium-pool.io/")) {
			files = append(files, f)
		}
	}
	if len(files) < 4 {
		e.TB.Fatalf("found %v alone", files)
	}
	slices.Reverse(files)
	return files
}

// kubectl runs kubectl against the control plane. Exit code 1 of diff is not a failure.
func (e *env) kubectl(args ...string) string {
	e.TB.Helper()
	args = append([]string{"--kubeconfig", filepath.Join(e.cluster.Dir(), "kubeconfig"), "--cache-dir", e.TB.TempDir()}, args...)
	out, err := exec.CommandContext(e.Ctx, filepath.Join(e.cluster.BinDir(), "kubectl"), args...).CombinedOutput()
	var exit *exec.ExitError
	differs := slices.Contains(args, "diff") && errors.As(err, &exit) && exit.ExitCode() == 1
	if err != nil && !differs {
		e.TB.Fatalf("kubectl %v: %v\n%s", args, err, out)
	}
	return string(out)
}

func (e *env) poolsAndBlocks() []client.Object {
	e.TB.Helper()
	pools := &v1alpha1.PodIPPoolList{}
	e.Must(e.Client.List(e.Ctx, pools))
	var all []client.Object
	for i := range pools.Items {
		all = append(all, &pools.Items[i])
	}
	blocks := e.Blocks("")
	for i := range blocks {
		all = append(all, &blocks[i])
	}
	return all
}

// seenTo returns an error until the operator has written its fields of each object.
func (e *env) seenTo() error {
	for _, o := range e.poolsAndBlocks() {
		if !slices.Contains(o.GetFinalizers(), v1alpha1.Finalizer) {
			return fmt.Errorf("%s has no finalizer", o.GetName())
		}
		if pool, ok := o.(*v1alpha1.PodIPPool); ok && pool.Status.ObservedGeneration != pool.Generation {
			return fmt.Errorf("the status of pool %s is of generation %d", pool.Name, pool.Status.ObservedGeneration)
		}
	}
	return nil
}

func byKubectl(m metav1.ManagedFieldsEntry) bool { return strings.HasPrefix(m.Manager, "kubectl") }

// ownsOnlyItsOwn returns an error if the operator, the only field manager besides kubectl,
// owns more than its finalizer and the status.
func ownsOnlyItsOwn(m metav1.ManagedFieldsEntry) error {
	if byKubectl(m) || m.Subresource == "status" {
		return nil
	}
	var fields map[string]map[string]json.RawMessage
	if err := json.Unmarshal(m.FieldsV1.GetRawBytes(), &fields); err != nil {
		return err
	}
	for top, under := range fields {
		for field := range under {
			if top != "f:metadata" || field != "f:finalizers" && field != "." {
				return fmt.Errorf("%s owns %s %s: %s", m.Manager, top, field, m.FieldsV1.GetRawString())
			}
		}
	}
	return nil
}
