package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// bed is a node controller on a fake API server whose watches never lag.
type bed struct {
	t      *testing.T
	mode   ciliumnode.Mode
	api    client.WithWatch
	clock  *clocktesting.FakePassiveClock
	r      *NodeReconciler
	pools  *PoolReconciler // see poolReconciler
	calls  []string        // writes sent, and live reads, in their order
	before func(call string)
	fate   func(write string) fate
	refuse map[string]error // what these calls answer, in place of doing anything
	blind  bool             // the watch of blocks shows nothing
	lags   bool             // that of CiliumNodes shows nothing new
	late   string           // a block that exists and that the list of a restart does not show
}

// fate is what becomes of a write.
type fate int

const (
	done    fate = iota
	refused      // it fails, and nothing has changed
	unheard      // it is done, and the answer is lost
)

var errLine = errors.New("the line is dead")

func newBed(t *testing.T, objects ...client.Object) *bed {
	t.Helper()
	return newBedIn(t, ciliumnode.CRD, objects...)
}

func newBedIn(t *testing.T, mode ciliumnode.Mode, objects ...client.Object) *bed {
	t.Helper()
	scheme, err := Scheme()
	if err != nil {
		t.Fatal(err)
	}
	b := &bed{
		t: t, mode: mode, clock: clocktesting.NewFakePassiveClock(fixtures.Noon()),
		before: func(string) {}, fate: func(string) fate { return done },
	}
	b.api = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(b.hooks()).
		WithIndex(&v1alpha1.PodIPBlock{}, "spec.poolName", func(obj client.Object) []string { return []string{obj.(*v1alpha1.PodIPBlock).Spec.PoolName} }).
		WithStatusSubresource(&ciliumv2.CiliumNode{}, &corev1.Node{}, &v1alpha1.PodIPBlock{}, &v1alpha1.PodIPPool{}).Build()
	b.restart()
	return b
}

// restart begins anew with what the API server holds.
func (b *bed) restart() {
	b.t.Helper()
	own, err := NewMetrics(prometheus.NewRegistry())
	if err != nil {
		b.t.Fatal(err)
	}
	b.pools = nil
	ledger, defaults := state.NewLedger(), fixtures.Defaults()
	defaults.WholeBlocks, defaults.CiliumPools = b.mode.WholeBlocks(), b.mode.ManyPools()
	b.r = &NodeReconciler{
		Cluster: state.Cluster{Ledger: ledger, Pools: state.NewPools(defaults, ledger), Defaults: defaults, Pods: state.NewPods(), Agents: state.NewAgents(time.Minute), Awaiting: &state.Awaiting{}, StartupTaints: setOf(crd.DefaultStartupTaints())},
		Cache:   b.api, Live: live{b}, Client: b.api, CiliumNodes: &ciliumnode.Client{Writer: b.api, Reader: live{b}, Mode: b.mode},
		WaitShown: ledger.WaitShown, Pacing: NewPacing(0, 0),
		Events: NewEvents(events.NewFakeRecorder(10000), b.clock), Metrics: own, Clock: b.clock,
	}
	blocks, pools := &v1alpha1.PodIPBlockList{}, &v1alpha1.PodIPPoolList{}
	for _, list := range []client.ObjectList{blocks, pools} {
		if err := b.api.List(b.t.Context(), list); err != nil {
			b.t.Fatal(err)
		}
	}
	for i := range blocks.Items {
		if blocks.Items[i].Name != b.late {
			ledger.Upsert(b.read(&blocks.Items[i]))
		}
	}
	for _, obj := range b.carriers() {
		ledger.UpsertCiliumNode(b.mode.ToStored(obj))
	}
	for i := range pools.Items {
		b.r.Pools.Set(&pools.Items[i])
	}
	b.r.Pools.Resolve()
	ledger.SetReady()
}

