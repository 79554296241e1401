package ciliumnode

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
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
	// Kubernetes assigns one block per family in an annotation of the Node, before
	// the agent starts; the agent keeps it for the lifetime of the Node.
	Kubernetes Mode = "kubernetes"
)

// String returns the mode's name.
func (m Mode) String() string { return cmp.Or(string(m), string(CRD)) }

// Modes returns all modes.
func Modes() []Mode { return []Mode{CRD, MultiPool, Kubernetes} }

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

// List is the name of the field that lists a node's blocks.
func (m Mode) List() string {
	if m == MultiPool {
		return "pools.allocated"
	}
	return "podCIDRs"
}

// ManyPools reports whether agents have several Cilium pools for pods and namespaces to choose
// from.
func (m Mode) ManyPools() bool { return m == MultiPool }

// WholeBlocks reports whether an agent allocates every address of a block, except its
// first and last, so that no address can be withheld.
func (m Mode) WholeBlocks() bool { return m == MultiPool || m == Kubernetes }

// AllocationObject is an object of the kind that assigns blocks to agents: a
// CiliumNode, or the Node itself, which View and Keep then read.
func (m Mode) AllocationObject() client.Object { return m.protocol().allocationObject("") }

// Resource is the resource name of that kind.
func (m Mode) Resource() (kind schema.GroupVersionKind, plural string) {
	return m.protocol().resource()
}

// makesCiliumNodes reports whether CiliumNodes assign blocks to agents, so that the
// operator creates and deletes them.
func (m Mode) makesCiliumNodes() bool {
	kind, _ := m.Resource()
	return kind.Group == ciliumv2.CustomResourceDefinitionGroup
}

// View reads a CiliumNode, or the object in its place, which must not be changed
// afterwards.
func (m Mode) View(obj client.Object) *View { return m.protocol().view(obj) }

// protocol is the part that differs between the modes.
type protocol interface {
	// allocationObject is an empty object of the kind that assigns blocks to agents,
	// and resource its resource name.
	allocationObject(name string) client.Object
	resource() (kind schema.GroupVersionKind, plural string)
	// view reads the assignments to the agent, and its report.
	view(client.Object) *View
	// patch is the JSON merge patch that writes a change, conditional on the version seen, or nil
	// if the object needs no change.
	patch(*View, Change) ([]byte, error)
	// bumpVersion changes the version that was seen, but none of its content in effect, conditional
	// on that version. addr is an address that is not assigned to the agent.
	bumpVersion(ctx context.Context, c *Client, v *View, addr netip.Addr) (*View, error)
	// check checks, live, whether a change may be written.
	check(context.Context, client.Reader, *View, Change) error
	// without removes the content of blocks from a CiliumNode to be restored, and the parts that
	// its agent must report again for the new object.
	without(*ciliumv2.CiliumNode, []netip.Prefix)
}

func (m Mode) protocol() protocol {
	switch m {
	case MultiPool:
		return multiPool{}
	case Kubernetes:
		return kubernetes{}
	}
	return addresses{}
}

// ciliumNodes is the common part of modes that assign blocks in CiliumNodes.
type ciliumNodes struct{}

func (ciliumNodes) allocationObject(name string) client.Object {
	return &ciliumv2.CiliumNode{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func (ciliumNodes) resource() (schema.GroupVersionKind, string) {
	return ciliumv2.SchemeGroupVersion.WithKind(ciliumv2.CNKindDefinition), ciliumv2.CNPluralName
}

// bumpVersion marks the address for release, which the agent refuses, or removes an
// existing mark.
func (ciliumNodes) bumpVersion(ctx context.Context, c *Client, v *View, addr netip.Addr) (*View, error) {
	if _, stands := v.Release[addr]; stands {
		return c.Release(ctx, v, Entries{Clear: []netip.Addr{addr}})
	}
	return c.Release(ctx, v, Entries{Mark: []netip.Addr{addr}})
}

func (ciliumNodes) check(context.Context, client.Reader, *View, Change) error { return nil }

// addresses is crd mode.
type addresses struct{ ciliumNodes }

func (addresses) view(obj client.Object) *View { return NewView(ciliumNodeOf(obj)) }

func (addresses) patch(v *View, c Change) ([]byte, error) { return c.patch(v) }

func (addresses) without(cn *ciliumv2.CiliumNode, blocks []netip.Prefix) { withoutBlocks(cn, blocks) }

// ciliumNodeOf returns obj, or an empty CiliumNode in place of another kind.
func ciliumNodeOf(obj client.Object) *ciliumv2.CiliumNode {
	if cn, ok := obj.(*ciliumv2.CiliumNode); ok {
		return cn
	}
	return &ciliumv2.CiliumNode{}
}
