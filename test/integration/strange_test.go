package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/apiclient"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/test/controlplane"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

// strangeNode is a CiliumNode as agents of other versions write it: with fields that
// only v1.18 and v1.19 have (spec.eni.min-allocate and the like), and fields that no
// version has yet, at every level.
const strangeNode = `{
  "apiVersion": "cilium.io/v2", "kind": "CiliumNode",
  "metadata": {"name": "n1", "labels": {"a": "b"}, "annotations": {"future.cilium.io/key": "{\"x\": 1}"}},
  "futureTop": {"list": [1, "two", 3.5, null, {"deep": false}]},
  "spec": {
    "addresses": [{"type": "InternalIP", "ip": "192.0.2.7", "futureZone": "z"}],
    "bootid": "0bd5c7a4", "nodeidentity": 7,
    "eni": {"instance-id": "i-1", "min-allocate": 4, "pre-allocate": 2, "max-above-watermark": 1, "futureEni": {"n": 9007199254740993}},
    "encryption": {"key": 3, "futureKeys": [{"spi": 1}]},
    "futureSpec": {"empty": {}, "none": [], "nested": {"a": {"b": ["c"]}}},
    "ipam": {
      "futureKnob": 12,
      "podCIDRs": ["198.51.100.0/24"],
      "pool": {"198.51.100.5": {"owner": "default/x", "resource": "eni-1", "futureField": {"since": "2026-01-01"}}},
      "pools": {"requested": [{"pool": "default", "needed": {"ipv4-addrs": 3, "futureNeed": 1}}]}
    }
  },
  "status": {
    "futureStatus": {"phase": "x"},
    "alibaba-cloud": {"futureEnis": {"e": {}}},
    "ipam": {"futureReport": ["y"], "operator-status": {"error": "old", "code": 5}, "assigned-static-ip": "203.0.113.9"}
  }
}`

// Our fields in a CiliumNode are in this CIDR, or are release-ips.
const strangePool = "10.0.0.0/8"

// TestFieldsOfOtherVersionsStay lets a node of another Cilium version grow, shrink and drain.
// Fields that the operator did not write stay exactly as they were.
func TestFieldsOfOtherVersionsStay(t *testing.T) {
	t.Parallel()
	cluster := planes.Cluster(t)
	keepUnknownFields(t, cluster)
	e := newEnvOn(t, cluster)
	e.pool("all", nil, "10.1.0.0/24", "10.2.0.0/24")
	e.bareNode("n1", nil)
	a := newStrangeAgent(e, "n1")
	e.start(quick())

	e.hasOf("n1", 1)
	a.checkUnchanged("joined")
	a.report(a.ours()[0])
	e.Pods("n1", "strange", 50) // which get no address
	e.hasOf("n1", 3)
	a.checkUnchanged("grown")

	e.DropPods()
	a.answersUntil("blocks returned", func() bool { return len(e.Blocks("n1")) == 1 })
	a.checkUnchanged("returned")

	e.change("all", func(p *v1alpha1.PodIPPool) { p.Spec.IPv4.CIDRs[0].AllocationPolicy = v1alpha1.AllocationDrain })
	a.answersUntil("replaced, and only the used address left, which is retired", func() bool {
		return len(a.ours()) == 31 && len(a.releases()) == 1
	})
	a.checkUnchanged("draining")
	for _, ip := range a.ours() {
		if netip.MustParsePrefix("10.2.0.0/24").Contains(netip.MustParseAddr(ip)) {
			a.report(ip) // the router has moved
			break
		}
	}
	a.answersUntil("drained", func() bool {
		return len(e.Blocks("n1")) == 1 && len(a.ours()) == 30 && len(a.releases()) == 0
	})
	a.checkUnchanged("drained")
}

