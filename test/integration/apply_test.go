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

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
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
			files := manifests(e)
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
			for _, o := range poolsAndBlocks(e) {
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
func manifests(e *env) []string {
	e.TB.Helper()
	all, err := filepath.Glob("../../examples/*.yaml")
	e.Must(err)
	var files []string
	for _, f := range all {
		body, err := os.ReadFile(f)
		e.Must(err)
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

func poolsAndBlocks(e *env) []client.Object {
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
	for _, o := range poolsAndBlocks(e) {
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

// The operator ends the tracking of fields with the first address that it publishes. Neither
// the agent's reports nor later blocks start it again; a client that applies the object does.
func TestManagedFieldsAreDropped(t *testing.T) {
	e := newServed(t)
	a := e.node("n1", nil)
	e.load("n1", "load", 40)
	e.hasBlocks("n1", 2)
	e.onNode("all use is reported, and no field is tracked", "n1", func(cn *ciliumv2.CiliumNode) bool {
		return len(cn.Status.IPAM.Used) == len(a.Addresses()) && len(cn.ManagedFields) == 0
	})

	applied := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "cilium.io/v2", "kind": "CiliumNode",
		"metadata": map[string]any{"name": "n1", "annotations": map[string]any{"example.com/rack": "7"}},
	}}
	e.Must(e.Client.Apply(e.Ctx, client.ApplyConfigurationFromUnstructured(applied), client.FieldOwner("inventory")))
	e.load("n1", "more", 30)
	e.hasBlocks("n1", 3)
	cn := e.theCiliumNode("n1")
	byInventory := func(m metav1.ManagedFieldsEntry) bool {
		return m.Manager == "inventory" && m.Operation == metav1.ManagedFieldsOperationApply
	}
	if !slices.ContainsFunc(cn.ManagedFields, byInventory) || cn.Annotations["example.com/rack"] != "7" {
		t.Errorf("annotations %v, managed fields %v: want those applied", cn.Annotations, cn.ManagedFields)
	}
}

func TestManagedFieldsAreKept(t *testing.T) {
	e := newEnv(t)
	s := quick()
	s.KeepManagedFields = true
	e.start(s)
	e.pool("all", nil, "10.1.0.0/24")
	e.node("n1", nil)
	e.load("n1", "load", 40)
	e.hasBlocks("n1", 2)
	if cn := e.theCiliumNode("n1"); len(cn.ManagedFields) == 0 {
		t.Error("no managed fields are left")
	}
}
