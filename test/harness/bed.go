package harness

import (
	"context"
	"errors"
	"fmt"
	"testing"

	iputil "github.com/cilium/cilium/pkg/ip"
	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/apiclient"
)

// NewClient knows all kinds that the operator works with, and more; it sets no rate
// limit.
func NewClient(cfg *rest.Config, more ...func(*runtime.Scheme) error) (client.WithWatch, error) {
	scheme, err := apiclient.Scheme()
	if err != nil {
		return nil, err
	}
	for _, add := range more {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	cfg = rest.CopyConfig(cfg)
	cfg.QPS, cfg.WarningHandler = -1, rest.NoWarnings{}
	return client.NewWithWatch(cfg, client.Options{Scheme: scheme})
}

// Bed is the cluster of a test, which fails where a call of these does.
type Bed struct {
	TB     testing.TB
	Ctx    context.Context //nolint:containedctx // the context of the test, or of its clean-up
	Client client.WithWatch
}

// NewBed is a Bed until the test ends.
func NewBed(t testing.TB, cfg *rest.Config, more ...func(*runtime.Scheme) error) *Bed {
	t.Helper()
	c, err := NewClient(cfg, more...)
	b := &Bed{TB: t, Ctx: t.Context(), Client: c}
	b.Must(err)
	return b
}

// Must fails the test where there is an error.
func (b *Bed) Must(err error) {
	b.TB.Helper()
	Must(b.TB, err)
}

// ServesServiceCIDRs reports whether the API server does, as since Kubernetes 1.33.
func (b *Bed) ServesServiceCIDRs() bool {
	b.TB.Helper()
	_, err := b.Client.RESTMapper().RESTMapping(schema.GroupKind{Group: networkingv1.GroupName, Kind: "ServiceCIDR"}, "v1")
	if meta.IsNoMatchError(err) {
		return false
	}
	b.Must(err)
	return true
}

// check fails the test where a call about an object failed.
func (b *Bed) check(o client.Object, doing string, err error) {
	b.TB.Helper()
	if err != nil {
		b.TB.Fatalf("%s %T %s: %v", doing, o, o.GetName(), err)
	}
}

// Create creates an object; its status is left as it is.
func (b *Bed) Create(o client.Object) {
	b.TB.Helper()
	b.check(o, "creating", b.Client.Create(b.Ctx, o))
}

// Read reads the object of that name.
func (b *Bed) Read(o client.Object, namespace, name string) {
	b.TB.Helper()
	o.SetName(name)
	b.check(o, "reading", b.Client.Get(b.Ctx, client.ObjectKey{Namespace: namespace, Name: name}, o))
}

// Update updates an object.
func (b *Bed) Update(o client.Object) {
	b.TB.Helper()
	b.check(o, "updating", b.Client.Update(b.Ctx, o))
}

// UpdateStatus updates the status of an object.
func (b *Bed) UpdateStatus(o client.Object) {
	b.TB.Helper()
	b.check(o, "updating the status of", b.Client.Status().Update(b.Ctx, o))
}

// Delete deletes an object, pods at once.
func (b *Bed) Delete(o client.Object) {
	b.TB.Helper()
	b.check(o, "deleting", b.Client.Delete(b.Ctx, o, client.GracePeriodSeconds(0)))
}

// Remove deletes an object, with any finalizers.
func (b *Bed) Remove(o client.Object) {
	b.TB.Helper()
	b.check(o, "removing", Remove(b.Ctx, b.Client, o))
}

// Wipe deletes all objects of these lists, with any finalizers.
func (b *Bed) Wipe(lists ...client.ObjectList) {
	b.TB.Helper()
	b.Must(Wipe(b.Ctx, b.Client, lists...))
}

// Eventually waits until holds returns nil, or fails the test with the last reason
// why it does not.
func (b *Bed) Eventually(what string, holds func() error) {
	b.TB.Helper()
	Eventually(b.TB, what, holds)
}

// Gone waits until an object is not there any more.
func (b *Bed) Gone(o client.Object) {
	b.TB.Helper()
	b.Eventually(fmt.Sprintf("%T %s is gone", o, o.GetName()), func() error {
		err := b.Client.Get(b.Ctx, client.ObjectKeyFromObject(o), o)
		switch {
		case err == nil:
			return errors.New("it is there")
		case apierrors.IsNotFound(err):
			return nil
		}
		return err
	})
}

// Blocks are a node's blocks; "" is all nodes.
func (b *Bed) Blocks(node string) []v1alpha1.PodIPBlock {
	b.TB.Helper()
	list := &v1alpha1.PodIPBlockList{}
	var opts []client.ListOption
	if node != "" {
		opts = append(opts, client.MatchingFields{"spec.nodeName": node})
	}
	b.Must(b.Client.List(b.Ctx, list, opts...))
	return list.Items
}

// Pods makes n pods bound to a node, named and labelled after the prefix.
func (b *Bed) Pods(node, prefix string, n int) {
	b.TB.Helper()
	for i := range n {
		b.Create(BoundPod(node, fmt.Sprintf("%s-%s-%d", prefix, node, i), map[string]string{"app": prefix}))
	}
}

// DeletePods deletes the pods of a prefix, but for those to keep.
func (b *Bed) DeletePods(prefix string, keep func(name string) bool) {
	b.TB.Helper()
	list := &corev1.PodList{}
	b.Must(b.Client.List(b.Ctx, list, client.InNamespace(corev1.NamespaceDefault), client.MatchingLabels{"app": prefix}))
	for i := range list.Items {
		if pod := &list.Items[i]; keep == nil || !keep(pod.Name) {
			b.Must(client.IgnoreNotFound(b.Client.Delete(b.Ctx, pod)))
		}
	}
}

// DropPods removes all pods of the namespace default at once, as there is no kubelet
// to end them.
func (b *Bed) DropPods() {
	b.TB.Helper()
	b.Must(b.Client.DeleteAllOf(b.Ctx, &corev1.Pod{}, client.InNamespace(corev1.NamespaceDefault), client.GracePeriodSeconds(0)))
}

// AgentRequests is the write of an agent in multi-pool mode: it requests addresses for
// the pool default, and keeps that many of its CIDRs.
func (b *Bed) AgentRequests(node string, addresses, cidrs int) {
	b.TB.Helper()
	b.Eventually("the agent of "+node+" writes", func() error {
		cn := &ciliumv2.CiliumNode{}
		if err := b.Client.Get(b.Ctx, client.ObjectKey{Name: node}, cn); err != nil {
			return err
		}
		cn.Spec.IPAM.Pools = ipamtypes.IPAMPoolSpec{
			Requested: []ipamtypes.IPAMPoolRequest{{Pool: "default", Needed: ipamtypes.IPAMPoolDemand{IPv4Addrs: addresses}}},
			Allocated: []ipamtypes.IPAMPoolAllocation{{Pool: "default", CIDRs: AssignedCIDRs(cn)[:cidrs]}},
		}
		return b.Client.Update(b.Ctx, cn)
	})
}

// AssignedCIDRs returns the CIDRs that a CiliumNode lists under the pool default.
func AssignedCIDRs(cn *ciliumv2.CiliumNode) []iputil.Prefix {
	for _, entry := range cn.Spec.IPAM.Pools.Allocated {
		if entry.Pool == "default" {
			return entry.CIDRs
		}
	}
	return nil
}

// RunningPod makes a pod that runs on a node, with these addresses.
func (b *Bed) RunningPod(node, name string, ips ...string) *corev1.Pod {
	b.TB.Helper()
	p := BoundPod(node, name, nil)
	b.Create(p)
	p.Status.Phase, p.Status.PodIP = corev1.PodRunning, ips[0]
	for _, ip := range ips {
		p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: ip})
	}
	b.UpdateStatus(p)
	return p
}

// AgentPod makes the pod of a node's agent, Ready.
func (b *Bed) AgentPod(node string) *corev1.Pod {
	b.TB.Helper()
	p := BoundPod(node, "cilium-"+node, map[string]string{"k8s-app": "cilium"})
	p.Namespace, p.Spec.HostNetwork = "kube-system", true
	p.Spec.Containers[0].Name = "cilium-agent"
	b.Create(p)
	p.Status = corev1.PodStatus{
		Phase:             corev1.PodRunning,
		Conditions:        []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		ContainerStatuses: []corev1.ContainerStatus{{Name: "cilium-agent", ContainerID: "containerd://" + node, Ready: true}},
	}
	b.UpdateStatus(p)
	return p
}
