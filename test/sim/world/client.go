package world

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"slices"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
)

// errLine is a client's error when its connection breaks.
var errLine = errors.New("connection reset by peer")

// fate is the outcome of a call.
type fate int

const (
	carriedOut fate = iota
	failed          // it is not done, and the client does not know
	unheard         // it is done, and the answer is lost
	throttled       // it is not done, and the API server says so
)

// call is a call to the API server that waits to be carried out.
type call struct {
	verb, sub string
	kind      Kind
	key       string
	do        func() error
	// conditional: a create, or bound to a version or UID.
	conditional bool
	// version is the version that a patch is conditional on, if any.
	version string
	// shown is the block with the awaited watch event: no call at all.
	shown types.UID
	fate  fate
	// cluster lists the cluster's own addresses that the process knew when it made the call.
	cluster []netip.Prefix
	// named maps the agents' own addresses that the process knew to their nodes, for a claim where
	// families are switched.
	named map[netip.Addr]string
}

// readsBlock reports whether a block is read live.
func (c *call) readsBlock() bool { return c != nil && c.verb == "get" && c.kind == KindBlock }

func (c *call) writes() bool {
	switch c.verb {
	case "get", "list", "wait", "sleep":
		return false
	}
	return true
}

func (c *call) String() string {
	if c.verb == "wait" {
		return "wait for the watch to show block " + string(c.shown)
	}
	if c.verb == "list" {
		return "list " + c.key
	}
	s := c.verb + " " + c.kind.String() + " " + c.key
	if c.sub != "" {
		s += " " + c.sub
	}
	return s
}

// crash is thrown through the code of a dead process.
type crash struct{}

// coroutine runs the code of a process, which hands over at each call to the API server.
type coroutine struct {
	yield func(*call) bool
	// next runs the code to its next call; false: to its end. stop ends it where it is.
	next func() (*call, bool)
	stop func()
}

// begin prepares to run code.
func (c *coroutine) begin(run func()) {
	c.next, c.stop = iter.Pull(func(yield func(*call) bool) {
		defer func() {
			if thrown := recover(); thrown != nil && thrown != any(crash{}) {
				panic(thrown)
			}
		}()
		c.yield = yield
		run()
	})
}

// handOver returns once the world has decided on the fate of a call.
func (c *coroutine) handOver(next *call) {
	if !c.yield(next) {
		panic(crash{})
	}
}

// send hands over a call, and returns once the world has performed it.
func (c *coroutine) send(next *call, carryOut func(*call) error) error {
	c.handOver(next)
	switch next.fate {
	case failed:
		return errLine
	case unheard:
		_ = carryOut(next)
		return errLine
	}
	return carryOut(next)
}

// send hands over a call, and returns once the world has performed it.
func (o *Operator) send(c *call) error {
	c.cluster = o.cluster.all()
	if o.w.cfg.SwitchesFamilies && c.verb == "create" && c.kind == KindBlock {
		c.named = o.named()
	}
	o.current.code.handOver(c)
	switch c.fate {
	case failed:
		return errLine
	case throttled:
		return apierrors.NewTooManyRequests("too many requests", 1)
	case unheard:
		if o.carryOut(c) == nil && c.verb == "create" && c.kind == KindBlock {
			o.unheard(c.key)
		}
		return errLine
	}
	return o.carryOut(c)
}

// waitForCache stands in for Ledger.WaitForCache.
func (o *Operator) waitForCache(_ context.Context, uid types.UID) error {
	for !o.shown(uid) {
		if err := o.send(&call{verb: "wait", shown: uid, do: func() error { return nil }}); err != nil {
			return context.DeadlineExceeded
		}
	}
	return nil
}

// shown asks the ledger without waiting.
func (o *Operator) shown(uid types.UID) bool {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return o.parts.Node.Cluster.Ledger.WaitForCache(ctx, uid) == nil
}

// caller hands over calls to the world, and returns once it has performed them.
type caller interface {
	send(*call) error
	in() *World
}

func (o *Operator) in() *World { return o.w }