// carriers are all objects that tell agents their blocks.
func (b *bed) carriers() []client.Object {
	b.t.Helper()
	var out []client.Object
	nodes, ciliumNodes := &corev1.NodeList{}, &ciliumv2.CiliumNodeList{}
	if _, isNode := b.mode.AllocationObject().(*corev1.Node); isNode {
		if err := b.api.List(b.t.Context(), nodes); err != nil {
			b.t.Fatal(err)
		}
	} else if err := b.api.List(b.t.Context(), ciliumNodes); err != nil {
		b.t.Fatal(err)
	}
	for i := range nodes.Items {
		out = append(out, &nodes.Items[i])
	}
	for i := range ciliumNodes.Items {
		out = append(out, &ciliumNodes.Items[i])
	}
	return out
}

func (b *bed) read(obj *v1alpha1.PodIPBlock) crd.Block {
	b.t.Helper()
	out, err := crd.BlockFrom(obj)
	if err != nil {
		b.t.Fatal(err)
	}
	return out
}

// live reads as the API server answers.
type live struct{ *bed }

func (l live) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	l.call("get " + kindOf(obj))
	if err := l.refuse["get "+kindOf(obj)]; err != nil {
		return err
	}
	return l.api.Get(ctx, key, obj, opts...)
}

func (l live) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return l.api.List(ctx, list, opts...)
}

func kindOf(obj any) string {
	name := fmt.Sprintf("%T", obj)
	return name[strings.LastIndexByte(name, '.')+1:]
}

func (b *bed) call(what string) {
	b.calls = append(b.calls, what)
	b.before(what)
}

// write carries out a write, or what becomes of it.
func (b *bed) write(what string, do func() error) error {
	b.call(what)
	if err := b.refuse[what]; err != nil {
		return err
	}
	f := b.fate(what)
	if f == refused {
		return errLine
	}
	if err := do(); err != nil {
		return err
	}
	if f == unheard {
		return errLine
	}
	return nil
}

func (b *bed) hooks() interceptor.Funcs {
	return interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			return b.write("create "+kindOf(obj), func() error {
				obj.SetUID(types.UID(fmt.Sprintf("%s-%d", obj.GetName(), len(b.calls))))
				err := c.Create(ctx, obj, opts...)
				b.show(obj, err)
				return err
			})
		},
		Update: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.UpdateOption) error {
			return b.write("update "+kindOf(obj), func() error {
				err := c.Update(ctx, obj, opts...)
				b.show(obj, err)
				return err
			})
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			return b.write("patch "+kindOf(obj), func() error {
				err := c.Patch(ctx, obj, patch, opts...)
				b.show(obj, err)
				return err
			})
		},
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			return b.write("delete "+kindOf(obj), func() error {
				err := c.Delete(ctx, obj, opts...)
				if block, ok := obj.(*v1alpha1.PodIPBlock); ok && err == nil {
					left := &v1alpha1.PodIPBlock{}
					if err := c.Get(ctx, client.ObjectKeyFromObject(obj), left); apierrors.IsNotFound(err) {
						b.r.Ledger.Remove(b.read(block))
					} else {
						b.show(left, err) // a finalizer holds it
					}
				}
				return err
			})
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, obj client.Object, opts ...client.SubResourceUpdateOption) error {
			return b.write("update "+kindOf(obj)+" "+sub, func() error {
				err := c.SubResource(sub).Update(ctx, obj, opts...)
				b.show(obj, err)
				return err
			})
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			return b.write("patch "+kindOf(obj)+" "+sub, func() error { return c.SubResource(sub).Patch(ctx, obj, patch, opts...) })
		},
	}
}

// show is the watch of blocks.
func (b *bed) show(obj client.Object, err error) {
	if block, ok := obj.(*v1alpha1.PodIPBlock); ok && err == nil && !b.blind {
		b.r.Ledger.Upsert(b.read(block))
	}
}

// reconcile looks at node n once, and returns the calls that were made.
func (b *bed) reconcile() ([]string, error) {
	b.t.Helper()
	b.calls = nil
	b.watch()
	_, err := b.r.Reconcile(b.t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "n"}})
	return b.calls, err
}

