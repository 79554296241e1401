// Package fakeapi is a fake API server with the deliveries of its watches: for tests of one
// controller that need each call to fail, or its response to be lost.
package fakeapi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	ciliumv2alpha1 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2alpha1"
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

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/apiclient"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumpool"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/common"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/event"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/pacing"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// Cluster is a fake API server with watches that do not lag, unless Lags is set.
type Cluster struct {
	T     *testing.T
	Mode  ciliumnode.Mode
	API   client.WithWatch
	Clock *clocktesting.FakePassiveClock
	// Ledger and Pools are the objects that a process has read from it since Restart. The rest is
	// shared by its controllers.
	Ledger   *state.Ledger
	Pools    *state.Pools
	Pressure *state.Pressure
	Pacing   *pacing.Pacing
	Events   *event.Recorder
	Shared   *common.Counters
	recorder *events.FakeRecorder
	// Calls are the writes sent and the live reads, in order. Before is called with each of
	// them.
	Calls  []string
	Before func(call string)
	// Fate decides the outcome of a write.
	Fate func(write string) Fate
	// Refuse contains the errors that calls return without any effect. For a create, the key
	// may have the name of the object in place of the kind.
	Refuse map[string]error
	// Blind stops the watch of blocks; Lags stops the watch of CiliumNodes.
	Blind, Lags bool
	// Late is an existing block that the list after a restart does not show.
	Late string
	// PodsLast: a restarted process has yet to read pods.
	PodsLast bool

	created int // objects so far
}

// Fate is the outcome of a write.
type Fate int

// The fates of a write.
const (
	Done    Fate = iota
	Refused      // it fails, and no object has changed
	Unheard      // it is done, and the response is lost
)

// ErrLine is returned by a write that fails, or whose response is lost.
var ErrLine = errors.New("the line is dead")

// New starts an API server with these objects, and a process that has read them.
func New(t *testing.T, mode ciliumnode.Mode, objects ...client.Object) *Cluster {
	t.Helper()
	scheme, err := apiclient.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	b := &Cluster{
		T: t, Mode: mode, Clock: clocktesting.NewFakePassiveClock(fixtures.Noon()),
		Before: func(string) {}, Fate: func(string) Fate { return Done },
	}
	b.API = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(b.hooks()).
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(obj client.Object) []string { return []string{obj.(*corev1.Pod).Spec.NodeName} }).
		WithIndex(&corev1.Pod{}, "metadata.name", func(obj client.Object) []string { return []string{obj.GetName()} }).
		WithIndex(&v1alpha1.PodIPBlock{}, "spec.poolName", func(obj client.Object) []string { return []string{obj.(*v1alpha1.PodIPBlock).Spec.PoolName} }).
		WithStatusSubresource(&ciliumv2.CiliumNode{}, &corev1.Node{}, &v1alpha1.PodIPBlock{}, &v1alpha1.PodIPPool{}, &v1alpha1.PodIPPin{}).Build()
	b.Restart()
	return b
}

// Defaults returns the defaults of the mode.
func (b *Cluster) Defaults() crd.Defaults {
	defaults := fixtures.Defaults()
	defaults.WholeBlocks, defaults.CiliumPools = b.Mode.WholeBlocks(), b.Mode.ManyPools()
	return defaults
}

// Restart starts a new process that has read all objects of the API server.
func (b *Cluster) Restart() {
	b.T.Helper()
	b.Ledger = state.NewLedger()
	b.Ledger.Now = b.Clock.Now
	b.Pools, b.Pressure, b.Pacing = state.NewPools(b.Defaults(), b.Ledger), state.NewPressure(), pacing.New(0, 0)
	b.recorder = events.NewFakeRecorder(10000)
	b.Events = event.NewRecorder(b.recorder, b.Clock)
	var err error
	if b.Shared, err = common.NewCounters(prometheus.NewRegistry()); err != nil {
		b.T.Fatal(err)
	}
	blocks, pools, pins := &v1alpha1.PodIPBlockList{}, &v1alpha1.PodIPPoolList{}, &v1alpha1.PodIPPinList{}
	for _, list := range []client.ObjectList{blocks, pools, pins} {
		if err := b.API.List(b.T.Context(), list); err != nil {
			b.T.Fatal(err)
		}
	}
	for i := range blocks.Items {
		if blocks.Items[i].Name != b.Late {
			b.Ledger.Upsert(b.ReadBlock(&blocks.Items[i]))
		}
	}
	for _, obj := range b.carriers() {
		b.Ledger.UpsertCiliumNode(Shared(b, b.Mode.View(obj)))
	}
	for i := range pools.Items {
		b.Pools.Set(&pools.Items[i])
	}
	for _, name := range b.Pools.Names() {
		pool := *b.Pools.Get(name)
		pool.Maintenance.Windows = nil // it remembers its last answer
		Shared(b, &pool)
	}
	for i := range pins.Items {
		pin, err := crd.PinFrom(&pins.Items[i])
		if err != nil {
			b.T.Fatal(err)
		}
		b.Ledger.Pins.Set(pin)
	}
	b.Ledger.SetClaimable()
	if !b.PodsLast {
		b.Ledger.SetReady()
	}
}