// live is a connection to the API server. Only the operators' calls are implemented.
type live struct {
	client.Client
	caller
}

func (l live) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	k := kindOf(obj)
	c := &call{verb: "get", kind: k, key: nameOf(key)}
	c.do = func() error {
		stored := l.in().api.Get(k, c.key)
		if stored == nil {
			return apierrors.NewNotFound(k.resource(), c.key)
		}
		assign(obj, stored.DeepCopyObject().(client.Object))
		return nil
	}
	return l.send(c)
}

// List reads the objects of a kind: all of them, or pods of a node, agents' pods, or blocks of a pool.
func (l live) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	o, w := (&client.ListOptions{}).ApplyOptions(opts), l.in()
	c := &call{verb: "list", key: fmt.Sprintf("%T", list)}
	if o.FieldSelector != nil {
		c.key += " " + o.FieldSelector.String()
	}
	c.do = func() error {
		switch l := list.(type) {
		case *corev1.PodList:
			l.Items = slices.DeleteFunc(allOf[corev1.Pod](w, KindPod), func(pod corev1.Pod) bool { return !lists(o, &pod) })
		case *corev1.NodeList:
			l.Items = allOf[corev1.Node](w, KindNode)
		case *ciliumv2.CiliumNodeList:
			l.Items = allOf[ciliumv2.CiliumNode](w, KindCiliumNode)
		case *v1alpha1.PodIPPoolList:
			l.Items = allOf[v1alpha1.PodIPPool](w, KindPool)
		case *v1alpha1.PodIPBlockList:
			l.Items = slices.DeleteFunc(allOf[v1alpha1.PodIPBlock](w, KindBlock), func(b v1alpha1.PodIPBlock) bool { return !lists(o, &b) })
			if o.Limit > 0 {
				l.Items = l.Items[:min(len(l.Items), int(o.Limit))]
			}
		case *v1alpha1.PodIPPinList:
			l.Items = allOf[v1alpha1.PodIPPin](w, KindPin)
		case *networkingv1.ServiceCIDRList:
			l.Items = allOf[networkingv1.ServiceCIDR](w, KindServiceCIDR)
		case *corev1.ServiceList, *discoveryv1.EndpointSliceList, *ciliumv2.CiliumLoadBalancerIPPoolList, *ciliumv2.CiliumEgressGatewayPolicyList,
			*coordinationv1.LeaseList, *policyv1.PodDisruptionBudgetList:
			// none of these here, and no other Lease
		case *unstructured.UnstructuredList:
			l.Items = w.migration.nodeConfigs()
		default:
			panic(fmt.Sprintf("the simulated API server does not list %T", list))
		}
		return nil
	}
	return l.send(c)
}

// lists reports whether a list with these options contains a pod or a block.
func lists(o *client.ListOptions, obj client.Object) bool {
	exactly := func(field string) (string, bool) {
		if o.FieldSelector == nil {
			return "", false
		}
		return o.FieldSelector.RequiresExactMatch(field)
	}
	if b, ok := obj.(*v1alpha1.PodIPBlock); ok {
		pool, some := exactly("spec.poolName")
		return !some || b.Spec.PoolName == pool
	}
	pod := obj.(*corev1.Pod)
	if name, some := exactly("metadata.name"); some {
		return pod.Name == name && pod.Namespace == o.Namespace
	}
	if node, some := exactly("spec.nodeName"); some {
		return pod.Spec.NodeName == node
	}
	return o.LabelSelector == nil && needsAddress(pod) || o.LabelSelector != nil && isAgent(pod)
}

func (l live) write(verb, sub string, obj client.Object, conditional bool, do func() (client.Object, error)) error {
	return l.send(writing(verb, sub, obj, conditional, do))
}

func writing(verb, sub string, obj client.Object, conditional bool, do func() (client.Object, error)) *call {
	return &call{verb: verb, sub: sub, kind: kindOf(obj), key: keyOf(obj), conditional: conditional, do: func() error {
		stored, err := do()
		if err == nil && stored != nil {
			assign(obj, stored.DeepCopyObject().(client.Object))
		}
		return err
	}}
}