// hasOf waits until a node holds n published blocks in addition to its foreign content.
func (e *env) hasOf(node string, n int) {
	e.TB.Helper()
	e.Eventually(fmt.Sprintf("node %s has %d blocks", node, n), func() error {
		cn, err := e.ciliumNode(node)
		if err == nil && len(cn.Spec.IPAM.PodCIDRs) != n+1 {
			err = fmt.Errorf("podCIDRs %v", cn.Spec.IPAM.PodCIDRs)
		}
		return err
	})
}

// strangeAgent acts as the agent of another version: it writes by patches and drops no field.
type strangeAgent struct {
	*env
	name string
	was  map[string]any // as first written, without our fields
	used map[string]any
}

func newStrangeAgent(e *env, name string) *strangeAgent {
	e.TB.Helper()
	a := &strangeAgent{env: e, name: name}
	o := &unstructured.Unstructured{}
	e.Must(o.UnmarshalJSON([]byte(strangeNode)))
	status := o.Object["status"]
	end := e.breaks(3, "CiliumNode "+name, "came to list 198.51.100.0/24") // which is not a block
	e.Create(o)
	end()
	a.patch(true, map[string]any{"status": status})
	a.was = a.notOurs()
	if _, found, _ := unstructured.NestedMap(a.was, "status", "futureStatus"); !found {
		e.TB.Fatal("the API server has dropped the unknown fields")
	}
	e.AgentPod(name)
	return a
}

func (a *strangeAgent) patch(status bool, body map[string]any) {
	a.TB.Helper()
	data, err := json.Marshal(body)
	a.Must(err)
	o, patch := a.object(), client.RawPatch("application/merge-patch+json", data)
	if status {
		err = a.Client.Status().Patch(a.Ctx, o, patch)
	} else {
		err = a.Client.Patch(a.Ctx, o, patch)
	}
	a.Must(err)
}

func (a *strangeAgent) object() *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(ciliumv2.SchemeGroupVersion.WithKind("CiliumNode"))
	o.SetName(a.name)
	return o
}

func (a *strangeAgent) get() map[string]any {
	a.TB.Helper()
	o := a.object()
	a.Must(a.Client.Get(a.Ctx, client.ObjectKeyFromObject(o), o))
	return o.Object
}

// notOurs returns the whole object without the operator's fields, the agent's report and the
// fields of the API server.
func (a *strangeAgent) notOurs() map[string]any {
	a.TB.Helper()
	o := a.get()
	for _, path := range [][]string{
		{"metadata", "resourceVersion"},
		{"metadata", "generation"},
		{"metadata", "managedFields"},
		{"status", "ipam", "release-ips"},
		{"status", "ipam", "used"},
	} {
		unstructured.RemoveNestedField(o, path...)
	}
	ipam := child(child(o, "spec"), "ipam")
	maps.DeleteFunc(child(ipam, "pool"), func(ip string, _ any) bool { return isOurs(ip) })
	cidrs, _ := ipam["podCIDRs"].([]any)
	ipam["podCIDRs"] = slices.DeleteFunc(cidrs, func(c any) bool {
		return isOurs(netip.MustParsePrefix(fmt.Sprint(c)).Addr().String())
	})
	return o
}

func child(o map[string]any, key string) map[string]any {
	c, _ := o[key].(map[string]any)
	return c
}

func isOurs(ip string) bool {
	return netip.MustParsePrefix(strangePool).Contains(netip.MustParseAddr(ip))
}

// checkUnchanged checks that only the operator's fields have changed.
func (a *strangeAgent) checkUnchanged(step string) {
	a.TB.Helper()
	if diff := cmp.Diff(a.was, a.notOurs()); diff != "" {
		a.TB.Errorf("%s: what is not the operator's has changed (-was +is):\n%s", step, diff)
	}
	if diff := cmp.Diff(a.used, child(child(child(a.get(), "status"), "ipam"), "used")); diff != "" {
		a.TB.Errorf("%s: the agent's report has changed (-was +is):\n%s", step, diff)
	}
}

