package addressmap

import (
	"context"
	"errors"
	"fmt"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	ciliumv2alpha1 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/audit/clusterread"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cli"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cluster"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

const (
	// lowestPause is the minimum time between two maps: changes in between are drawn together.
	// pauseFactor keeps a large cluster from taking more than a fifth of a processor.
	lowestPause = 250 * time.Millisecond
	pauseFactor = 4
	// problemFor is the time that a failed watch is shown. A failing watch fails again within 30 s,
	// client-go's longest back-off.
	problemFor = 45 * time.Second
	// pingEvery is the interval of checks that the API server responds: watches report no error
	// while a connection is refused (client-go v0.36, tools/cache/reflector.go). pingTime is the
	// timeout.
	pingEvery, pingTime = 5 * time.Second, 5 * time.Second
)

// watched is a cluster followed with watches. As a reader it has the objects that the watches have
// delivered so far, and none of kinds without a watch.
type watched struct {
	*cluster.Watched
	client   client.Client
	host     string
	operator clusterread.Operator
	reader   clusterread.Reader
}

// watchCluster returns once everything has been read. The watches end with ctx.
func watchCluster(ctx context.Context, e *cli.Env) (*watched, error) {
	config, err := e.Config()
	if err != nil {
		return nil, err
	}
	c, err := e.Client()
	if err != nil {
		return nil, err
	}
	operator, err := e.FindOperator(ctx)
	if err != nil {
		return nil, err
	}
	namespace, selector, err := e.Agents(operator)
	if err != nil {
		return nil, err
	}
	w := &watched{client: c, host: config.Host, operator: operator}
	w.reader = clusterread.Reader{Client: w, AgentNamespace: namespace, AgentSelector: selector, Mode: operator.Mode}
	kinds := []client.Object{&corev1.Pod{}, &ciliumv2.CiliumNode{}, &v1alpha1.PodIPBlock{}, &v1alpha1.PodIPPool{}, &corev1.Node{}}
	if operator.Mode.ManyPools() {
		kinds = append(kinds, &corev1.Namespace{})
		picking := ciliumv2alpha1.SchemeGroupVersion.WithKind("CiliumPodIPPool").GroupKind()
		if _, err := c.RESTMapper().RESTMapping(picking); err == nil { // a cluster may do without
			kinds = append(kinds, &ciliumv2alpha1.CiliumPodIPPool{})
		}
	}
	w.Watched, err = cluster.Watch(ctx, config, cache.Options{
		Scheme: c.Scheme(), Mapper: c.RESTMapper(),
		ReaderFailOnMissingInformer:  true,
		DefaultUnsafeDisableDeepCopy: ptr.To(true),
		DefaultTransform:             w.slim,
	}, kinds...)
	switch {
	case meta.IsNoMatchError(err):
		return nil, e.CannotRead(err)
	case err != nil:
		return nil, w.unreadable(err)
	}
	select {
	case err := <-w.Failed:
		return nil, w.unreadable(err)
	case <-w.Synced:
		return w, ctx.Err()
	}
}

// slim drops fields that maps do not need before an object is cached. Labels select agents, and the
// Cilium pools of pods.
func (w *watched) slim(obj any) (any, error) {
	if o, ok := obj.(metav1.Object); ok {
		o.SetManagedFields(nil)
	}
	switch o := obj.(type) {
	case *corev1.Pod:
		o.Annotations, o.OwnerReferences = state.KeepPoolRequests(o.Annotations), nil
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

func (w *watched) unreadable(err error) error {
	return fmt.Errorf("cannot watch the cluster at %s: %w", w.host, err)
}

// List lists objects from the cache, which knows no fields and no pages. The cluster's state leaves
// out the pods that need no address.
func (w *watched) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	o := client.ListOptions{}
	o.ApplyOptions(opts)
	err := w.Watched.List(ctx, list, &client.ListOptions{Namespace: o.Namespace, LabelSelector: o.LabelSelector})
	list.SetContinue("") // a cache says that more may come
	if unwatched := (*cache.ErrResourceNotCached)(nil); errors.As(err, &unwatched) {
		return nil
	}
	return err
}

// cluster returns the state that the watches have delivered so far.
func (w *watched) cluster(ctx context.Context) (*cluster.Cluster, error) {
	s, err := w.reader.Read(ctx)
	if err != nil {
		return nil, w.unreadable(err)
	}
	return cluster.New(s, w.operator), nil
}

// ping sends the API server a minimal request periodically until ctx ends.
func (w *watched) ping(ctx context.Context) {
	for clusterread.Sleep(ctx, pingEvery) == nil {
		once, stop := context.WithTimeout(ctx, pingTime)
		err := w.client.List(once, &v1alpha1.PodIPPoolList{}, client.Limit(1))
		stop()
		if err != nil && ctx.Err() == nil {
			w.Fail(err)
		}
	}
}

// follow puts a map of the named cluster on the board whenever something has changed, until ctx ends.
func (w *watched) follow(ctx context.Context, board *Board, name string) {
	go w.ping(ctx)
	healed := time.NewTimer(problemFor)
	defer healed.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case err := <-w.Failed:
			board.Problem(w.unreadable(err).Error())
			healed.Reset(problemFor)
			continue
		case <-healed.C:
			board.Problem("")
			continue
		case <-w.Changed:
		}
		began := time.Now()
		c, err := w.cluster(ctx)
		if err != nil {
			w.Fail(err)
			continue
		}
		board.Put(mapOf(c, name))
		_ = clusterread.Sleep(ctx, max(lowestPause, pauseFactor*time.Since(began)))
	}
}
