// Package clusterread reads the objects of a cluster, and the operator's mode and settings from them.
// It describes the addresses that another IPAM assigns as PodIPPools and PodIPBlocks, so that all
// tools for these work beside any Cilium. It only reads.
package clusterread

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	ciliumv2alpha1 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/apiclient"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumconfig"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumpool"
	"github.com/cilium-pool/cilium-pool-operator/pkg/frrconfig"
	"github.com/cilium-pool/cilium-pool-operator/pkg/importer"
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
	// Observe: describe what another IPAM assigns, in this mode. Live then reads ConfigMaps; nil: Client does.
	Observe bool
	Live    client.Reader
	// FRRNamespace has the FRRConfigurations that announce blocks; "": none do.
	FRRNamespace string
	// Lease is the operator's; zero: read no leader. With LeaseOptional it need not exist.
	Lease         client.ObjectKey
	LeaseOptional bool
	// Lenient: leave out kinds that may not be read, except the operator's own.
	Lenient bool
	// WithoutPods: list no pods but the agents'.
	WithoutPods bool
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
func (r *Reader) Read(ctx context.Context) (*Objects, error) {
	now := r.Now
	if now == nil {
		now = time.Now
	}
	s := &Objects{Time: now(), Mode: r.Mode}
	l := &lists{Reader: r, ctx: ctx}
	l.readLeader(s)
	views := ciliumnode.NewViewReader(r.Mode)
	if !r.WithoutPods {
		each(l, "pods", &corev1.PodList{}, func(p *corev1.Pod) { s.Pods = append(s.Pods, r.stripPod(p)) },
			client.MatchingFieldsSelector{Selector: state.PodFields()})
	}
	each(l, "CiliumNodes", &ciliumv2.CiliumNodeList{}, func(cn *ciliumv2.CiliumNode) {
		if v := views.CiliumNode(cn); v != nil {
			changed, release := changes(cn)
			s.CiliumNodes = append(s.CiliumNodes, CiliumNode{View: v, ReleaseSince: release, Changed: changed})
		}
	})
	s.Routes = l.readRoutes(s)
	l.readRouteFaults(s)
	eachOwn(l, "PodIPBlocks", &v1alpha1.PodIPBlockList{}, func(b *v1alpha1.PodIPBlock) { s.Blocks = append(s.Blocks, *b) })
	eachServed(l, "PodIPPins", &v1alpha1.PodIPPinList{}, func(p *v1alpha1.PodIPPin) { s.Pins = append(s.Pins, *p) })
	eachOwn(l, "PodIPPools", &v1alpha1.PodIPPoolList{}, func(p *v1alpha1.PodIPPool) { s.Pools = append(s.Pools, *p) })
	each(l, "Nodes", &corev1.NodeList{}, func(n *corev1.Node) {
		s.Nodes = append(s.Nodes, stripNode(n))
		if v := views.Node(n); v != nil {
			s.CiliumNodes = append(s.CiliumNodes, CiliumNode{View: v})
		}
	})
	if s.Routes != nil {
		for i := range s.Nodes {
			s.Routes.SetNode(s.Nodes[i].Name, &s.Nodes[i])
		}
	}
	l.readServices(s)
	if r.Mode.ManyPools() {
		l.readRequests(s)
	}
	if (r.Config || r.Observe) && l.err == nil {
		s.CiliumConfig, l.err = ciliumconfig.Read(ctx, l.live(), r.AgentNamespace, nil)
	}
	each(l, "agents", &corev1.PodList{}, func(p *corev1.Pod) { s.Agents = append(s.Agents, *p) },
		client.InNamespace(r.AgentNamespace), client.MatchingLabelsSelector{Selector: r.AgentSelector})
	if r.Observe && l.err == nil {
		l.err = l.describe(s)
	}
	if l.err != nil {
		return nil, l.err
	}
	s.Unread = l.unread
	return s, nil
}

// live reads objects that Client may not have.
func (r *Reader) live() client.Reader {
	if r.Live != nil {
		return r.Live
	}
	return r.Client
}