// ours returns the addresses of our blocks in the pool.
func (a *strangeAgent) ours() []string {
	pool := child(child(child(a.get(), "spec"), "ipam"), "pool")
	return slices.DeleteFunc(slices.Sorted(maps.Keys(pool)), func(ip string) bool { return !isOurs(ip) })
}

func (a *strangeAgent) releases() map[string]any {
	return child(child(child(a.get(), "status"), "ipam"), "release-ips")
}

// report reports the router's address as the only one in use.
func (a *strangeAgent) report(ip string) {
	a.TB.Helper()
	entries := map[string]any{ip: map[string]any{"owner": "router", "futureOwner": map[string]any{"kind": "agent"}}}
	for old := range a.used {
		if old != ip {
			entries[old] = nil
		}
	}
	a.patch(true, map[string]any{"status": map[string]any{"ipam": map[string]any{"used": entries}}})
	a.used = map[string]any{ip: entries[ip]}
}

// answersUntil makes the agent acknowledge every release until done returns true.
func (a *strangeAgent) answersUntil(what string, done func() bool) {
	a.TB.Helper()
	a.Eventually(what, func() error {
		answers := map[string]any{}
		for ip, state := range a.releases() {
			if _, used := a.used[ip]; state == "marked-for-release" && !used {
				answers[ip] = "ready-for-release"
			}
		}
		if len(answers) > 0 {
			a.patch(true, map[string]any{"status": map[string]any{"ipam": map[string]any{"release-ips": answers}}})
		}
		if !done() {
			return fmt.Errorf("%d blocks, %d addresses, release-ips %v", len(a.Blocks(a.name)), len(a.ours()), a.releases())
		}
		return nil
	})
}

// keepUnknownFields makes the API server keep every field of a CiliumNode, as the CRDs of other
// versions keep the fields that they know, until the test ends.
func keepUnknownFields(t *testing.T, cluster *controlplane.Cluster) {
	t.Helper()
	install := func(ctx context.Context, loose bool) {
		t.Helper()
		crds, err := controlplane.CiliumCRDs()
		harness.Must(t, err)
		for _, c := range crds {
			for i := range c.Spec.Versions {
				if loose {
					loosen(c.Spec.Versions[i].Schema.OpenAPIV3Schema)
				}
			}
		}
		harness.Must(t, cluster.InstallCRDs(ctx, crds...))
		waitForSchema(ctx, t, cluster, loose)
	}
	// The test's own context ends before its clean-up.
	t.Cleanup(func() { install(context.Background(), false) })
	install(t.Context(), true)
}

// loosen makes a schema keep unknown fields at every level except metadata, which belongs to
// the API server.
func loosen(s *apiextensionsv1.JSONSchemaProps) {
	if s == nil {
		return
	}
	if s.Type == "object" && s.AdditionalProperties == nil {
		s.XPreserveUnknownFields = ptr.To(true)
	}
	for name, property := range s.Properties {
		if name != "metadata" {
			loosen(&property)
			s.Properties[name] = property
		}
	}
	if s.AdditionalProperties != nil {
		loosen(s.AdditionalProperties.Schema)
	}
	if s.Items != nil {
		loosen(s.Items.Schema)
	}
}

// waitForSchema waits until the API server serves the schema, which it does a moment after it
// has stored it.
func waitForSchema(ctx context.Context, t *testing.T, cluster *controlplane.Cluster, loose bool) {
	t.Helper()
	c, err := harness.NewClient(cluster.Config())
	harness.Must(t, err)
	harness.Eventually(t, "the schema is served", func() error {
		o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"futureSpec": "x"}}}
		o.SetGroupVersionKind(ciliumv2.SchemeGroupVersion.WithKind("CiliumNode"))
		o.SetName("schema-probe")
		err := c.Create(ctx, o, client.DryRunAll)
		_, kept, _ := unstructured.NestedString(o.Object, "spec", "futureSpec")
		if err == nil && kept != loose {
			err = fmt.Errorf("kept %t", kept)
		}
		return err
	})
}

