package world_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	iputil "github.com/cilium/cilium/pkg/ip"
	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/apiclient"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/controlplane"
	"github.com/cilium-pool/cilium-pool-operator/test/controlplane/cptest"
	"github.com/cilium-pool/cilium-pool-operator/test/sim/world"
)

// TestSameAnswers runs random short lives of objects, with the operations that operators use,
// and compares the outcomes with a real API server's.
func TestSameAnswers(t *testing.T) {
	scheme, err := apiclient.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	cluster := cptest.New(t, controlplane.Options{})
	real, err := client.New(cluster.Config(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	ended := map[string]int{}
	for life := range 60 {
		r := rand.New(rand.NewPCG(uint64(life), 3))
		p := &pair{t: t, real: real, api: world.NewAPI(time.Now), r: r, kind: life % 3, ended: ended}
		for range 25 {
			p.step()
			if t.Failed() {
				t.Fatalf("life %d, after %v", life, p.did)
			}
		}
		p.end()
	}
	for _, outcome := range []string{"ok", "Conflict", "NotFound", "AlreadyExists", "Invalid", ""} {
		if ended[outcome] == 0 {
			t.Errorf("nothing ever ended in %s: %v", outcome, ended)
		}
	}
	t.Log(ended)
}

// pair is one object on both API servers.
type pair struct {
	t     *testing.T
	real  client.Client
	api   *world.API
	r     *rand.Rand
	kind  int
	did   []string
	ended map[string]int
	// The last answer of each, to be written back now or later.
	seen, old [2]client.Object
	versions  [2]string
}

func (p *pair) fresh() client.Object {
	switch p.kind {
	case 0:
		return &v1alpha1.PodIPBlock{ObjectMeta: metav1.ObjectMeta{Name: "10.0.0.0-30"},
			Spec: v1alpha1.PodIPBlockSpec{CIDR: "10.0.0.0/30", PoolName: "main", NodeName: "n1"}}
	case 1:
		return &ciliumv2.CiliumNode{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	}
	return &v1alpha1.PodIPPool{ObjectMeta: metav1.ObjectMeta{Name: "main"}, Spec: v1alpha1.PodIPPoolSpec{
		IPv4: &v1alpha1.IPv4Ranges{BlockSize: 30, CIDRs: []v1alpha1.PoolCIDR{{CIDR: "10.0.0.0/27"}}}}}
}

func (p *pair) key() (world.Kind, string) {
	return [...]world.Kind{world.KindBlock, world.KindCiliumNode, world.KindPool}[p.kind], p.fresh().GetName()
}

// change applies the same change to both.
func (p *pair) change(objs [2]client.Object, what int) {
	for i := range objs {
		if objs[i] == nil {
			continue
		}
		objs[i] = objs[i].DeepCopyObject().(client.Object)
		switch what {
		case 0:
			objs[i].SetFinalizers([]string{v1alpha1.Finalizer})
		case 1:
			objs[i].SetFinalizers(nil)
		case 2:
			objs[i].SetLabels(map[string]string{"a": fmt.Sprint(len(p.did))})
		case 3:
			changeStatus(objs[i], len(p.did))
		case 4:
			changeSpec(objs[i], len(p.did))
		case 5:
			objs[i].SetResourceVersion("")
		}
	}
	p.seen = objs
}

func changeStatus(obj client.Object, n int) {
	switch obj := obj.(type) {
	case *v1alpha1.PodIPBlock:
		obj.Status.Conditions = []metav1.Condition{{Type: "Draining", Status: "True", Reason: "Deleted", Message: fmt.Sprint(n),
			LastTransitionTime: metav1.NewTime(time.Unix(1700000000, 5000))}}
	case *ciliumv2.CiliumNode:
		obj.Status.IPAM.Used = ipamtypes.AllocationMap{"10.0.0.1": {Owner: fmt.Sprint("default/", n)}}
	case *v1alpha1.PodIPPool:
		obj.Status.Nodes = int32(n)
	}
}

func changeSpec(obj client.Object, n int) {
	switch obj := obj.(type) {
	case *ciliumv2.CiliumNode:
		obj.Spec.IPAM.Pool = ipamtypes.AllocationMap{fmt.Sprintf("10.0.0.%d", n%7): {}}
		obj.Spec.IPAM.PodCIDRs = []iputil.Prefix{iputil.PrefixFrom(netip.MustParsePrefix("10.0.0.0/30"))}
	case *v1alpha1.PodIPPool:
		obj.Spec.Priority = int32(n)
	}
}

// step performs one operation on both and compares.
func (p *pair) step() {
	ctx := p.t.Context()
	k, name := p.key()
	pick := p.seen
	stale := p.r.IntN(4) == 0
	if stale {
		pick = p.old
	}
	var errs [2]error
	var got [2]client.Object
	switch op := p.r.IntN(8); op {
	case 0, 1:
		p.did = append(p.did, "create")
		a, b := p.fresh(), p.fresh()
		if p.r.IntN(2) == 0 {
			a.SetFinalizers([]string{v1alpha1.Finalizer})
			b.SetFinalizers([]string{v1alpha1.Finalizer})
		}
		changeStatus(a, 1)
		changeStatus(b, 1)
		if p.r.IntN(6) == 0 {
			a.SetResourceVersion("1")
			b.SetResourceVersion("1")
		}
		errs[0], got[0] = p.real.Create(ctx, a), a
		got[1], errs[1] = p.api.Create(b)
	case 2, 3, 4:
		p.update(ctx, pick, op == 4, &errs, &got)
	case 5:
		p.patch(ctx, pick, &errs, &got)
	case 6:
		p.delete(ctx, k, name, pick, &errs)
	case 7:
		if p.kind == 1 {
			p.patchUnconditional(ctx, k, name, &errs, &got)
		} else {
			return
		}
	}
	p.compare(ctx, k, name, errs)
}

func (p *pair) update(ctx context.Context, pick [2]client.Object, status bool, errs *[2]error, got *[2]client.Object) {
	if pick[0] == nil || pick[1] == nil {
		return
	}
	what := p.r.IntN(6)
	p.change(pick, what)
	p.did = append(p.did, fmt.Sprintf("update %d status %t", what, status))
	got[0] = p.seen[0].DeepCopyObject().(client.Object)
	if status {
		errs[0] = p.real.Status().Update(ctx, got[0])
	} else {
		errs[0] = p.real.Update(ctx, got[0])
	}
	got[1], errs[1] = p.api.Update(p.seen[1], status)
}

// patch sends a merge patch, conditional on a version, of the spec or the status.
func (p *pair) patch(ctx context.Context, pick [2]client.Object, errs *[2]error, got *[2]client.Object) {
	if pick[0] == nil || pick[1] == nil {
		return
	}
	if p.kind != 1 {
		p.patchFinalizers(ctx, pick, errs, got)
		return
	}
	status := p.r.IntN(2) == 0
	p.did = append(p.did, fmt.Sprintf("patch status %t", status))
	body := func(version string) []byte {
		if status {
			return []byte(fmt.Sprintf(`{"metadata":{"resourceVersion":%q},"status":{"ipam":{"release-ips":{"10.0.0.1":"marked-for-release","10.0.0.2":null}}}}`, version))
		}
		return []byte(fmt.Sprintf(`{"metadata":{"resourceVersion":%q},"spec":{"ipam":{"pool":{"10.0.0.1":{},"10.0.0.2":null},"podCIDRs":["10.0.0.0/30"]}}}`, version))
	}
	p.send(ctx, body(pick[0].GetResourceVersion()), body(pick[1].GetResourceVersion()), status, errs, got)
}

func (p *pair) patchFinalizers(ctx context.Context, pick [2]client.Object, errs *[2]error, got *[2]client.Object) {
	p.did = append(p.did, "patch finalizers")
	finalizers := [...]string{"[]", fmt.Sprintf("[%q]", v1alpha1.Finalizer)}[p.r.IntN(2)]
	body := func(o client.Object) []byte {
		version := o.GetResourceVersion()
		if version == "" {
			version = "999999999" // no version of either: the operator never patches without one
		}
		return fmt.Appendf(nil, `{"metadata":{"uid":%q,"resourceVersion":%q,"finalizers":%s}}`, o.GetUID(), version, finalizers)
	}
	p.send(ctx, body(pick[0]), body(pick[1]), false, errs, got)
}

func (p *pair) patchUnconditional(ctx context.Context, _ world.Kind, _ string, errs *[2]error, got *[2]client.Object) {
	p.did = append(p.did, "patch without a version")
	body := []byte(`{"spec":{"ipam":{"pool":{"10.0.0.2":{"owner":"default/a"},"10.0.0.1":null}}}}`)
	p.send(ctx, body, body, false, errs, got)
}

func (p *pair) send(ctx context.Context, a, b []byte, status bool, errs *[2]error, got *[2]client.Object) {
	k, name := p.key()
	obj := p.fresh()
	got[0] = obj
	if status {
		errs[0] = p.real.Status().Patch(ctx, obj, client.RawPatch(types.MergePatchType, a))
	} else {
		errs[0] = p.real.Patch(ctx, obj, client.RawPatch(types.MergePatchType, a))
	}
	got[1], errs[1] = p.api.Patch(k, name, types.MergePatchType, b, status)
}

func (p *pair) delete(ctx context.Context, k world.Kind, name string, pick [2]client.Object, errs *[2]error) {
	p.did = append(p.did, "delete")
	if pick[0] == nil || pick[1] == nil || p.r.IntN(3) == 0 {
		errs[0] = p.real.Delete(ctx, p.fresh())
		errs[1] = p.api.Delete(k, name, nil, nil)
		return
	}
	pre := func(o client.Object) (*types.UID, *string) {
		uid, version := o.GetUID(), o.GetResourceVersion()
		return &uid, &version
	}
	uid, version := pre(pick[0])
	errs[0] = p.real.Delete(ctx, p.fresh(), client.Preconditions{UID: uid, ResourceVersion: version})
	uid, version = pre(pick[1])
	errs[1] = p.api.Delete(k, name, uid, version)
}

// compare compares the outcomes and the stored objects.
func (p *pair) compare(ctx context.Context, k world.Kind, name string, errs [2]error) {
	reason := func(err error) string {
		if err == nil {
			return "ok"
		}
		return string(apierrors.ReasonForError(err))
	}
	p.ended[reason(errs[0])]++
	if diff := cmp.Diff(reason(errs[0]), reason(errs[1])); diff != "" {
		p.t.Errorf("answers differ (-real +ours): %s\nreal: %v\nours: %v", diff, errs[0], errs[1])
		return
	}
	now := p.fresh()
	p.old = p.seen
	if err := p.real.Get(ctx, client.ObjectKey{Name: name}, now); err != nil {
		if p.api.Get(k, name) != nil {
			p.t.Errorf("gone there, and here still: %v", err)
		}
		return
	}
	ours := p.api.Get(k, name)
	if ours == nil {
		p.t.Error("there still, and gone here")
		return
	}
	// Conditional writes depend on whether the version changes.
	versions := [2]string{now.GetResourceVersion(), ours.GetResourceVersion()}
	// The real API server also changes the version when only managed fields change.
	if versions[0] == p.versions[0] && versions[1] != p.versions[1] {
		p.t.Errorf("our version moved, the real one did not: %v, then %v", p.versions, versions)
	}
	p.seen = [2]client.Object{now, ours}
	if versions[0] != p.versions[0] && versions[1] == p.versions[1] {
		p.old = p.seen // the older read is old there only
	}
	p.versions = versions
	if diff := cmp.Diff(normal(now), normal(ours), cmpopts.EquateEmpty(), cmpopts.EquateComparable(iputil.Prefix{})); diff != "" {
		p.t.Errorf("objects differ (-real +ours):\n%s", diff)
	}
}

func normal(obj client.Object) client.Object {
	out := obj.DeepCopyObject().(client.Object)
	out.SetResourceVersion("")
	out.SetUID("")
	out.SetCreationTimestamp(metav1.Time{})
	out.SetManagedFields(nil)
	if out.GetDeletionTimestamp() != nil {
		at := metav1.NewTime(time.Unix(0, 0))
		out.SetDeletionTimestamp(&at)
	}
	out.GetObjectKind().SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("x"))
	return out
}

// end deletes everything.
func (p *pair) end() {
	ctx := context.Background()
	obj := p.fresh()
	if p.real.Get(ctx, client.ObjectKeyFromObject(obj), obj) != nil {
		return
	}
	obj.SetFinalizers(nil)
	if err := client.IgnoreNotFound(p.real.Update(ctx, obj)); err != nil {
		p.t.Fatal(err)
	}
	if err := client.IgnoreNotFound(p.real.Delete(ctx, obj)); err != nil {
		p.t.Fatal(err)
	}
}
