package clusterview

import (
	"context"
	"errors"
	"fmt"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	ciliumv2alpha1 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/apiclient"
	"github.com/cilium-pool/cilium-pool-operator/pkg/clusterread"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// Followed is a cluster followed with watches. As a reader it has the objects that the watches have
// delivered so far, and none of kinds without a watch.
type Followed struct {
	*Watched
	host     string
	operator clusterread.Operator
	reader   clusterread.Reader
}

// Follow returns once everything has been read. The watches end with ctx. namespace and agents select
// the agents' pods.
func Follow(ctx context.Context, config *rest.Config, c client.Client, operator clusterread.Operator, namespace string, agents labels.Selector) (*Followed, error) {
	w := &Followed{host: config.Host, operator: operator}
	w.reader = clusterread.Reader{Client: w, Live: c, AgentNamespace: namespace, AgentSelector: agents, Mode: operator.Mode, Observe: operator.Observe}
	kinds := []client.Object{&corev1.Pod{}, &ciliumv2.CiliumNode{}, &corev1.Node{}}
	optional := []client.Object{}
	watched := []client.Object{&v1alpha1.PodIPBlock{}, &v1alpha1.PodIPPool{}}
	if operator.Observe {
		optional = append(optional, watched...)
	} else {
		kinds = append(kinds, watched...)
	}
	if operator.Mode.ManyPools() {
		kinds = append(kinds, &corev1.Namespace{})
		optional = append(optional, &ciliumv2alpha1.CiliumPodIPPool{})
	}
	for _, kind := range optional {
		if gvk, err := c.GroupVersionKindFor(kind); err == nil {
			if _, err := c.RESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version); err == nil {
				kinds = append(kinds, kind)
			}
		}
	}
	scheme, err := apiclient.ServedScheme(c.RESTMapper())
	if err != nil {
		return nil, w.Unreadable(err)
	}
	w.Watched, err = Watch(ctx, config, cache.Options{
		Scheme: scheme, Mapper: c.RESTMapper(),
		ReaderFailOnMissingInformer:  true,
		DefaultUnsafeDisableDeepCopy: ptr.To(true),
		DefaultTransform:             w.slim,
	}, kinds...)
	if meta.IsNoMatchError(err) {
		return nil, clusterread.CannotRead(config.Host, err)
	}
	if err != nil {
		return nil, w.Unreadable(err)
	}
	select {
	case err := <-w.Failed:
		return nil, w.Unreadable(err)
	case <-w.Synced:
		return w, ctx.Err()
	}
}

// slim drops fields that no reader needs before an object is cached. Labels select agents, and the
// Cilium pools of pods.
func (w *Followed) slim(obj any) (any, error) {
	if o, ok := obj.(metav1.Object); ok {
		o.SetManagedFields(nil)
	}
	switch o := obj.(type) {
	case *corev1.Pod:
		o.Annotations = state.KeepPoolRequests(o.Annotations)
		o.OwnerReferences = nil
		if o.Namespace != w.reader.AgentNamespace && !w.operator.Mode.ManyPools() {
			o.Labels = nil
		}
		o.Spec = corev1.PodSpec{NodeName: o.Spec.NodeName, HostNetwork: o.Spec.HostNetwork}
		o.Status = corev1.PodStatus{Phase: o.Status.Phase, PodIPs: o.Status.PodIPs, Conditions: o.Status.Conditions, ContainerStatuses: o.Status.ContainerStatuses}
	case *ciliumv2.CiliumNode:
		o.Status = ciliumv2.NodeStatus{IPAM: o.Status.IPAM}
	case *corev1.Node:
		o.Spec = corev1.NodeSpec{Taints: o.Spec.Taints, PodCIDR: o.Spec.PodCIDR, PodCIDRs: o.Spec.PodCIDRs, Unschedulable: o.Spec.Unschedulable}
		o.Status = corev1.NodeStatus{Addresses: o.Status.Addresses, Conditions: o.Status.Conditions}
	}
	return obj, nil
}

// Unreadable explains a failed watch.
func (w *Followed) Unreadable(err error) error {
	if errors.As(err, &clusterread.UnclearError{}) {
		return err
	}
	return fmt.Errorf("cannot watch the cluster at %s: %w", w.host, err)
}

// List lists objects from the cache, which knows no fields and no pages. The cluster's state leaves
// out the pods that need no address.
func (w *Followed) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	o := client.ListOptions{}
	o.ApplyOptions(opts)
	err := w.Watched.List(ctx, list, &client.ListOptions{Namespace: o.Namespace, LabelSelector: o.LabelSelector})
	list.SetContinue("") // a cache says that more may come
	if unwatched := (*cache.ErrResourceNotCached)(nil); errors.As(err, &unwatched) {
		return nil
	}
	return err
}

// Cluster returns the state that the watches have delivered so far.
func (w *Followed) Cluster(ctx context.Context) (*Cluster, error) {
	s, err := w.reader.Read(ctx)
	if err != nil {
		return nil, w.Unreadable(err)
	}
	return New(s, w.operator), nil
}