// TestStrangeObjects creates objects of every kind that the API server accepts and no program
// should write. After each, a fresh node is served, and at the end by an operator that starts
// with all of them. The checker and the agents do not run: Cilium's types cannot hold some of
// these objects.
func TestStrangeObjects(t *testing.T) {
	for _, mode := range ciliumnode.Modes() {
		t.Run(mode.String(), func(t *testing.T) { testStrangeObjects(t, mode) })
	}
}

func testStrangeObjects(t *testing.T, mode ciliumnode.Mode) {
	t.Parallel()
	cluster := planes.Cluster(t)
	e := &env{Bed: harness.NewBed(t, cluster.Config()), cluster: cluster, log: testLogger(t)}
	ctx, cancel := context.WithCancel(context.Background()) // the test's own context ends before its clean-up
	e.Ctx = ctx
	scheme, err := apiclient.Scheme()
	e.Must(err)
	reads, err := apiclient.NewClient(cluster.Config(), client.Options{Scheme: scheme})
	e.Must(err)
	e.Client = interceptor.NewClient(e.Client, interceptor.Funcs{
		Get: func(ctx context.Context, _ client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			return reads.Get(ctx, key, obj, opts...)
		},
		List: func(ctx context.Context, _ client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			return reads.List(ctx, list, opts...)
		},
	})
	patch := func(subresource, body string) {
		t.Helper()
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "cilium.io/v2", "kind": "CiliumNode", "metadata": map[string]any{"name": "strange"}}}
		p := client.RawPatch(types.MergePatchType, []byte(body))
		if subresource == "" {
			e.Must(e.Client.Patch(e.Ctx, o, p))
		} else {
			e.Must(e.Client.SubResource(subresource).Patch(e.Ctx, o, p))
		}
	}
	e.wipe()
	t.Cleanup(cancel)
	s := quick()
	s.Mode = mode
	op := e.start(s)
	e.pool("all", nil, "10.1.0.0/16")
	fresh := 0
	isServed := func(name, after string) {
		t.Helper()
		e.Eventually("node "+name+" has a block after "+after, func() error {
			obj := mode.AllocationObject()
			if err := e.Client.Get(e.Ctx, client.ObjectKey{Name: name}, obj); err != nil {
				return err
			}
			view := mode.View(obj)
			for _, b := range e.Blocks(name) {
				if cidr := netip.MustParsePrefix(b.Spec.CIDR); view.ListsForDefaultPool(cidr) && view.CountIn(cidr) > 0 {
					return nil
				}
			}
			return errors.New("it has none")
		})
	}
	serves := func(after string) {
		t.Helper()
		fresh++
		name := fmt.Sprintf("fresh-%d", fresh)
		e.bareNode(name, nil)
		isServed(name, after)
	}
	e.bareNode("strange", nil)
	isServed("strange", "its start")
	if mode == ciliumnode.Kubernetes { // the agent writes it
		e.Create(ciliumNodeWith("strange", nil, []string{"10.1.0.0/27"}))
	}
	for _, spec := range []string{
		`{"spec":{"ipam":{"podCIDRs":["10.1.0.0/27","10.020.0.0/24","10.21.0.0/024"]}}}`,
		`{"spec":{"ipam":{"podCIDRs":["10.1.0.0/27","10.0.0.0/0"]}}}`,
		`{"spec":{"ipam":{"podCIDRs":["10.1.0.0/27","::/0","10.1.0.7/27","10.1.0.0/27"]}}}`,
		`{"spec":{"ipam":{"pools":{"allocated":[{"pool":"default","cidrs":["010.1.0.0/24","0.0.0.0/0"]},{"pool":"x","cidrs":["::ffff:10.1.0.0/120"]}]}}}}`,
		`{"spec":{"ipam":{"pool":{"010.1.0.9":{},"10.1.0.0/24":{},"":{},"fe80::1%eth0":{},"10.1.0.3":{"owner":"a/b/c","resource":"\u0000"}}}}}`,
		`{"spec":{"ipam":{"min-allocate":9223372036854775807,"pre-allocate":9223372036854775807,"max-above-watermark":9223372036854775807}}}`,
		`{"spec":{"addresses":[{"type":"InternalIP","ip":"10.1.0.0/24"},{"type":"CiliumInternalIP","ip":"::ffff:10.1.0.3"},{"type":"","ip":"x"}],"bootid":"\n"}}`,
		`{"spec":{"nodeidentity":-1,"encryption":{"key":-9007199254740993},"azure":{"interface-name":"\u0000"}}}`,
		`{"spec":{"health":{"ipv4":"10.1.0.900"},"ingress":{"ipV4":"0.0.0.0","ipV6":"::"}}}`,
	} {
		patch("", spec)
		serves(spec)
	}
	for _, status := range []string{
		`{"status":{"ipam":{"used":{"10.1.0.300":{},"010.1.0.1":{"owner":"router"},"10.1.0.1":{"owner":"router"}},"release-ips":{"x":"released","10.1.0.3":"marked-for-release"}}}}`,
		`{"status":{"alibaba-cloud":{"enis":{"e":{"vpc":{"cidr":"010.0.0.0/8"}}}},"eni":{"enis":{"e":{"subnet":{"cidr":"010.0.0.0/8"}}}}}}`,
	} {
		patch("status", status)
		serves(status)
	}
	e.Delete(ciliumNodeWith("strange", nil, nil))
	serves("the deletion of a strange CiliumNode")
	isServed("strange", "the deletion of its CiliumNode")
	for _, object := range []string{
		`{"apiVersion":"cilium.io/v2","kind":"CiliumNode","metadata":{"name":"no-node"},"spec":{"ipam":{"podCIDRs":["10.1.0.0/16","010.0.0.0/8"]}}}`,
		`{"apiVersion":"cilium-pool.io/v1alpha1","kind":"PodIPBlock","metadata":{"name":"10.1.3.0-25"},"spec":{"cidr":"10.1.3.0/25","nodeName":"no-node","poolName":"all"}}`,
		`{"apiVersion":"cilium-pool.io/v1alpha1","kind":"PodIPPool","metadata":{"name":"odd"},"spec":{"priority":-1000,"nodeSelector":{"matchExpressions":[{"key":"a","operator":"NotIn","values":["","b","b"]}]},"ipv4":{"blockSize":27,"cidrs":[{"cidr":"10.9.0.0/24"}]}}}`,
		`{"apiVersion":"v1","kind":"Node","metadata":{"name":"odd","labels":{"kubernetes.io/os":""},"annotations":{"network.cilium.io/ipv4-pod-cidr":"10.1.0.0/024","cilium-pool.io/paused":"maybe"}},"spec":{"podCIDR":"10.1.2.0/24","podCIDRs":["10.1.2.0/24"]}}`,
		`{"apiVersion":"cilium.io/v2alpha1","kind":"CiliumPodIPPool","metadata":{"name":"odd"},"spec":{"ipv4":{"cidrs":["010.1.0.0/8","10.1.0.0/00"],"maskSize":1},"ipv6":{"cidrs":["::ffff:10.1.0.0/100"],"maskSize":128}}}`,
		`{"apiVersion":"v1","kind":"Namespace","metadata":{"generateName":"odd-","annotations":{"ipam.cilium.io/ip-pool":"../default","ipam.cilium.io/require-pool-match":"perhaps"}}}`,
		`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"odd","namespace":"default","annotations":{"ipam.cilium.io/ip-pool":"\n"}},"spec":{"nodeName":"strange","containers":[{"name":"c","image":"i"}]}}`,
	} {
		o := &unstructured.Unstructured{}
		e.Must(o.UnmarshalJSON([]byte(object)))
		e.Create(o)
		serves(object)
	}
	op.stop()
	e.start(s)
	serves("a restart of the operator")
}
