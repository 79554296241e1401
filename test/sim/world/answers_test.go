package world

import (
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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/apiclient"
	"github.com/cilium-pool/cilium-pool-operator/test/controlplane"
	"github.com/cilium-pool/cilium-pool-operator/test/controlplane/cptest"
)

// TestSameAnswers runs random short lives of objects, with the operations that operators use,
// and compares the outcomes with a real API server's.
func TestSameAnswers(t *testing.T) {
	scheme, err := apiclient.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	real, err := client.New(cptest.New(t, controlplane.Options{}).Config(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	ended := map[string]int{}
	for life := range 60 {
		fresh := freshObjects()[life%3]
		p := &pair{
			t: t, r: rand.New(rand.NewPCG(uint64(life), 3)), fresh: fresh, ended: ended,
			clients: [2]client.Client{real, live{caller: atOnce{&World{queries: queries{api: NewAPI(time.Now)}}}}},
		}
		for range 25 {
			if p.step(); t.Failed() {
				t.Fatalf("life %d of %T, after %v", life, fresh, p.did)
			}
		}
		if obj := p.fresh.DeepCopyObject().(client.Object); real.Get(t.Context(), client.ObjectKeyFromObject(obj), obj) == nil {
			obj.SetFinalizers(nil)
			_ = real.Update(t.Context(), obj)
			_ = real.Delete(t.Context(), obj)
		}
	}
	for _, outcome := range []string{"ok", "Conflict", "NotFound", "AlreadyExists", "Invalid", ""} {
		if ended[outcome] == 0 {
			t.Errorf("nothing ever ended in %s: %v", outcome, ended)
		}
	}
}

// atOnce carries out each call when it is made.
type atOnce struct{ w *World }

func (a atOnce) send(c *call) error { return c.do() }
func (a atOnce) in() *World         { return a.w }

func freshObjects() []client.Object {
	return []client.Object{
		&v1alpha1.PodIPBlock{
			ObjectMeta: metav1.ObjectMeta{Name: "10.0.0.0-30"},
			Spec:       v1alpha1.PodIPBlockSpec{CIDR: "10.0.0.0/30", PoolName: "main", NodeName: "n1"},
		},
		&ciliumv2.CiliumNode{ObjectMeta: metav1.ObjectMeta{Name: "n1"}},
		&v1alpha1.PodIPPool{ObjectMeta: metav1.ObjectMeta{Name: "main"}, Spec: v1alpha1.PodIPPoolSpec{
			IPv4: &v1alpha1.IPv4Ranges{BlockSize: 30, CIDRs: []v1alpha1.PoolCIDR{{CIDR: "10.0.0.0/27"}}},
		}},
	}
}

// pair is one object on both API servers, the real one first.
type pair struct {
	t       *testing.T
	clients [2]client.Client
	r       *rand.Rand
	fresh   client.Object
	did     []string
	ended   map[string]int
	// The last read of each and the one before, to be written back.
	seen, old [2]client.Object
}

// step performs one operation on both and compares the outcomes.
func (p *pair) step() {
	was := p.seen
	if p.r.IntN(4) == 0 {
		was = p.old
	}
	kind, what := p.r.IntN(8), p.r.IntN(6)
	if kind > 1 && kind < 7 && was[0] == nil {
		return
	}
	p.did = append(p.did, fmt.Sprint(kind, "/", what))
	var outcomes [2]string
	for i, c := range p.clients {
		err := p.operate(c, was[i], kind, what)
		if outcomes[i] = string(apierrors.ReasonForError(err)); err == nil {
			outcomes[i] = "ok"
		}
	}
	p.ended[outcomes[0]]++
	if outcomes[0] != outcomes[1] {
		p.t.Errorf("the real answer is %q, ours %q", outcomes[0], outcomes[1])
	}
	p.compare()
}

func (p *pair) operate(c client.Client, was client.Object, kind, what int) error {
	ctx, obj := p.t.Context(), p.fresh.DeepCopyObject().(client.Object)
	merge := func(body string, args ...any) client.Patch {
		return client.RawPatch(types.MergePatchType, fmt.Appendf(nil, body, args...))
	}
	_, isCN := obj.(*ciliumv2.CiliumNode)
	switch kind {
	case 0, 1:
		p.change(obj, []int{0, 1, 3, 3, 3, 6}[what])
		return c.Create(ctx, obj)
	case 2, 3, 4:
		obj = was.DeepCopyObject().(client.Object)
		if p.change(obj, what); kind == 4 {
			return c.Status().Update(ctx, obj)
		}
		return c.Update(ctx, obj)
	case 5:
		version := was.GetResourceVersion()
		switch {
		case !isCN:
			finalizers := []string{"[]", fmt.Sprintf("[%q]", v1alpha1.Finalizer)}[what%2]
			return c.Patch(ctx, obj, merge(`{"metadata":{"uid":%q,"resourceVersion":%q,"finalizers":%s}}`, was.GetUID(), version, finalizers))
		case what < 3:
			return c.Status().Patch(ctx, obj, merge(
				`{"metadata":{"resourceVersion":%q},"status":{"ipam":{"release-ips":{"10.0.0.1":"marked-for-release","10.0.0.2":null}}}}`, version))
		}
		return c.Patch(ctx, obj, merge(
			`{"metadata":{"resourceVersion":%q},"spec":{"ipam":{"pool":{"10.0.0.1":{},"10.0.0.2":null},"podCIDRs":["10.0.0.0/30"]}}}`, version))
	case 6:
		if what < 2 {
			return c.Delete(ctx, obj)
		}
		uid, version := was.GetUID(), was.GetResourceVersion()
		return c.Delete(ctx, obj, client.Preconditions{UID: &uid, ResourceVersion: &version})
	}
	if !isCN {
		return nil
	}
	return c.Patch(ctx, obj, merge(`{"spec":{"ipam":{"pool":{"10.0.0.2":{"owner":"default/a"},"10.0.0.1":null}}}}`))
}

// change makes one of several changes.
func (p *pair) change(obj client.Object, what int) {
	n := len(p.did)
	switch what {
	case 0:
		obj.SetFinalizers([]string{v1alpha1.Finalizer})
	case 1:
		obj.SetFinalizers(nil)
	case 2:
		obj.SetLabels(map[string]string{"a": fmt.Sprint(n)})
	case 5:
		obj.SetResourceVersion("")
	case 6:
		obj.SetResourceVersion("1")
	}
	switch obj := obj.(type) {
	case *v1alpha1.PodIPBlock:
		if what == 3 {
			obj.Status.Conditions = []metav1.Condition{{
				Type: "Draining", Status: "True", Reason: "Deleted", Message: fmt.Sprint(n), LastTransitionTime: metav1.NewTime(time.Unix(1700000000, 5000)),
			}}
		}
	case *ciliumv2.CiliumNode:
		switch what {
		case 3:
			obj.Status.IPAM.Used = ipamtypes.AllocationMap{"10.0.0.1": {Owner: fmt.Sprint("default/", n)}}
		case 4:
			obj.Spec.IPAM.Pool = ipamtypes.AllocationMap{fmt.Sprintf("10.0.0.%d", n%7): {}}
			obj.Spec.IPAM.PodCIDRs = []iputil.Prefix{iputil.PrefixFrom(netip.MustParsePrefix("10.0.0.0/30"))}
		}
	case *v1alpha1.PodIPPool:
		switch what {
		case 3:
			obj.Status.Nodes = int32(n)
		case 4:
			obj.Spec.Priority = int32(n)
		}
	}
}

// compare compares the stored objects, and whether their versions changed.
func (p *pair) compare() {
	var now [2]client.Object
	for i, c := range p.clients {
		obj := p.fresh.DeepCopyObject().(client.Object)
		if err := c.Get(p.t.Context(), client.ObjectKeyFromObject(obj), obj); err == nil {
			now[i] = obj
		}
	}
	if (now[0] == nil) != (now[1] == nil) {
		p.t.Errorf("the real object is %v, ours is %v", now[0], now[1])
	}
	if now[0] == nil || now[1] == nil {
		return
	}
	moved := func(i int) bool {
		return p.seen[i] == nil || p.seen[i].GetResourceVersion() != now[i].GetResourceVersion()
	}
	// The real API server also changes the version when only managed fields change: the read
	// before that is old there only.
	if !moved(0) && moved(1) {
		p.t.Errorf("our version moved, the real one did not: %v", now)
	}
	if p.old = p.seen; moved(0) && !moved(1) {
		p.old = now
	}
	p.seen = now
	if diff := cmp.Diff(plain(now[0]), plain(now[1]), cmpopts.EquateEmpty(), cmpopts.EquateComparable(iputil.Prefix{})); diff != "" {
		p.t.Errorf("objects differ (-real +ours):\n%s", diff)
	}
}

// plain returns an object without the fields in which API servers differ.
func plain(obj client.Object) client.Object {
	out := obj.DeepCopyObject().(client.Object)
	out.SetResourceVersion("")
	out.SetUID("")
	out.SetCreationTimestamp(metav1.Time{})
	out.SetManagedFields(nil)
	if out.GetDeletionTimestamp() != nil {
		out.SetDeletionTimestamp(&metav1.Time{Time: time.Unix(0, 0)})
	}
	out.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return out
}
