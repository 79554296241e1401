package ciliumnode

import (
	"context"
	"maps"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func fakeClient(t *testing.T, hooks interceptor.Funcs, objects ...client.Object) *Client {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{ciliumv2.AddToScheme, corev1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithStatusSubresource(&ciliumv2.CiliumNode{}).WithInterceptorFuncs(hooks).Build()
	return &Client{Writer: c, Reader: c}
}

func get(t *testing.T, c *Client, name string) *ciliumv2.CiliumNode {
	t.Helper()
	cn := &ciliumv2.CiliumNode{}
	if err := c.Reader.Get(t.Context(), types.NamespacedName{Name: name}, cn); err != nil {
		t.Fatal(err)
	}
	return cn
}

func live(t *testing.T, c *Client, name string) *View {
	t.Helper()
	v, err := c.Live(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestApplyAndReleaseLoseAgainstANewerVersion(t *testing.T) {
	c := fakeClient(t, interceptor.Funcs{}, node(nil))
	old := live(t, c, "n1")
	if _, err := c.PatchSpec(t.Context(), old, Change{Publish: addrs("10.0.0.1"), Blocks: cidrs("10.0.0.0/30")}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.PatchSpec(t.Context(), old, Change{Publish: addrs("10.0.0.2"), Blocks: cidrs("10.0.0.0/30")}); !apierrors.IsConflict(err) {
		t.Errorf("Apply on an old version: %v, want a conflict", err)
	}
	if _, err := c.PatchReleaseIPs(t.Context(), old, ReleaseChange{Mark: addrs("10.0.0.1")}); !apierrors.IsConflict(err) {
		t.Errorf("Release on an old version: %v, want a conflict", err)
	}
	checkEqual(t, "pool", ipamtypes.AllocationMap{"10.0.0.1": {}}, get(t, c, "n1").Spec.IPAM.Pool)
}

func TestReportLosesAgainstANewerVersion(t *testing.T) {
	c := fakeClient(t, interceptor.Funcs{}, node(nil))
	old := get(t, c, "n1")
	report := NodeReport{Families: [2]bool{true, false}}
	if err := report.Write(t.Context(), c.Writer, old); err != nil {
		t.Fatal(err)
	}
	report.Used = map[netip.Addr]string{netip.MustParseAddr("10.0.0.1"): "default/web"}
	if err := report.Write(t.Context(), c.Writer, old); !apierrors.IsConflict(err) {
		t.Errorf("a report on an old version: %v, want a conflict", err)
	}
}

// A version that the watch has delivered before the response to its write is not read again.
func TestWriteReturnsTheKnownVersion(t *testing.T) {
	c := fakeClient(t, interceptor.Funcs{}, node(nil))
	var delivered *View
	c.Cached = func(obj metav1.Object) *View {
		if delivered != nil && delivered.ResourceVersion == obj.GetResourceVersion() {
			return delivered
		}
		return nil
	}
	for _, addr := range []string{"10.0.0.1", "10.0.0.2"} {
		v := live(t, c, "n1")
		written, err := c.PatchSpec(t.Context(), v, Change{Publish: addrs(addr), Blocks: cidrs("10.0.0.0/30")})
		if err != nil || written == delivered || !written.Publishes(addrs(addr)[0]) {
			t.Fatalf("unknown, it is %+v, %v", written, err)
		}
		if v = live(t, c, "n1"); written.ResourceVersion != v.ResourceVersion {
			t.Errorf("it is of version %s, want %s", written.ResourceVersion, v.ResourceVersion)
		}
		delivered = &View{Name: "n1", ResourceVersion: next(t, v.ResourceVersion)}
		if written, err = c.PatchReleaseIPs(t.Context(), v, ReleaseChange{Mark: addrs(addr)}); err != nil || written != delivered {
			t.Fatalf("released, it is %+v, %v", written, err)
		}
		v = live(t, c, "n1")
		delivered = &View{Name: "n1", ResourceVersion: next(t, v.ResourceVersion)}
		if written, err = c.PatchSpec(t.Context(), v, Change{Remove: addrs(addr), Blocks: cidrs("10.0.0.0/30")}); err != nil || written != delivered {
			t.Fatalf("applied, it is %+v, %v", written, err)
		}
	}
	delivered = &View{Name: "n2", ResourceVersion: "1"}
	if written, err := c.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}}); err != nil || written != delivered {
		t.Fatalf("created, it is %+v, %v", written, err)
	}
}

// next is the version after one of the fake API server.
func next(t *testing.T, version string) string {
	t.Helper()
	n, err := strconv.Atoi(version)
	if err != nil {
		t.Fatal(err)
	}
	return strconv.Itoa(n + 1)
}

// PatchSpec removes managed fields with the write that it makes anyway, unless a client applies
// the object, and in crd mode alone: elsewhere addresses are no fields.
func TestApplyDropsManagedFields(t *testing.T) {
	const drops = `{"metadata":{"resourceVersion":"7","managedFields":[{}]},`
	update, apply := metav1.ManagedFieldsEntry{Operation: "Update"}, metav1.ManagedFieldsEntry{Operation: "Apply"}
	tests := map[string]struct {
		entries []metav1.ManagedFieldsEntry
		keep    bool
		drops   bool
	}{
		"updated":             {entries: []metav1.ManagedFieldsEntry{update, update}, drops: true},
		"applied, too":        {entries: []metav1.ManagedFieldsEntry{update, apply}},
		"none":                {},
		"they are to be kept": {entries: []metav1.ManagedFieldsEntry{update}, keep: true},
	}
	for name, test := range tests {
		for _, mode := range []Mode{CRD, MultiPool} {
			t.Run(mode.String()+", "+name, func(t *testing.T) {
				body := ""
				c := fakeClient(t, interceptor.Funcs{
					Patch: func(_ context.Context, _ client.WithWatch, obj client.Object, p client.Patch, _ ...client.PatchOption) error {
						data, err := p.Data(obj)
						body += string(data)
						return err
					},
				})
				c.Mode, c.DropManagedFields = mode, !test.keep
				cn := node(nil)
				cn.ResourceVersion, cn.ManagedFields = "7", test.entries
				view := mode.View(cn)
				if _, err := c.PatchSpec(t.Context(), view, Change{}); err != nil || body != "" {
					t.Errorf("nothing to publish: error %v, patch %s", err, body)
				}
				if _, err := c.PatchSpec(t.Context(), view, Change{Publish: addrs("10.0.0.1"), Assign: cidrs("10.0.0.0/30"), Blocks: cidrs("10.0.0.0/30")}); err != nil {
					t.Fatal(err)
				}
				if want := test.drops && mode == CRD; strings.HasPrefix(body, drops) != want || body == "" {
					t.Errorf("patch %s, removes managed fields: want %t", body, want)
				}
			})
		}
	}
}

// A merge patch of null makes an API server store an empty pool, as a map without entries is left out.
func TestOpenPool(t *testing.T) {
	body := ""
	c := fakeClient(t, interceptor.Funcs{
		Patch: func(_ context.Context, _ client.WithWatch, obj client.Object, p client.Patch, _ ...client.PatchOption) error {
			data, err := p.Data(obj)
			body = string(data)
			return err
		},
	})
	_, err := c.CreatePoolField(t.Context(), &View{Name: "n", ResourceVersion: "7"})
	if want := `{"metadata":{"resourceVersion":"7"},"spec":{"ipam":{"pool":{"233.252.0.1":null}}}}`; err != nil || body != want {
		t.Errorf("patch %s, want %s: %v", body, want, err)
	}
}

func TestNothingToDoIsNoWrite(t *testing.T) {
	c := fakeClient(t, interceptor.Funcs{
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			t.Error("a patch was sent")
			return nil
		},
		SubResourcePatch: func(context.Context, client.Client, string, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
			t.Error("a patch of the status was sent")
			return nil
		},
	}, node([]string{"10.0.0.1"}, "10.0.0.0/30"))
	v := live(t, c, "n1")
	if got, err := c.PatchSpec(t.Context(), v, Change{Publish: addrs("10.0.0.1"), Blocks: cidrs("10.0.0.0/30")}); got != nil || err != nil {
		t.Errorf("Apply returned %v, %v; want nothing", got, err)
	}
	if got, err := c.PatchReleaseIPs(t.Context(), v, ReleaseChange{Clear: addrs("10.0.0.1")}); got != nil || err != nil {
		t.Errorf("Release returned %v, %v; want nothing", got, err)
	}
}

func TestCreate(t *testing.T) {
	c := fakeClient(t, interceptor.Funcs{})
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "node-uid", Labels: map[string]string{"zone": "a"}},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: "192.168.0.1"}, {Type: corev1.NodeExternalIP, Address: "203.0.113.1"},
			{Type: corev1.NodeHostName, Address: "n1"},
		}},
	}
	written, err := c.Create(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	if v := written; len(v.Published()) != 0 || v.ResourceVersion == "" {
		t.Errorf("view is %+v, want an empty pool and a version", v)
	}
	got := get(t, c, "n1")
	want := ciliumv2.NodeSpec{Addresses: []ciliumv2.NodeAddress{{Type: "InternalIP", IP: "192.168.0.1"}, {Type: "ExternalIP", IP: "203.0.113.1"}}}
	checkEqual(t, "spec", want, got.Spec)
	owner := []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n1", UID: "node-uid"}}
	checkEqual(t, "owner", owner, got.OwnerReferences)
	checkEqual(t, "labels", n.Labels, got.Labels)
	if _, err := c.Create(t.Context(), n); !apierrors.IsAlreadyExists(err) {
		t.Errorf("second Create: %v, want AlreadyExists", err)
	}
}