func (l live) Create(_ context.Context, obj client.Object, _ ...client.CreateOption) error {
	return l.write("create", "", obj, true, func() (client.Object, error) { return l.in().api.Create(obj) })
}

func (l live) Update(_ context.Context, obj client.Object, _ ...client.UpdateOption) error {
	return l.write("update", "", obj, obj.GetResourceVersion() != "", func() (client.Object, error) {
		return l.in().api.Update(obj, false)
	})
}

func (l live) Delete(_ context.Context, obj client.Object, opts ...client.DeleteOption) error {
	o := (&client.DeleteOptions{}).ApplyOptions(opts)
	p := o.Preconditions
	if p == nil {
		p = &metav1.Preconditions{}
	}
	conditional := p.UID != nil && p.ResourceVersion != nil
	return l.write("delete", "", obj, conditional, func() (client.Object, error) {
		return nil, l.in().api.Delete(kindOf(obj), keyOf(obj), p.UID, p.ResourceVersion)
	})
}

func (l live) Patch(_ context.Context, obj client.Object, patch client.Patch, _ ...client.PatchOption) error {
	return l.patch("", obj, patch)
}

func (l live) patch(sub string, obj client.Object, patch client.Patch) error {
	body, err := patch.Data(obj)
	if err != nil {
		return err
	}
	// Of the writes, only that of a Node's condition is not conditional; its offer is.
	condition := kindOf(obj) == KindNode && sub == "status" && bytes.Contains(body, []byte(`"conditions"`))
	version := versionIn(body)
	c := writing("patch", sub, obj, version != "" || condition, func() (client.Object, error) {
		return l.in().api.Patch(kindOf(obj), keyOf(obj), patch.Type(), body, sub == "status")
	})
	c.version = version
	return l.send(c)
}

func (l live) Status() client.SubResourceWriter { return statusWriter{l: l} }

type statusWriter struct {
	client.SubResourceWriter
	l live
}

func (s statusWriter) Update(_ context.Context, obj client.Object, _ ...client.SubResourceUpdateOption) error {
	return s.l.write("update", "status", obj, obj.GetResourceVersion() != "", func() (client.Object, error) {
		return s.l.in().api.Update(obj, true)
	})
}

func (s statusWriter) Patch(_ context.Context, obj client.Object, patch client.Patch, _ ...client.SubResourcePatchOption) error {
	return s.l.patch("status", obj, patch)
}

func versionIn(body []byte) string {
	var obj metav1.PartialObjectMetadata
	if err := json.Unmarshal(body, &obj); err != nil {
		return ""
	}
	return obj.ResourceVersion
}

func nameOf(key client.ObjectKey) string {
	if key.Namespace == "" {
		return key.Name
	}
	return key.String()
}

// carryOut performs a call to the API server on behalf of the operator.
func (o *Operator) carryOut(c *call) error {
	if c.writes() {
		o.w.quiescence.sent++
		if !c.conditional {
			o.w.violate(4, "%s: %s is not conditional", o.name, c)
			if o.w.refinement != nil {
				o.w.refinement.unbound(c)
			}
		}
		o.checkOwnWrite(c)
	}
	o.w.rules.writer = o
	err := c.do()
	o.w.rules.writer = nil
	if err == nil {
		o.noteAck(c)
	}
	o.takeAnswer(c, err)
	if err != nil {
		o.w.tracef("%s %s: %v", o.name, c, err)
	}
	return err
}

// takeAnswer records a response for the reconcile in progress.
func (o *Operator) takeAnswer(c *call, err error) {
	if o.w.refinement != nil && c.verb == "get" && err == nil {
		o.w.refinement.reads(o, o.current, c)
	}
	if c.readsBlock() && err == nil {
		o.current.noteRead(o, c.key)
	}
	if c.verb == "create" && c.kind == KindBlock && apierrors.IsAlreadyExists(err) {
		o.current.found = c.key
	}
	if c.verb == "get" && c.kind == KindCiliumNode && c.key == o.current.name {
		o.current.foundNone = apierrors.IsNotFound(err)
	}
}