// carriers returns all objects that assign blocks to agents.
func (b *Cluster) carriers() []client.Object {
	b.T.Helper()
	var out []client.Object
	nodes, ciliumNodes := &corev1.NodeList{}, &ciliumv2.CiliumNodeList{}
	if _, isNode := b.Mode.AllocationObject().(*corev1.Node); isNode {
		if err := b.API.List(b.T.Context(), nodes); err != nil {
			b.T.Fatal(err)
		}
	} else if err := b.API.List(b.T.Context(), ciliumNodes); err != nil {
		b.T.Fatal(err)
	}
	for i := range nodes.Items {
		out = append(out, &nodes.Items[i])
	}
	for i := range ciliumNodes.Items {
		out = append(out, &ciliumNodes.Items[i])
	}
	return out
}

// ReadBlock reads a block.
func (b *Cluster) ReadBlock(obj *v1alpha1.PodIPBlock) crd.Block {
	b.T.Helper()
	out, err := crd.BlockFrom(obj)
	if err != nil {
		b.T.Fatal(err)
	}
	return out
}

func kindOf(obj any) string {
	name := fmt.Sprintf("%T", obj)
	return name[strings.LastIndexByte(name, '.')+1:]
}

func (b *Cluster) call(what string) {
	b.Calls = append(b.Calls, what)
	b.Before(what)
}

// write performs a write, with the outcome that Fate decides.
func (b *Cluster) write(what string, do func() error) error {
	b.call(what)
	if err := b.Refuse[what]; err != nil {
		return err
	}
	f := b.Fate(what)
	if f == Refused {
		return ErrLine
	}
	if err := do(); err != nil {
		return err
	}
	if f == Unheard {
		return ErrLine
	}
	return nil
}

func (b *Cluster) hooks() interceptor.Funcs {
	return interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			return b.write("create "+kindOf(obj), func() error {
				if err := b.Refuse["create "+obj.GetName()]; err != nil {
					return err
				}
				b.created++
				obj.SetUID(types.UID(fmt.Sprintf("%s-%d", obj.GetName(), b.created)))
				err := b.valid(ctx, obj, func() error { return c.Create(ctx, obj, opts...) })
				b.Show(obj, err)
				return err
			})
		},
		Update: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.UpdateOption) error {
			return b.write("update "+kindOf(obj), func() error {
				err := b.valid(ctx, obj, func() error { return c.Update(ctx, obj, opts...) })
				b.Show(obj, err)
				return err
			})
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			return b.write("patch "+kindOf(obj), func() error {
				err := b.valid(ctx, obj, func() error { return c.Patch(ctx, obj, patch, opts...) })
				b.Show(obj, err)
				return err
			})
		},
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			return b.write("delete "+kindOf(obj), func() error {
				err := c.Delete(ctx, obj, opts...)
				if block, ok := obj.(*v1alpha1.PodIPBlock); ok && err == nil && !b.Blind {
					left := &v1alpha1.PodIPBlock{}
					if err := c.Get(ctx, client.ObjectKeyFromObject(obj), left); apierrors.IsNotFound(err) {
						b.Ledger.Remove(b.ReadBlock(block))
					} else {
						b.Show(left, err) // a finalizer retains it
					}
				}
				return err
			})
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, obj client.Object, opts ...client.SubResourceUpdateOption) error {
			return b.write("update "+kindOf(obj)+" "+sub, func() error {
				err := b.valid(ctx, obj, func() error { return c.SubResource(sub).Update(ctx, obj, opts...) })
				b.Show(obj, err)
				return err
			})
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			return b.write("patch "+kindOf(obj)+" "+sub, func() error {
				return b.valid(ctx, obj, func() error { return c.SubResource(sub).Patch(ctx, obj, patch, opts...) })
			})
		},
	}
}

