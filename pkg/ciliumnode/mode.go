package ciliumnode

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Mode is Cilium's IPAM mode (pkg/ipam/option/option.go, v1.20.1). It decides how
// blocks are assigned to an agent and how they come back. The controllers never ask
// which mode it is; the audit and the plugin's migration do. The zero value is CRD.
type Mode string

// Modes of Cilium that this operator serves.
const (
	// CRD assigns addresses in spec.ipam.pool; the agent releases each by a
	// handshake.
	CRD Mode = "crd"
	// MultiPool assigns whole blocks in spec.ipam.pools.allocated; the agent removes unneeded ones
	// from that list.
	MultiPool Mode = "multi-pool"
	// DelegatedPlugin assigns whole blocks in spec.ipam.pools.allocated to this project's node agent, which reports all
	// addresses in use and removes closed blocks.
	DelegatedPlugin Mode = "delegated-plugin"
	// Kubernetes assigns one block per family in an annotation of the Node, before
	// the agent starts; the agent keeps it for the lifetime of the Node.
	Kubernetes Mode = "kubernetes"
)

// ClusterPool assigns podCIDRs in the CiliumNode, by cilium-operator. This operator only observes it.
const ClusterPool Mode = "cluster-pool"

// String returns the mode's name.
func (m Mode) String() string { return cmp.Or(string(m), string(CRD)) }

// Modes returns all modes that this operator serves.
func Modes() []Mode { return []Mode{CRD, MultiPool, Kubernetes, DelegatedPlugin} }

// ParseMode reads the name of a mode, as Cilium's values have it in ipam.mode. The error lists the
// modes.
func ParseMode(name string) (Mode, error) {
	if m := Mode(name); slices.Contains(Modes(), m) {
		return m, nil
	}
	names := make([]string, 0, len(Modes()))
	for _, m := range Modes() {
		names = append(names, string(m))
	}
	return "", errors.New("must be one of " + strings.Join(names, ", "))
}

// ListField is the name of the field that lists a node's blocks.
func (m Mode) ListField() string {
	if m.ManyPools() {
		return "pools.allocated"
	}
	return "podCIDRs"
}

// ManyPools reports whether agents have several Cilium pools for pods and namespaces to choose
// from.
func (m Mode) ManyPools() bool { return m == MultiPool || m == DelegatedPlugin }

// RoutesByCiliumNode reports whether nodes learn the blocks of others from CiliumNodes alone: agents that do not allocate from
// blocks do not publish them elsewhere.
func (m Mode) RoutesByCiliumNode() bool { return m == CRD || m == "" || m == DelegatedPlugin }

// WholeBlocks reports whether an agent allocates every address of a block, except its
// first and last, so that no address can be withheld.
func (m Mode) WholeBlocks() bool { return m != CRD && m != "" }

// AllocationObject is an object of the kind that assigns blocks to agents: a
// CiliumNode, or the Node itself, which View and Keep then read.
func (m Mode) AllocationObject() client.Object { return m.object("") }

func (m Mode) object(name string) client.Object {
	if m == Kubernetes {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	return &ciliumv2.CiliumNode{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// Resource is the resource name of that kind.
func (m Mode) Resource() (kind schema.GroupVersionKind, plural string) {
	if m == Kubernetes {
		return corev1.SchemeGroupVersion.WithKind("Node"), "nodes"
	}
	return ciliumv2.SchemeGroupVersion.WithKind(ciliumv2.CNKindDefinition), ciliumv2.CNPluralName
}

// View reads a CiliumNode, or the object in its place, which must not be changed
// afterwards.
func (m Mode) View(obj client.Object) *View {
	if m == Kubernetes {
		return viewOfNode(obj, agentReport{})
	}
	cn, ok := obj.(*ciliumv2.CiliumNode)
	if !ok {
		cn = &ciliumv2.CiliumNode{}
	}
	switch m {
	case MultiPool:
		return viewOfPools(cn, readUsed(cn))
	case DelegatedPlugin:
		return viewOfNodeAgent(cn)
	case ClusterPool:
		return viewOfPodCIDRs(cn)
	default:
		return NewView(cn)
	}
}

// patch is the JSON merge patch that writes a change, conditional on the version in v, or nil if the
// object needs no change.
func (m Mode) patch(v *View, c Change) *patch {
	switch m {
	case MultiPool, DelegatedPlugin:
		return c.patchPools(v)
	case Kubernetes:
		return c.patchNode(v)
	}
	return c.patch(v)
}
