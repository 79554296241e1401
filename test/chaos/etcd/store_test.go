package etcd

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/controlplane"
	"github.com/cilium-pool/cilium-pool-operator/test/controlplane/cptest"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant"
)

var shared cptest.Shared

func TestMain(m *testing.M) { os.Exit(shared.Main(m)) }

// bed is a control plane with its etcd as a Store.
type bed struct {
	*testing.T
	*harness.Bed
	cluster *controlplane.Cluster
	store   *Store
}

func newBed(t *testing.T) *bed {
	t.Helper()
	c := shared.Cluster(t)
	b := harness.NewBed(t, c.Config())
	b.Wipe(&corev1.NodeList{}, &corev1.PodList{}, &coordinationv1.LeaseList{}, &ciliumv2.CiliumNodeList{}, &v1alpha1.PodIPPoolList{}, &v1alpha1.PodIPBlockList{})
	return &bed{T: t, Bed: b, cluster: c, store: New(b.Client.Scheme(), filepath.Join(c.Dir(), controlplane.EtcdSocket(0)))}
}

// touch changes a Node and returns its new version.
func (b *bed) touch(node *corev1.Node, value string) string {
	b.Helper()
	node.Labels = map[string]string{"touched": value}
	harness.Must(b, b.Client.Update(b.Context(), node))
	return node.ResourceVersion
}

func at(version string) client.ListOption {
	return &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: version}}
}

func TestListIsWhatTheAPIServerTells(t *testing.T) {
	b := newBed(t)
	b.Create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{"a": "b"}}})
	b.Create(&ciliumv2.CiliumNode{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
	b.Create(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p"},
		Spec:       corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	})
	b.Create(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "l"}})
	b.Create(&v1alpha1.PodIPPool{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: v1alpha1.PodIPPoolSpec{
		IPv4: &v1alpha1.IPv4Ranges{CIDRs: []v1alpha1.PoolCIDR{{CIDR: "10.0.0.0/24"}}, BlockSize: 28},
	}})
	b.Create(&v1alpha1.PodIPBlock{ObjectMeta: metav1.ObjectMeta{Name: "10.0.0.0-28"}, Spec: v1alpha1.PodIPBlockSpec{
		CIDR: "10.0.0.0/28", PoolName: "p", NodeName: "n1", NodeUID: "u",
	}})
	for _, list := range []func() client.ObjectList{
		func() client.ObjectList { return &corev1.NodeList{} },
		func() client.ObjectList { return &corev1.PodList{} },
		func() client.ObjectList { return &ciliumv2.CiliumNodeList{} },
		func() client.ObjectList { return &v1alpha1.PodIPPoolList{} },
		func() client.ObjectList { return &v1alpha1.PodIPBlockList{} },
	} {
		t.Run(fmt.Sprintf("%T", list()), func(t *testing.T) {
			served, stored := list(), list()
			harness.Must(t, b.Client.List(t.Context(), served))
			harness.Must(t, b.store.List(t.Context(), stored))
			if diff := cmp.Diff(plain(t, served), plain(t, stored)); diff != "" {
				t.Errorf("objects (-API server +etcd):\n%s", diff)
			}
		})
	}
}

// plain returns the objects of a list as maps, without the fields that only the API
// server sets.
func plain(t *testing.T, list client.ObjectList) []map[string]any {
	t.Helper()
	var out []map[string]any
	err := meta.EachListItem(list, func(o runtime.Object) error {
		o.(client.Object).SetManagedFields(nil)
		o.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
		m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		out = append(out, m)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(out) == 0 {
		t.Fatal("nothing to compare")
	}
	return out
}

func TestListOfMetadataAndOfOldVersions(t *testing.T) {
	b := newBed(t)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "old"}}
	b.Create(node)
	before := node.ResourceVersion
	after := b.touch(node, "later")
	for version, want := range map[string]string{before: before, "": after} {
		list := &corev1.NodeList{}
		harness.Must(t, b.store.List(t.Context(), list, at(version)))
		if got := versionsOf(list)["old"]; got != want {
			t.Errorf("at version %q it is %s, want %s", version, got, want)
		}
	}
	partial := &metav1.PartialObjectMetadataList{}
	partial.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NodeList"))
	harness.Must(t, b.store.List(t.Context(), partial))
	if got := versionsOf(partial)["old"]; got != after {
		t.Errorf("its metadata are of version %s, want %s", got, after)
	}
	if err := b.store.List(t.Context(), &corev1.SecretList{}); err == nil {
		t.Error("secrets are read")
	}
}