// Show delivers a block by the watch.
func (b *Cluster) Show(obj client.Object, err error) {
	if block, ok := obj.(*v1alpha1.PodIPBlock); ok && err == nil && !b.Blind {
		b.Ledger.Upsert(b.ReadBlock(block))
	}
}

// EventsOf returns the events with a reason that were sent since the last call for any reason, or
// since the last restart.
func (b *Cluster) EventsOf(reason string) []string {
	var out []string
	for len(b.recorder.Events) > 0 {
		if e := <-b.recorder.Events; strings.Contains(e, " "+reason+" ") {
			out = append(out, e)
		}
	}
	return out
}

// Series returns the series of metrics, by name and values of their labels.
func Series(t *testing.T, collectors ...prometheus.Collector) map[string]float64 {
	t.Helper()
	r := prometheus.NewRegistry()
	r.MustRegister(collectors...)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			got[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue() + m.GetHistogram().GetSampleSum()
		}
	}
	return got
}

// WritesOf returns the writes among calls.
func WritesOf(calls []string) []string {
	return slices.DeleteFunc(slices.Clone(calls), func(c string) bool { return strings.HasPrefix(c, "get ") })
}

// CiliumNode returns node n's CiliumNode as the API server holds it, or nil.
func (b *Cluster) CiliumNode() *ciliumnode.View {
	b.T.Helper()
	cn := b.Mode.AllocationObject()
	if err := b.API.Get(b.T.Context(), types.NamespacedName{Name: "n"}, cn); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return nil
		}
		b.T.Fatal(err)
	}
	return b.Mode.View(cn)
}

// Blocks returns the API server's blocks.
func (b *Cluster) Blocks() []crd.Block {
	b.T.Helper()
	list := &v1alpha1.PodIPBlockList{}
	if err := b.API.List(b.T.Context(), list); err != nil {
		b.T.Fatal(err)
	}
	var out []crd.Block
	for i := range list.Items {
		out = append(out, b.ReadBlock(&list.Items[i]))
	}
	return out
}

// Check checks the rules that hold at every instant: an address is published only while its
// block's object exists, and podCIDRs lists exactly the blocks with an address.
func (b *Cluster) Check(when string) {
	b.T.Helper()
	v := b.CiliumNode()
	if v == nil {
		return
	}
	published := map[string]bool{}
	for _, p := range v.PodRanges() {
		i := slices.IndexFunc(b.Blocks(), func(k crd.Block) bool { return k.CIDR.Contains(p.Addr()) && k.Node == v.Name })
		if i < 0 {
			b.T.Errorf("%s: %s is published without a block", when, p)
			continue
		}
		published[b.Blocks()[i].CIDR.String()] = true
	}
	for _, k := range b.Blocks() {
		if v.ListsForDefaultPool(k.CIDR) != published[k.CIDR.String()] {
			b.T.Errorf("%s: block %s is listed %t, published %t", when, k.CIDR, v.ListsForDefaultPool(k.CIDR), published[k.CIDR.String()])
		}
	}
}

// Latest is a resourceVersion that counts as later than any other, and any other as later than
// it: the fake API server counts separately for each object.
const Latest = "x"

// Watch delivers the waiting events of the watch of CiliumNodes.
func (b *Cluster) Watch() {
	b.T.Helper()
	if b.Lags {
		return
	}
	listed := map[types.UID]bool{}
	for _, obj := range b.carriers() {
		listed[obj.GetUID()] = true
		b.Ledger.UpsertCiliumNode(Shared(b, b.Mode.View(obj)))
	}
	for _, gone := range b.Ledger.MissingCiliumNodes(listed, Latest) {
		b.Ledger.RemoveCiliumNode(gone)
	}
}

// Lag makes the watch of CiliumNodes show the present state, and no later one.
func (b *Cluster) Lag() {
	b.T.Helper()
	b.Watch()
	b.Lags = true
}

// RequestOf returns the request to reconcile an object.
func RequestOf(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}
}

// RawMerge returns a JSON merge patch.
func RawMerge(body string) client.Patch { return client.RawPatch(types.MergePatchType, []byte(body)) }

// CiliumPools returns the pools that a watch would have delivered.
func (b *Cluster) CiliumPools() *state.CiliumPools {
	b.T.Helper()
	out, list := state.NewCiliumPools(), &ciliumv2alpha1.CiliumPodIPPoolList{}
	if err := b.API.List(b.T.Context(), list); err != nil {
		b.T.Fatal(err)
	}
	out.SetKnown()
	for i := range list.Items {
		out.Set(Shared(b, ciliumpool.Read(&list.Items[i])))
	}
	return out
}
