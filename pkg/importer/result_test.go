package importer

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"sigs.k8s.io/yaml"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
)

func TestRead(t *testing.T) {
	const lists = `# only a comment
---
{"apiVersion": "v1", "kind": "List", "items": [
  {"apiVersion": "projectcalico.org/v3", "kind": "IPPoolList", "items": [{"metadata": {"name": "a"}}, 7]},
  {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "b"}}]}
---
ipam: {}
`
	objects, err := Read("x.yaml", []byte(lists))
	if err != nil {
		t.Fatal(err)
	}
	want := []Object{
		{APIVersion: "projectcalico.org/v3", Kind: "IPPool", Name: "a", Source: "x.yaml"},
		{APIVersion: "v1", Kind: "ConfigMap", Name: "b", Source: "x.yaml"},
		{Source: "x.yaml"},
	}
	if diff := cmp.Diff(want, objects, cmpopts.IgnoreUnexported(Object{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, bad := range []string{"a: b: c", "[1, 2]", "{{ .Values.x }}: 1"} {
		if _, err := Read("x.yaml", []byte(bad)); err == nil || !strings.Contains(err.Error(), "reading x.yaml") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// Imported pools are compared with the cluster's.
func TestCheckExisting(t *testing.T) {
	objects, err := Read("a.yaml", []byte(ipPoolOf("a", "cidr: 10.1.0.0/16")+"\n---\n"+ipPoolOf("b", "cidr: 10.2.0.0/16")+"\n---\n"+ipPoolOf("c", "cidr: 10.3.0.0/16")))
	if err != nil {
		t.Fatal(err)
	}
	r := Calico(objects, false)
	same := r.Pools[0].Object
	changed := r.Pools[1].Object
	changed.Spec.Priority = 7
	other := r.Pools[2].Object
	other.Name = "zz"
	r.Check(defaults(), []v1alpha1.PodIPPool{same, changed, other})
	checkResult(t, r, []string{"a 10.1.0.0/16 by /26", "b 10.2.0.0/16 by /26", "c 10.3.0.0/16 by /26",
		"lost: PodIPPool b: metadata.name", "lost: PodIPPool c: spec: 10.3.0.0/16"},
		"says otherwise: to apply this one would change it", "pools zz and c claim the same addresses, and only zz would")
}

// The output names all that was lost, also of pools that are not in it.
func TestWriteRemarks(t *testing.T) {
	r := imported(t, Calico, ipPoolOf("a", "cidr: 10.1.0.0/16"), ipPoolOf("b", "cidr: 10.2.0.0"))
	var b bytes.Buffer
	if err := r.WriteYAML(&b, "about"); err != nil {
		t.Fatal(err)
	}
	if len(r.Pools) != 1 || !strings.Contains(b.String(), "10.2.0.0: is not a CIDR") {
		t.Errorf("nothing says that pool b is lost:\n%s", b.String())
	}
}

// The output parses to the same pools, for any input: imported text cannot break out of a comment.
func FuzzImport(f *testing.F) {
	for _, s := range []string{
		ipPoolOf("a", "cidr: 10.1.0.0/16", "nodeSelector: a == 'b' || has(c)") + "\n---\n" + reservationOf("10.1.0.3", "10.2.0.0/15"),
		ipPoolOf(`"a\nb: c"`, "cidr: fd00::/64", `"x\ny": 1`, "disabled: true"),
		"apiVersion: operator.tigera.io/v1\nkind: Installation\nspec: {calicoNetwork: {ipPools: [{cidr: 10.1.0.0/16}, {cidr: 10.2.0.0/33}]}}",
		"apiVersion: cilium.io/v2alpha1\nkind: CiliumPodIPPool\nmetadata: {name: default}\nspec: {ipv4: {cidrs: [10.10.0.0/16], maskSize: 27}}",
		"ipam: {operator: {clusterPoolIPv6MaskSize: 200}}\nipv6: {enabled: true}",
		"apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nnetworking: {podSubnet: '10.244.0.0/16,2001:db8::/56'}",
		"apiVersion: networking.k8s.io/v1alpha1\nkind: ClusterCIDR\nmetadata: {name: a}\nspec: {perNodeHostBits: 8, ipv4: 10.0.0.0/8, nodeSelector: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: In, values: [b]}]}]}}",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, data string) {
		objects, err := Read("a\nb.yaml", []byte(data))
		if err != nil {
			return
		}
		for _, convert := range []func([]Object, bool) *Result{Calico, Cilium, Kubernetes} {
			r := convert(objects, false)
			r.Check(defaults(), nil)
			var b bytes.Buffer
			if err := r.WriteYAML(&b, "about"); err != nil {
				t.Fatal(err)
			}
			readsAs(t, b.String(), r)
		}
	})
}

func readsAs(t *testing.T, written string, r *Result) {
	t.Helper()
	names := map[string]bool{}
	docs := strings.Split(written, "\n---\n")
	for i, p := range r.Pools {
		var got v1alpha1.PodIPPool
		if err := yaml.UnmarshalStrict([]byte(docs[i]), &got); err != nil {
			t.Fatalf("%v:\n%s", err, docs[i])
		}
		if diff := cmp.Diff(p.Object, got, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("(-pool +written):\n%s", diff)
		}
		if _, err := crd.PoolFrom(&got, defaults()); err != nil {
			t.Fatalf("%v:\n%s", err, docs[i])
		}
		if names[got.Name] {
			t.Fatalf("two pools are called %s", got.Name)
		}
		names[got.Name] = true
	}
	if len(r.Pools) > 0 && len(docs) != len(r.Pools) {
		t.Fatalf("%d pools, %d documents:\n%s", len(r.Pools), len(docs), written)
	}
}
