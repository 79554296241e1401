package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	ipamoption "github.com/cilium/cilium/pkg/ipam/option"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/cilium/cilium/pkg/node/addressing"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant"
)

// recorder records every version of the objects that are judged, with its own watches.
type recorder struct {
	client client.WithWatch
	begin  time.Time
	// onPod is called for each version of a pod.
	onPod func(name string, p podSeen, gone bool)

	mu      sync.Mutex
	history []change
	// known are the versions of the existing objects, by kind.
	known map[string]map[string]uint64
}

// kind is a kind that is watched.
type kind struct {
	name string
	list func() client.ObjectList
	opts []client.ListOption
	see  func(client.Object) (change, error)
}

func kinds() []kind {
	return []kind{
		{"pods", func() client.ObjectList { return &corev1.PodList{} }, []client.ListOption{client.InNamespace(metav1.NamespaceDefault)}, seePod},
		{"nodes", func() client.ObjectList { return &corev1.NodeList{} }, nil, seeNode},
		{"CiliumNodes", func() client.ObjectList { return &ciliumv2.CiliumNodeList{} }, nil, seeAddresses},
		{"blocks", func() client.ObjectList { return &v1alpha1.PodIPBlockList{} }, nil, seeBlock},
		{"pools", func() client.ObjectList { return &v1alpha1.PodIPPoolList{} }, nil, seePool},
	}
}

// run watches until ctx ends. A missed version is an error.
func (r *recorder) run(ctx context.Context, k kind) error {
	list := k.list()
	if err := r.client.List(ctx, list, k.opts...); err != nil {
		return err
	}
	if err := meta.EachListItem(list, func(o runtime.Object) error { return r.take(k, o.(client.Object), false) }); err != nil {
		return err
	}
	each := func(t watch.EventType, o client.Object) error {
		if t == watch.Bookmark {
			return nil
		}
		return r.take(k, o, t == watch.Deleted)
	}
	from := list.GetResourceVersion()
	for ctx.Err() == nil {
		var err error
		if from, err = invariant.Follow(ctx, r.client, k.list(), from, each, k.opts...); err != nil {
			return fmt.Errorf("watch %s: %w", k.name, err)
		}
	}
	return nil
}

func (r *recorder) take(k kind, o client.Object, gone bool) error {
	c, err := k.see(o)
	if err != nil {
		return fmt.Errorf("%s %s: %w", k.name, o.GetName(), err)
	}
	if c.version, err = strconv.ParseUint(o.GetResourceVersion(), 10, 64); err != nil {
		return err
	}
	c.name, c.gone, c.at = o.GetName(), gone, time.Since(r.begin)
	r.mu.Lock()
	r.history = append(r.history, c)
	if r.known[k.name] == nil {
		r.known[k.name] = map[string]uint64{}
	}
	r.known[k.name][c.name] = c.version
	if gone {
		delete(r.known[k.name], c.name)
	}
	r.mu.Unlock()
	if c.pod != nil {
		r.onPod(c.name, *c.pod, gone)
	}
	return nil
}

// caughtUp returns nil once everything that exists has been seen. Call it when nothing
// changes.
func (r *recorder) caughtUp(ctx context.Context) error {
	for _, k := range kinds() {
		list := k.list()
		if err := r.client.List(ctx, list, k.opts...); err != nil {
			return err
		}
		there := map[string]uint64{}
		if err := meta.EachListItem(list, func(o runtime.Object) (err error) {
			object := o.(client.Object)
			there[object.GetName()], err = strconv.ParseUint(object.GetResourceVersion(), 10, 64)
			return err
		}); err != nil {
			return err
		}
		r.mu.Lock()
		same := maps.Equal(there, r.known[k.name])
		r.mu.Unlock()
		if !same {
			return fmt.Errorf("not all %s have been seen", k.name)
		}
	}
	return nil
}

// changes returns the changes so far.
func (r *recorder) changes() []change {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.history)
}

func seePod(o client.Object) (change, error) {
	pod := o.(*corev1.Pod)
	seen := &podSeen{
		node: pod.Spec.NodeName, zone: pod.Spec.NodeSelector[corev1.LabelTopologyZone], running: pod.Status.Phase == corev1.PodRunning,
		leaving: pod.DeletionTimestamp != nil, ended: pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed,
	}
	for _, c := range pod.Spec.Containers {
		quantity := c.Resources.Requests[v1alpha1.IPv4Resource]
		seen.requests += int(quantity.Value())
	}
	if pod.Status.PodIP == "" {
		return change{pod: seen}, nil
	}
	var err error
	seen.address, err = netip.ParseAddr(pod.Status.PodIP)
	return change{pod: seen}, err
}

func seeNode(o client.Object) (change, error) {
	node := o.(*corev1.Node)
	return change{node: &nodeSeen{
		zone: node.Labels[corev1.LabelTopologyZone], cordoned: node.Spec.Unschedulable || len(node.Spec.Taints) > 0,
		offer: state.OfferIn(node.Status.Allocatable)[ipalloc.IPv4],
	}}, nil
}

// seeAddresses leaves out the agent's own addresses, which its report names without a
// namespace, and which the CiliumNode names before there is a report.
func seeAddresses(o client.Object) (change, error) {
	cn := o.(*ciliumv2.CiliumNode)
	own := map[string]bool{cn.Spec.HealthAddressing.IPv4: true}
	for _, a := range cn.Spec.Addresses {
		own[a.IP] = own[a.IP] || a.Type == addressing.NodeCiliumInternalIP
	}
	for a, use := range cn.Status.IPAM.Used {
		own[a] = own[a] || !strings.Contains(use.Owner, "/")
	}
	seen := &addressesSeen{}
	for key, entry := range cn.Spec.IPAM.Pool {
		if own[key] || entry.Owner != "" {
			continue
		}
		a, err := netip.ParseAddr(key)
		if err != nil {
			return change{}, err
		}
		switch cn.Status.IPAM.ReleaseIPs[key] {
		case ipamoption.IPAMMarkForRelease, ipamoption.IPAMReadyForRelease, ipamoption.IPAMReleased:
			seen.leaving = append(seen.leaving, a)
		default:
			seen.free = append(seen.free, a)
		}
	}
	return change{addresses: seen}, nil
}

func seeBlock(o client.Object) (change, error) {
	block := o.(*v1alpha1.PodIPBlock)
	cidr, err := netip.ParsePrefix(block.Spec.CIDR)
	cools := meta.IsStatusConditionTrue(block.Status.Conditions, v1alpha1.BlockCoolingDown)
	return change{block: &blockSeen{
		cidr: cidr, cools: cools, drains: !cools && meta.IsStatusConditionTrue(block.Status.Conditions, v1alpha1.BlockDraining),
	}}, err
}

func seePool(o client.Object) (change, error) {
	pool := o.(*v1alpha1.PodIPPool)
	if pool.Spec.IPv4 == nil || pool.Spec.NodeSelector == nil {
		return change{}, errors.New("it has no IPv4 CIDRs, or no zone")
	}
	seen := &poolSeen{zone: pool.Spec.NodeSelector.MatchLabels[corev1.LabelTopologyZone], blockBits: int(pool.Spec.IPv4.BlockSize)}
	for _, c := range pool.Spec.IPv4.CIDRs {
		if c.AllocationPolicy != "" && c.AllocationPolicy != v1alpha1.AllocationAllocate {
			continue
		}
		cidr, err := netip.ParsePrefix(c.CIDR)
		if err != nil {
			return change{}, err
		}
		seen.cidrs = append(seen.cidrs, cidr)
	}
	return change{pool: seen}, nil
}
