package clusterread

import (
	"cmp"
	"net/netip"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumconfig"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumpool"
	"github.com/cilium-pool/cilium-pool-operator/pkg/exclude"
	"github.com/cilium-pool/cilium-pool-operator/pkg/frrconfig"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// Objects are the objects read from a cluster. Its lists need not be from the same instant: findings
// that only reflect a change during the read are gone in the next one (Persisting).
type Objects struct {
	// Time is when reading began.
	Time time.Time
	// Mode is how blocks are assigned to agents.
	Mode  ciliumnode.Mode
	Nodes []corev1.Node
	// CiliumNodes assign blocks to agents; in kubernetes mode, Nodes.
	CiliumNodes []CiliumNode
	// Pods may include some that need no address.
	Pods   []corev1.Pod
	Pools  []v1alpha1.PodIPPool
	Blocks []v1alpha1.PodIPBlock
	Pins   []v1alpha1.PodIPPin
	// Foreign: Pools and Blocks are not in the cluster, but show what another IPAM assigns.
	Foreign bool
	// ServiceCIDRs are the ranges of Services' addresses. API servers before Kubernetes 1.33
	// have none.
	ServiceCIDRs []networkingv1.ServiceCIDR
	// Services are the Services with addresses outside the ServiceCIDRs, and LoadBalancerPools the
	// ranges that Cilium takes such addresses from. A cluster may have no such kind.
	Services          []corev1.Service
	LoadBalancerPools []ciliumv2.CiliumLoadBalancerIPPool
	// Endpoints are the EndpointSlices of the API server. Reader leaves them out where they may not be read.
	Endpoints []discoveryv1.EndpointSlice
	// Neighbors are the addresses that others give out beside the operator, which withholds none of them.
	Neighbors exclude.Set
	// Agents are the Cilium agents' own pods.
	Agents []corev1.Pod
	// CiliumConfig is how the agents are configured; nil: it was not requested.
	CiliumConfig *ciliumconfig.Config
	// Namespaces and CiliumPools are set if the caller requests the Cilium pools that
	// pods request.
	Namespaces  []corev1.Namespace
	CiliumPools []*ciliumpool.View
	// Routes are the FRRConfigurations from which frr-k8s announces blocks; nil: they were not
	// requested, or may not be read.
	Routes *state.FRRConfigurations
	// RoutesLeft are FRRConfigurations of the operator that it does not maintain.
	RoutesLeft []types.NamespacedName
	// RouteFaults are the reports of frr-k8s about a fault.
	RouteFaults []frrconfig.Report
	// Unread are the kinds that may not be read, in the plural, with a Lenient Reader.
	Unread []string
	// Leader is the operator that leads; zero: it was not requested.
	Leader Leader
	// RoutesUnread are the kinds of frr-k8s that may not be read, in the plural.
	RoutesUnread []string
}

// CiliumNode is a CiliumNode, or a Node in its place, and when it changed, as far as known.
type CiliumNode struct {
	*ciliumnode.View
	// ReleaseSince is since when entries of status.ipam.release-ips have existed, at the
	// latest. An entry that is not in it may be new.
	ReleaseSince map[netip.Addr]time.Time
	// Changed is the last change, if the object says when that was: only if the API server
	// tracks its fields, which the operator ends unless it runs with --keep-managed-fields.
	Changed time.Time
	// SeenSince is the time of the first of several snapshots that show this version. Zero:
	// there is one.
	SeenSince time.Time
}

// Undated counts the CiliumNodes with a draining block or a release entry that do not say when they
// changed.
func (s *Objects) Undated() int {
	drains := map[string]bool{}
	for i := range s.Blocks {
		if meta.IsStatusConditionTrue(s.Blocks[i].Status.Conditions, v1alpha1.BlockDraining) {
			drains[s.Blocks[i].Spec.NodeName] = true
		}
	}
	n := 0
	for _, cn := range s.CiliumNodes {
		if cn.Changed.IsZero() && (drains[cn.Name] || len(cn.Release) > 0) && (cn.Addresses != nil || !cn.BlockAssignment.SingleBlock) {
			n++
		}
	}
	return n
}

// DateBackTo dates the release entries, in any state, and the versions of CiliumNodes that an earlier
// reading also shows back to that reading. A Lease renewed since then has a leader, whatever the clock here says.
func (s *Objects) DateBackTo(earlier *Objects) {
	if s.Leader.Name != "" && s.Leader.Renewed.After(earlier.Leader.Renewed) {
		s.Leader.Problem = ""
	}
	byName := make(map[string]CiliumNode, len(earlier.CiliumNodes))
	for _, cn := range earlier.CiliumNodes {
		byName[cn.Name] = cn
	}
	for i := range s.CiliumNodes {
		cn := &s.CiliumNodes[i]
		old, ok := byName[cn.Name]
		if !ok || old.UID != cn.UID {
			continue
		}
		if cn.ResourceVersion == old.ResourceVersion {
			cn.SeenSince = cmp.Or(old.SeenSince, earlier.Time)
		}
		for addr := range cn.Release {
			if _, stood := old.Release[addr]; stood {
				cn.setFirstSeen(addr, old.firstSeen(addr, earlier.Time))
			}
		}
	}
}

// firstSeen returns the time of the first reading that shows the entry of addr, or seen if that is earlier.
func (cn *CiliumNode) firstSeen(addr netip.Addr, seen time.Time) time.Time {
	if first, ok := cn.ReleaseSince[addr]; ok && first.Before(seen) {
		return first
	}
	return seen
}

func (cn *CiliumNode) setFirstSeen(addr netip.Addr, first time.Time) {
	if cn.ReleaseSince == nil {
		cn.ReleaseSince = map[netip.Addr]time.Time{}
	}
	cn.ReleaseSince[addr] = cn.firstSeen(addr, first)
}
