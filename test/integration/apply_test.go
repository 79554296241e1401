package integration

import (
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
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/agent"
)

// The operator serves nodes from the applied examples, and the files still match the objects: applying
// them again causes no conflict and no change, pruning deletes nothing, and the operator owns only the
// fields that it writes.
func TestExamplesApplyAgain(t *testing.T) {
	for name, how := range map[string]struct{ apply, prune []string }{
		"client side": {nil, []string{"--all", "--prune-allowlist=cilium-pool.io/v1alpha1/PodIPPool",
			"--prune-allowlist=cilium-pool.io/v1alpha1/PodIPPin", "--prune-allowlist=cilium-pool.io/v1alpha1/PodIPBlock"}},
		"server side": {[]string{"--server-side"}, []string{"--applyset=configmaps/examples", "--namespace=default"}},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			e.start(quick())
			files := manifests(e)
			apply := func(files []string, flags ...string) string {
				t.Helper()
				return e.kubectl(slices.Concat([]string{"apply", "-f", strings.Join(files, ",")}, how.apply, flags)...)
			}
			t.Cleanup(func() { e.kubectl("delete", "-f", "../../examples/admission-nodename.yaml") })
			for range 2 { // the second time against the objects of the first operator
				apply(files)
				e.Eventually("the operator has seen to all", e.seenTo)
			}
			e.node("gateway-1", map[string]string{"node-restriction.kubernetes.io/zone": "beijing"})
			e.load("gateway-1", "load", 40)
			e.awaitBlocks("the pinned block", "gateway-1", 1, 1, inCIDR("100.66.230.32/27"))
			e.node("dual-1", map[string]string{"node-restriction.kubernetes.io/dual-stack": "true"}, agent.IPv4, agent.IPv6)
			e.awaitBlocks("a block of each family", "dual-1", 2, 2, ofPool("dual-stack"))
			e.Eventually("the operator has settled", e.unchanged())

			if out := e.kubectl(append([]string{"diff", "-f", strings.Join(files, ",")}, how.apply...)...); out != "" {
				t.Errorf("the files differ from what is there:\n%s", out)
			}
			before := versions(e)
			if out := apply(files); how.apply == nil && slices.ContainsFunc(strings.Split(strings.TrimSpace(out), "\n"),
				func(line string) bool { return !strings.HasSuffix(line, " unchanged") }) {
				t.Errorf("applied again: %s", out)
			}
			prune := append([]string{"--prune"}, how.prune...)
			if out := apply(files, prune...); strings.Contains(out, "pruned") {
				t.Errorf("pruned, with all files there: %s", out)
			}
			if diff := cmp.Diff(before, versions(e)); diff != "" {
				t.Errorf("applied again and pruned (-before +after):\n%s", diff)
			}
			if out := apply(files[1:], append(prune, "--dry-run=server")...); !strings.Contains(out, "/beijing pruned") {
				t.Errorf("without %s it does not prune: %s", files[0], out)
			}
			for _, o := range objectsOf(e) {
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

// versions returns the names, UIDs and generations of pools, pins and blocks.
func versions(e *env) []string {
	e.TB.Helper()
	var all []string
	for _, o := range objectsOf(e) {
		all = append(all, fmt.Sprintf("%s %s %d", o.GetName(), o.GetUID(), o.GetGeneration()))
	}
	return all
}

// manifests returns the example files with objects, pools first.
func manifests(e *env) []string {
	e.TB.Helper()
	all, err := filepath.Glob("../../examples/*.yaml")
	e.Must(err)
	files := slices.DeleteFunc(all, func(f string) bool { return strings.Contains(filepath.Base(f), "values") })
	if len(files) < 6 {
		e.TB.Fatalf("found %v alone", files)
	}
	slices.Reverse(files)
	return files
}

// kubectl runs kubectl against the control plane. Exit code 1 of diff is not a failure.
func (e *env) kubectl(args ...string) string {
	e.TB.Helper()
	args = append([]string{"--kubeconfig", filepath.Join(e.cluster.Dir(), "kubeconfig"), "--cache-dir", e.TB.TempDir()}, args...)
	cmd := exec.CommandContext(e.Ctx, filepath.Join(e.cluster.BinDir(), "kubectl"), args...)
	cmd.Env = append(os.Environ(), "KUBECTL_APPLYSET=true")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	differs := slices.Contains(args, "diff") && errors.As(err, &exit) && exit.ExitCode() == 1
	if err != nil && !differs {
		e.TB.Fatalf("kubectl %v: %v\n%s", args, err, out)
	}
	return string(out)
}

func objectsOf(e *env) []client.Object {
	e.TB.Helper()
	pools := &v1alpha1.PodIPPoolList{}
	e.Must(e.Client.List(e.Ctx, pools))
	var all []client.Object
	for i := range pools.Items {
		all = append(all, &pools.Items[i])
	}
	pins := &v1alpha1.PodIPPinList{}
	e.Must(e.Client.List(e.Ctx, pins))
	for i := range pins.Items {
		all = append(all, &pins.Items[i])
	}
	blocks := e.Blocks("")
	for i := range blocks {
		all = append(all, &blocks[i])
	}
	return all
}

// seenTo returns an error until the operator has written its fields of each object.
func (e *env) seenTo() error {
	for _, o := range objectsOf(e) {
		if pin, ok := o.(*v1alpha1.PodIPPin); ok && len(pin.Status.Conditions) == 0 {
			return fmt.Errorf("pin %s has no status", pin.Name)
		} else if !ok && !slices.Contains(o.GetFinalizers(), v1alpha1.Finalizer) {
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
	cn := e.readCiliumNode("n1")
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
	if cn := e.readCiliumNode("n1"); len(cn.ManagedFields) == 0 {
		t.Error("no managed fields are left")
	}
}
