package clusterread

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	ciliumv2alpha1 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2alpha1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/audit"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumconfig"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumpool"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/exclude"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// Reader reads clusters.
type Reader struct {
	// Client must know Nodes, Pods, Services, ServiceCIDRs, CiliumNodes, CiliumLoadBalancerIPPools,
	// PodIPPools and PodIPBlocks; in multi-pool mode, Namespaces and CiliumPodIPPools.
	Client client.Reader
	// AgentNamespace and AgentSelector find the agents' pods.
	AgentNamespace string
	AgentSelector  labels.Selector
	// Mode is how agents are assigned their blocks.
	Mode ciliumnode.Mode
	// Config: read how the agents are configured too.
	Config bool
	// PageSize is the number of objects in one request. Zero: 500.
	PageSize int64
	// Progress, if set, receives the number of objects of a kind that have been read.
	Progress func(kind string, n int)
	// Now returns the time. Nil: time.Now.
	Now func() time.Time
}

// Read reads all objects for the audit, dependents first: an address was in a
// CiliumNode before a pod had it, and in a block before that. So the objects that a
// list refers to are in the lists after it.
func (r *Reader) Read(ctx context.Context) (*audit.Snapshot, error) {
	now := r.Now
	if now == nil {
		now = time.Now
	}
	s := &audit.Snapshot{Time: now(), Mode: r.Mode}
	err := list(ctx, r, "pods", func(l *corev1.PodList) int {
		for i := range l.Items {
			s.Pods = append(s.Pods, r.stripPod(&l.Items[i]))
		}
		return len(l.Items)
	}, client.MatchingFieldsSelector{Selector: state.PodFields()})
	if err != nil {
		return nil, err
	}
	views := ciliumnode.NewViews(r.Mode)
	err = list(ctx, r, "CiliumNodes", func(l *ciliumv2.CiliumNodeList) int {
		for i := range l.Items {
			if v := views.CiliumNode(&l.Items[i]); v != nil {
				changed, since := changes(&l.Items[i])
				s.CiliumNodes = append(s.CiliumNodes, audit.CiliumNode{View: v, ReleaseSince: since, Changed: changed})
			}
		}
		return len(l.Items)
	})
	if err != nil {
		return nil, err
	}
	return s, r.readRest(ctx, s, views)
}

func (r *Reader) readRest(ctx context.Context, s *audit.Snapshot, views *ciliumnode.Views) error {
	err := list(ctx, r, "PodIPBlocks", func(l *v1alpha1.PodIPBlockList) int {
		s.Blocks = append(s.Blocks, l.Items...)
		return len(l.Items)
	})
	if err != nil {
		return err
	}
	err = list(ctx, r, "PodIPPools", func(l *v1alpha1.PodIPPoolList) int {
		s.Pools = append(s.Pools, l.Items...)
		return len(l.Items)
	})
	if err != nil {
		return err
	}
	err = list(ctx, r, "Nodes", func(l *corev1.NodeList) int {
		for i := range l.Items {
			s.Nodes = append(s.Nodes, stripNode(&l.Items[i]))
			if v := views.Node(&l.Items[i]); v != nil {
				s.CiliumNodes = append(s.CiliumNodes, audit.CiliumNode{View: v})
			}
		}
		return len(l.Items)
	})
	if err != nil {
		return err
	}
	if err := r.readServices(ctx, s); err != nil {
		return err
	}
	if err := r.readAsks(ctx, s); err != nil {
		return err
	}
	if r.Config {
		if s.CiliumConfig, err = ciliumconfig.Read(ctx, r.Client, r.AgentNamespace, nil); err != nil {
			return err
		}
	}
	return list(ctx, r, "agents", func(l *corev1.PodList) int {
		s.Agents = append(s.Agents, l.Items...)
		return len(l.Items)
	}, client.InNamespace(r.AgentNamespace), client.MatchingLabelsSelector{Selector: r.AgentSelector})
}

// readServices reads the addresses of Services, and where they come from. Clusters older than
// Kubernetes 1.33 serve no ServiceCIDRs, and CiliumLoadBalancerIPPools may be missing.
func (r *Reader) readServices(ctx context.Context, s *audit.Snapshot) error {
	err := list(ctx, r, "Services", func(l *corev1.ServiceList) int {
		for i := range l.Items {
			if svc := &l.Items[i]; len(exclude.OfService(svc)) > 0 {
				s.Services = append(s.Services, corev1.Service{
					ObjectMeta: metav1.ObjectMeta{Namespace: svc.Namespace, Name: svc.Name},
					Spec:       corev1.ServiceSpec{ExternalIPs: svc.Spec.ExternalIPs, LoadBalancerIP: svc.Spec.LoadBalancerIP},
					Status:     svc.Status,
				})
			}
		}
		return len(l.Items)
	})
	if err != nil {
		return err
	}
	err = list(ctx, r, "CiliumLoadBalancerIPPools", func(l *ciliumv2.CiliumLoadBalancerIPPoolList) int {
		s.LoadBalancerPools = append(s.LoadBalancerPools, l.Items...)
		return len(l.Items)
	})
	if err != nil && !meta.IsNoMatchError(err) {
		return err
	}
	err = list(ctx, r, "ServiceCIDRs", func(l *networkingv1.ServiceCIDRList) int {
		for i := range l.Items {
			s.ServiceCIDRs = append(s.ServiceCIDRs, networkingv1.ServiceCIDR{
				ObjectMeta: metav1.ObjectMeta{Name: l.Items[i].Name}, Spec: l.Items[i].Spec,
			})
		}
		return len(l.Items)
	})
	if meta.IsNoMatchError(err) {
		return nil
	}
	return err
}