// The API server's response is decoded into the object that was sent, so that must not share
// anything with a Node from the cache.
func TestCreateSharesNothingWithTheNode(t *testing.T) {
	addLabel := interceptor.Funcs{Create: func(_ context.Context, _ client.WithWatch, obj client.Object, _ ...client.CreateOption) error {
		obj.GetLabels()["added"] = "by a webhook"
		return nil
	}}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{"zone": "a"}}}
	before := maps.Clone(n.Labels)
	if _, err := fakeClient(t, addLabel).Create(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	checkEqual(t, "Create wrote into the Node's labels", before, n.Labels)

	last := node([]string{"10.0.0.1"})
	last.Labels = maps.Clone(before)
	if _, err := fakeClient(t, addLabel).Recreate(t.Context(), NewView(last), n, nil); err != nil {
		t.Fatal(err)
	}
	checkEqual(t, "Recreate wrote into the remembered labels", before, last.Labels)
}

// A CiliumNode that the API server refuses is restored without the parts that no pod needs.
func TestRecreateRefused(t *testing.T) {
	last := node([]string{"172.16.0.1"}, "172.16.0.0/24")
	last.Annotations, last.Spec.BootID, last.Spec.Encryption.Key = map[string]string{"a": "b"}, "boot", 999
	last.Spec.Addresses = []ciliumv2.NodeAddress{{Type: "CiliumInternalIP", IP: "172.16.0.1"}}
	c := fakeClient(t, interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
		if obj.(*ciliumv2.CiliumNode).Spec.Encryption.Key == 999 {
			return apierrors.NewInvalid(schema.GroupKind{}, "n1", nil)
		}
		return c.Create(ctx, obj, opts...)
	}})
	if _, err := c.Recreate(t.Context(), NewView(last), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, nil); err != nil {
		t.Fatal(err)
	}
	last.Spec.Encryption.Key = 0
	checkEqual(t, "spec", last.Spec, get(t, c, "n1").Spec)
}