// describe describes what another IPAM assigns.
func (l *lists) describe(s *Objects) error {
	mode, err := ModeOf(s.CiliumConfig, l.AgentNamespace)
	if err != nil {
		return err
	}
	if mode != l.Mode {
		return fmt.Errorf("ConfigMap %s/%s changed ipam from %s to %s while it was read: try again", l.AgentNamespace, ciliumconfig.Name, l.Mode, mode)
	}
	data := map[string]any{}
	for k, v := range s.CiliumConfig.Data {
		data[k] = v
	}
	l.source("v1", "ConfigMap", ciliumconfig.Name, "data", data)
	if mode.ManyPools() {
		if err := l.describePodIPPools(); err != nil {
			return err
		}
	}
	if mode == ciliumnode.Kubernetes {
		found := &corev1.ConfigMap{}
		err := l.live().Get(l.ctx, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: "kubeadm-config"}, found)
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
			return fmt.Errorf("reading ConfigMap kube-system/kubeadm-config: %w", err)
		}
		l.source("v1", "ConfigMap", "kubeadm-config", "data", map[string]any{"ClusterConfiguration": found.Data["ClusterConfiguration"]})
	}
	return ReplaceByForeign(s, l.sources)
}

// source adds a source of ranges, with one field.
func (l *lists) source(version, kind, name, field string, content map[string]any) {
	l.sources = append(l.sources, importer.FromContent("the cluster", map[string]any{
		"apiVersion": version, "kind": kind, "metadata": map[string]any{"name": name}, field: content,
	})...)
}

// readRoutes reads FRRConfigurations, also old ones of the operator in other namespaces. A cluster
// may not serve them, and few users may read them: then it returns nil.
func (l *lists) readRoutes(s *Objects) *state.FRRConfigurations {
	if l.err != nil || l.Observe {
		return nil
	}
	routes := state.NewFRRConfigurations()
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(frrconfig.Kind)
	each(l, "FRRConfigurations", list, func(o *unstructured.Unstructured) {
		v := frrconfig.Read(o)
		if o.GetNamespace() == l.FRRNamespace {
			routes.Set(v)
		} else if v.Ours {
			s.RoutesLeft = append(s.RoutesLeft, client.ObjectKeyFromObject(o))
		}
	})
	switch {
	case meta.IsNoMatchError(l.err), apierrors.IsNotFound(l.err):
		l.err = nil
	case apierrors.IsForbidden(l.err):
		l.err = nil
		if l.FRRNamespace != "" {
			s.RoutesUnread = append(s.RoutesUnread, "FRRConfigurations")
		}
		return nil
	default:
		routes.SetKnown()
	}
	if l.FRRNamespace == "" {
		return nil
	}
	return routes
}

// readRouteFaults reads the faults that frr-k8s reports. It may be too old for a kind, and few users may read them.
func (l *lists) readRouteFaults(s *Objects) {
	if l.Observe || l.FRRNamespace == "" {
		return
	}
	for _, kind := range frrconfig.ReportKinds() {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind)
		each(l, kind.Kind+"s", list, func(o *unstructured.Unstructured) {
			if report := frrconfig.ReadReport(o); report.Fault != "" {
				s.RouteFaults = append(s.RouteFaults, report)
			}
		}, client.InNamespace(l.FRRNamespace))
		if apierrors.IsForbidden(l.err) {
			s.RoutesUnread = append(s.RoutesUnread, kind.Kind+"s")
			l.err = nil
		} else if meta.IsNoMatchError(l.err) || apierrors.IsNotFound(l.err) {
			l.err = nil
		}
	}
}

// readRequests reads the objects that select the Cilium pool of pods. A cluster may have no
// CiliumPodIPPools.
func (l *lists) readRequests(s *Objects) {
	each(l, "namespaces", &corev1.NamespaceList{}, func(n *corev1.Namespace) {
		s.Namespaces = append(s.Namespaces, corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: n.Name, Labels: n.Labels, Annotations: state.KeepPoolRequests(n.Annotations),
		}})
	})
	eachServed(l, "CiliumPodIPPools", &ciliumv2alpha1.CiliumPodIPPoolList{}, func(p *ciliumv2alpha1.CiliumPodIPPool) {
		s.CiliumPools = append(s.CiliumPools, ciliumpool.Read(p))
	})
}

// describePodIPPools adds CiliumPodIPPools to the sources, with all fields of the version served.
func (l *lists) describePodIPPools() error {
	for _, kind := range apiclient.PodIPPoolKinds() {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind)
		if err := l.live().List(l.ctx, list); err != nil && !meta.IsNoMatchError(err) {
			return fmt.Errorf("listing CiliumPodIPPools: %w", err)
		}
		for _, o := range list.Items {
			spec, _ := o.Object["spec"].(map[string]any)
			l.source(kind.GroupVersion().String(), kind.Kind, o.GetName(), "spec", spec)
		}
		if len(list.Items) > 0 {
			return nil
		}
	}
	return nil
}