// readAsks reads the objects that select the Cilium pool of pods. A cluster may have no
// CiliumPodIPPools.
func (r *Reader) readAsks(ctx context.Context, s *audit.Snapshot) error {
	if !r.Mode.ManyPools() {
		return nil
	}
	err := list(ctx, r, "namespaces", func(l *corev1.NamespaceList) int {
		for i := range l.Items {
			n := &l.Items[i]
			s.Namespaces = append(s.Namespaces, corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
				Name: n.Name, Labels: n.Labels, Annotations: state.KeepPoolRequests(n.Annotations),
			}})
		}
		return len(l.Items)
	})
	if err != nil {
		return err
	}
	err = list(ctx, r, "CiliumPodIPPools", func(l *ciliumv2alpha1.CiliumPodIPPoolList) int {
		for i := range l.Items {
			s.CiliumPools = append(s.CiliumPools, ciliumpool.Read(&l.Items[i]))
		}
		return len(l.Items)
	})
	if meta.IsNoMatchError(err) {
		return nil
	}
	return err
}

// list reads all pages of a list. An expired continue token costs only the consistency of the list:
// the API server sends another.
func list[T any, L interface {
	*T
	client.ObjectList
}](ctx context.Context, r *Reader, what string, take func(L) int, opts ...client.ListOption) error {
	size := r.PageSize
	if size == 0 {
		size = 500
	}
	next, n := "", 0
	for {
		page := L(new(T)) // each its own: take keeps pointers into it
		err := r.Client.List(ctx, page, append(slices.Clone(opts), client.Limit(size), client.Continue(next))...)
		if token, ok := goOn(err); ok {
			next = token
			continue
		}
		if err != nil {
			return fmt.Errorf("listing %s: %w", what, err)
		}
		n += take(page)
		if r.Progress != nil {
			r.Progress(what, n)
		}
		if next = page.GetContinue(); next == "" {
			return nil
		}
	}
}

// goOn is the token that continues an expired list.
func goOn(err error) (string, bool) {
	var status apierrors.APIStatus
	if !apierrors.IsResourceExpired(err) || !errors.As(err, &status) {
		return "", false
	}
	token := status.Status().Continue
	return token, token != ""
}

func (r *Reader) stripPod(p *corev1.Pod) corev1.Pod {
	out := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Namespace, Name: p.Name, CreationTimestamp: p.CreationTimestamp, DeletionTimestamp: p.DeletionTimestamp,
			Annotations: state.KeepPoolRequests(p.Annotations),
		},
		Spec:   corev1.PodSpec{NodeName: p.Spec.NodeName, HostNetwork: p.Spec.HostNetwork, Containers: keepRequests(&p.Spec)},
		Status: corev1.PodStatus{Phase: p.Status.Phase, PodIPs: p.Status.PodIPs, StartTime: p.Status.StartTime},
	}
	if r.Mode.ManyPools() {
		out.Labels = p.Labels
	}
	if len(p.Status.PodIPs) == 0 { // see state.Cluster.Waiting
		out.OwnerReferences, out.Spec.Tolerations = p.OwnerReferences, p.Spec.Tolerations
	}
	return out
}

func stripNode(n *corev1.Node) corev1.Node {
	capacity, allocatable := state.KeepResources(n.Status.Capacity), state.KeepResources(n.Status.Allocatable)
	return corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.Name, UID: n.UID, CreationTimestamp: n.CreationTimestamp, Labels: n.Labels, Annotations: n.Annotations},
		Spec:       corev1.NodeSpec{Taints: n.Spec.Taints, PodCIDR: n.Spec.PodCIDR, PodCIDRs: n.Spec.PodCIDRs, Unschedulable: n.Spec.Unschedulable},
		Status:     corev1.NodeStatus{Conditions: n.Status.Conditions, Addresses: n.Status.Addresses, Capacity: capacity, Allocatable: allocatable},
	}
}

// keepRequests reduces a pod's containers to a single one that requests as many addresses
// as all of them; nil: they request none.
func keepRequests(spec *corev1.PodSpec) []corev1.Container {
	kept := corev1.ResourceList{}
	for f, n := range state.AddressRequests(spec) {
		if n > 0 {
			kept[state.OfferResource(ipalloc.Family(f))] = *resource.NewQuantity(int64(n), resource.DecimalSI)
		}
	}
	if len(kept) == 0 {
		return nil
	}
	return []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: kept}}}
}