func versionsOf(list client.ObjectList) map[string]string {
	out := map[string]string{}
	_ = meta.EachListItem(list, func(o runtime.Object) error {
		out[o.(client.Object).GetName()] = o.(client.Object).GetResourceVersion()
		return nil
	})
	return out
}

// TestNothingIsMissedOverRestarts writes up to the moment at which etcd and the API server are
// killed, and again from the moment at which they are back.
func TestNothingIsMissedOverRestarts(t *testing.T) {
	b := newBed(t)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "watched"}}
	b.Create(node)
	seen := make(chan string, 100)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.follow(ctx, node.ResourceVersion, seen)
	}()
	rules, err := invariant.Watch(t.Context(), nil, invariant.Options{Client: b.store})
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	write := func(value string) { want = append(want, b.touch(node, value)) }
	for i, steps := range [][]func() error{
		{b.cluster.KillAPIServer, func() error { return b.cluster.StartAPIServer(t.Context()) }},
		{b.cluster.KillEtcd, func() error { return b.cluster.StartEtcd(t.Context()) }},
		{
			b.cluster.KillEtcd, b.cluster.KillAPIServer,
			func() error { return b.cluster.StartEtcd(t.Context()) }, func() error { return b.cluster.StartAPIServer(t.Context()) },
		},
	} {
		write(fmt.Sprintf("before-%d", i))
		for _, step := range steps {
			harness.Must(t, step())
		}
		write(fmt.Sprintf("after-%d", i))
	}
	harness.Must(t, b.Client.Delete(t.Context(), node))
	want = append(want, "deleted")
	var got []string
	deadline := time.After(time.Minute)
	for len(got) < len(want) {
		select {
		case version := <-seen:
			got = append(got, version)
		case <-deadline:
			t.Fatalf("seen %v, want %v", got, want)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("versions (-want +got):\n%s", diff)
	}
	cancel()
	<-done
	harness.Must(t, rules.Sync(t.Context()))
	stats := rules.Stats()
	if stats.Gaps > 0 || stats.Versions[invariant.KindNode] != len(want) {
		t.Errorf("the checker missed versions: %s, want %d of Nodes", stats, len(want))
	}
}

// follow watches the Node "watched", and resumes where the watch ended.
func (b *bed) follow(ctx context.Context, from string, seen chan<- string) {
	for ctx.Err() == nil {
		w, err := b.store.Watch(ctx, &corev1.NodeList{}, at(from))
		if err != nil {
			select { // etcd is down
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
			}
			continue
		}
		for e := range w.ResultChan() {
			node, ok := e.Object.(*corev1.Node)
			if !ok {
				b.Errorf("the watch tells %v", e.Object)
				return
			}
			from = node.ResourceVersion
			switch {
			case node.Name != "watched":
			case e.Type == watch.Deleted:
				seen <- "deleted"
			default:
				seen <- from
			}
		}
	}
}

func TestWatchBeyondCompactionSaysSo(t *testing.T) {
	b := newBed(t)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "compacted"}}
	b.Create(node)
	before := node.ResourceVersion
	b.touch(node, "once")
	now, err := strconv.ParseUint(b.touch(node, "twice"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	var answer struct{}
	harness.Must(t, b.store.gateway.Call(t.Context(), "/v3/kv/compaction", map[string]string{"revision": strconv.FormatUint(now, 10)}, &answer))
	w, err := b.store.Watch(t.Context(), &corev1.NodeList{}, at(before))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	select {
	case e := <-w.ResultChan():
		if err := apierrors.FromObject(e.Object); e.Type != watch.Error || !apierrors.IsResourceExpired(err) {
			t.Errorf("the watch tells %v: %v", e.Type, err)
		}
	case <-time.After(time.Minute):
		t.Error("the watch tells nothing")
	}
}