// lists reads one list after the other, up to the first error.
type lists struct {
	*Reader
	ctx context.Context
	err error
	// unread are the kinds that may not be read, with a Lenient Reader.
	unread []string
	// sources name the ranges of another IPAM.
	sources []importer.Object
}

// eachOwn is eachPage for a kind of this operator, which an observer does without.
func eachOwn[O client.Object](l *lists, kind string, empty client.ObjectList, take func(O)) {
	if l.Observe {
		eachServed(l, kind, empty, take)
		return
	}
	eachPage(l, kind, empty, take)
}

// eachServed is each for a kind that the API server may not serve.
func eachServed[O client.Object](l *lists, kind string, empty client.ObjectList, take func(O)) {
	if l.err != nil {
		return
	}
	if each(l, kind, empty, take); meta.IsNoMatchError(l.err) {
		l.err = nil
	}
}

// eachReadable is each for a kind that may not be served, or not be readable.
func eachReadable[O client.Object](l *lists, kind string, empty client.ObjectList, take func(O), opts ...client.ListOption) {
	if l.err != nil {
		return
	}
	each(l, kind, empty, take, opts...)
	if meta.IsNoMatchError(l.err) || apierrors.IsNotFound(l.err) || apierrors.IsForbidden(l.err) {
		l.err = nil
	}
}

// each is eachPage for a kind that a Lenient Reader leaves out where it may not be read.
func each[O client.Object](l *lists, kind string, empty client.ObjectList, take func(O), opts ...client.ListOption) {
	if l.err != nil {
		return
	}
	eachPage(l, kind, empty, take, opts...)
	if l.Lenient && apierrors.IsForbidden(l.err) {
		l.unread = append(l.unread, kind)
		l.err = nil
	}
}

// eachPage reads all pages of a list. An expired continue token costs only the consistency of the list:
// the API server sends another.
func eachPage[O client.Object](l *lists, kind string, empty client.ObjectList, take func(O), opts ...client.ListOption) {
	for next, n := "", 0; l.err == nil; {
		page := empty.DeepCopyObject().(client.ObjectList) // each its own: take keeps pointers into it
		err := l.Client.List(l.ctx, page, append(slices.Clone(opts), client.Limit(cmp.Or(l.PageSize, 500)), client.Continue(next))...)
		if token, ok := goOn(err); ok {
			next = token
			continue
		}
		if err != nil {
			l.err = fmt.Errorf("listing %s: %w", kind, err)
			return
		}
		l.err = meta.EachListItem(page, func(o runtime.Object) error {
			n++
			take(o.(O))
			return nil
		})
		if l.Progress != nil {
			l.Progress(kind, n)
		}
		if next = page.GetContinue(); next == "" {
			return
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
		out.GenerateName = p.GenerateName // see state.BoundPod.Named
	}
	if len(p.Status.PodIPs) == 0 { // see state.Cluster.Waiting
		out.OwnerReferences = p.OwnerReferences
		out.Spec.Tolerations = p.Spec.Tolerations
	}
	return out
}

func stripNode(n *corev1.Node) corev1.Node {
	capacity := state.KeepResources(n.Status.Capacity)
	allocatable := state.KeepResources(n.Status.Allocatable)
	return corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.Name, UID: n.UID, CreationTimestamp: n.CreationTimestamp, Labels: n.Labels, Annotations: n.Annotations},
		Spec:       corev1.NodeSpec{Taints: n.Spec.Taints, PodCIDR: n.Spec.PodCIDR, PodCIDRs: n.Spec.PodCIDRs, Unschedulable: n.Spec.Unschedulable},
		Status:     corev1.NodeStatus{Conditions: n.Status.Conditions, Addresses: n.Status.Addresses, Capacity: capacity, Allocatable: allocatable},
	}
}

// keepRequests reduces a pod's containers to a single one that requests as many addresses
// as all of them; nil: they request none.
func keepRequests(spec *corev1.PodSpec) []corev1.Container {
	resources := corev1.ResourceList{}
	keep := func(pool string, requests [2]uint16) {
		for f, n := range requests {
			if n > 0 {
				resources[state.OfferResource(ipalloc.Family(f), pool)] = *resource.NewQuantity(int64(n), resource.DecimalSI)
			}
		}
	}
	ofDefault, ofPools := state.AddressRequests(spec)
	keep("", ofDefault)
	for pool, requests := range ofPools {
		keep(pool, requests)
	}
	if len(resources) == 0 {
		return nil
	}
	return []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: resources}}}
}