func TestRecreateKeepsForeign(t *testing.T) {
	tests := map[string]struct {
		keys, podCIDRs         []string
		blocks                 []string
		wantKeys, wantPodCIDRs []string
	}{
		"our addresses wait for Apply": {
			keys: []string{"10.0.0.1", "10.0.0.5"}, podCIDRs: []string{"10.0.0.0/30"},
			blocks: []string{"10.0.0.0/30", "10.0.0.4/30"},
		},
		"foreign entries are restored": {
			keys: []string{"10.0.0.1", "172.16.0.1", "x"}, podCIDRs: []string{"192.168.0.0/24", "10.0.0.0/30", "172.16.0.0/30"},
			blocks:   []string{"10.0.0.0/30"},
			wantKeys: []string{"172.16.0.1", "x"}, wantPodCIDRs: []string{"192.168.0.0/24", "172.16.0.0/30"},
		},
		"a podCIDR without an address left goes": {
			keys: []string{"10.0.0.1", "10.0.0.5", "10.0.0.9"}, podCIDRs: []string{"10.0.0.0/29", "10.0.0.0/28"},
			blocks: []string{"10.0.0.0/30", "10.0.0.4/30"}, wantKeys: []string{"10.0.0.9"}, wantPodCIDRs: []string{"10.0.0.0/28"},
		},
		"a foreign podCIDR that shares addresses with a block is foreign all the same": {
			podCIDRs: []string{"10.0.0.0/24", "10.0.0.0/30", "10.0.0.2/31"}, blocks: []string{"10.0.0.0/30"},
			wantPodCIDRs: []string{"10.0.0.0/24", "10.0.0.2/31"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			last := node(test.keys, test.podCIDRs...)
			last.Labels, last.Annotations = map[string]string{"a": "b"}, map[string]string{"network.cilium.io/x": "y"}
			last.Spec.Encryption = ciliumv2.EncryptionSpec{Key: 7}
			last.Spec.Addresses = []ciliumv2.NodeAddress{{Type: "CiliumInternalIP", IP: "10.0.0.1"}}
			last.Spec.IPAM.MinAllocate = 3
			remembered := last.DeepCopy()

			c := fakeClient(t, interceptor.Funcs{})
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "node-uid"}}
			if _, err := c.Recreate(t.Context(), NewView(last), n, cidrs(test.blocks...)); err != nil {
				t.Fatal(err)
			}
			got := get(t, c, "n1")
			want := remembered.DeepCopy()
			want.Spec.IPAM.Pool = node(test.wantKeys).Spec.IPAM.Pool
			want.Spec.IPAM.PodCIDRs = node(nil, test.wantPodCIDRs...).Spec.IPAM.PodCIDRs
			checkEqual(t, "spec", want.Spec, got.Spec)
			checkEqual(t, "labels and annotations", []map[string]string{want.Labels, want.Annotations}, []map[string]string{got.Labels, got.Annotations})
			checkEqual(t, "the remembered CiliumNode after Recreate", remembered, last)
		})
	}
}

func TestDelete(t *testing.T) {
	var sent client.DeleteOptions
	c := fakeClient(t, interceptor.Funcs{Delete: func(ctx context.Context, w client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
		sent.ApplyOptions(opts)
		return w.Delete(ctx, obj)
	}}, node(nil))
	v := live(t, c, "n1")
	if err := c.Delete(t.Context(), v); err != nil {
		t.Error(err)
	}
	want := &metav1.Preconditions{UID: &v.UID, ResourceVersion: &v.ResourceVersion}
	checkEqual(t, "preconditions", want, sent.Preconditions)
	if err := c.Delete(t.Context(), v); err != nil {
		t.Errorf("deleting what is gone: %v", err)
	}
	if v := live(t, c, "n1"); v != nil {
		t.Errorf("got %v, want nil", v)
	}
}