// ensureCiliumNode takes the step of a reconcile that creates or restores the CiliumNode.
func (b *bed) ensureCiliumNode() {
	b.t.Helper()
	o, err := b.r.observe(b.t.Context(), "n")
	if err != nil {
		b.t.Fatal(err)
	}
	if done, err := b.r.ensureCiliumNode(b.t.Context(), o); err != nil || !done {
		b.t.Fatalf("%t, %v", done, err)
	}
}

// settle looks at node n until nothing is written any more.
func (b *bed) settle() {
	b.t.Helper()
	for range 50 {
		calls, err := b.reconcile()
		if err != nil {
			b.t.Fatal(err)
		}
		if len(writesOf(calls)) == 0 {
			return
		}
	}
	b.t.Fatalf("still writing after 50 looks: %v", b.calls)
}

func writesOf(calls []string) []string {
	return slices.DeleteFunc(slices.Clone(calls), func(c string) bool { return strings.HasPrefix(c, "get ") })
}

func (b *bed) ciliumNode() *ciliumnode.View {
	b.t.Helper()
	cn := b.mode.AllocationObject()
	if err := b.api.Get(b.t.Context(), types.NamespacedName{Name: "n"}, cn); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return nil
		}
		b.t.Fatal(err)
	}
	return b.mode.View(cn)
}

func (b *bed) blocks() []crd.Block {
	b.t.Helper()
	list := &v1alpha1.PodIPBlockList{}
	if err := b.api.List(b.t.Context(), list); err != nil {
		b.t.Fatal(err)
	}
	var out []crd.Block
	for i := range list.Items {
		out = append(out, b.read(&list.Items[i]))
	}
	return out
}

// check holds what there is to the rules that hold at every instant: an address
// is published only with its block's object there, and podCIDRs lists exactly
// the blocks with an address.
func (b *bed) check(when string) {
	b.t.Helper()
	v := b.ciliumNode()
	if v == nil {
		return
	}
	published := map[string]bool{}
	for _, p := range v.Named() {
		i := slices.IndexFunc(b.blocks(), func(k crd.Block) bool { return k.CIDR.Contains(p.Addr()) && k.Node == v.Name })
		if i < 0 {
			b.t.Errorf("%s: %s is published without a block", when, p)
			continue
		}
		published[b.blocks()[i].CIDR.String()] = true
	}
	for _, k := range b.blocks() {
		if v.Lists(k.CIDR) != published[k.CIDR.String()] {
			b.t.Errorf("%s: block %s is listed %t, published %t", when, k.CIDR, v.Lists(k.CIDR), published[k.CIDR.String()])
		}
	}
}

func publishing(cn *ciliumv2.CiliumNode, keys ...string) *ciliumv2.CiliumNode {
	cn.ResourceVersion, cn.UID = "", "cn-uid"
	cn.Spec.IPAM.Pool = fixtures.AllocationMap(keys...)
	return cn
}

// latest is a resourceVersion that counts as later than any other, and any other as
// later than it: the fake API server starts anew for each object.
const latest = "x"

// watch is the watch of CiliumNodes.
func (b *bed) watch() {
	b.t.Helper()
	if b.lags {
		return
	}
	listed := map[types.UID]bool{}
	for _, obj := range b.carriers() {
		listed[obj.GetUID()] = true
		b.r.Ledger.UpsertCiliumNode(b.mode.ToStored(obj))
	}
	for _, gone := range b.r.Ledger.MissingCiliumNodes(listed, latest) {
		b.r.Ledger.RemoveCiliumNode(gone)
	}
}

// lag lets the watch of CiliumNodes show what there is now, and nothing after.
func (b *bed) lag() {
	b.t.Helper()
	b.watch()
	b.lags = true
}

func requestOf(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}
}

func rawMerge(body string) client.Patch { return client.RawPatch(types.MergePatchType, []byte(body)) }

func contextEnded(t *testing.T) (context.Context, context.CancelFunc) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	return ctx, stop
}

// seen is a node observed with a CiliumNode of this UID.
func seen(name string, uid types.UID) *observation {
	return &observation{Snapshot: &state.Snapshot{Name: name, CiliumNode: &ciliumnode.View{Name: name, UID: uid}}}
}
