package ciliumnode

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	iputil "github.com/cilium/cilium/pkg/ip"
	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	nodeaddressing "github.com/cilium/cilium/pkg/node/addressing"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

const ciliumInternalIP = nodeaddressing.NodeCiliumInternalIP

// Client writes CiliumNodes, and reads them live, past every cache.
type Client struct {
	// Writer sends the writes.
	Writer client.Client
	// Reader reads from the API server itself.
	Reader client.Reader
	// Mode is how blocks are assigned to agents.
	Mode Mode
	// DropManagedFields lets PatchSpec remove metadata.managedFields of a CiliumNode in crd mode,
	// unless a client applies the object. Each address is a field there, so they are half of the
	// object and of the API server's cost of its writes.
	DropManagedFields bool
	// Cached, if set, returns the View of exactly this version of obj if there is one, and otherwise
	// nil. The watch often delivers a version before the response to the write arrives.
	Cached func(obj metav1.Object) *View
}

// viewOf returns the View of what a write has returned.
func (c *Client) viewOf(obj client.Object) *View {
	if c.Cached != nil {
		if known := c.Cached(obj); known != nil {
			return known
		}
	}
	return c.Mode.View(obj)
}

// Live reads a CiliumNode from the API server. A missing one is nil.
func (c *Client) Live(ctx context.Context, name string) (*View, error) {
	cn := c.Mode.AllocationObject()
	err := c.Reader.Get(ctx, types.NamespacedName{Name: name}, cn)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading CiliumNode %s: %w", name, err)
	}
	return c.Mode.View(cn), nil
}

// PatchSpec writes a change of the spec in one patch, conditional on the version in v. It
// returns the CiliumNode as written, or nil if no write was needed. A conflict means
// that v is outdated: observe and decide again.
func (c *Client) PatchSpec(ctx context.Context, v *View, change Change) (*View, error) {
	change.untrack = c.DropManagedFields
	p := c.Mode.patch(v, change)
	if p == nil {
		return nil, nil
	}
	if c.Mode == Kubernetes {
		if err := c.checkRuns(ctx, v, change); err != nil {
			return nil, err
		}
	}
	return c.write(ctx, v, "spec", p)
}

// PatchReleaseIPs changes entries of the handshake in one patch of the status, conditional on the version
// in v. It returns the same as PatchSpec.
func (c *Client) PatchReleaseIPs(ctx context.Context, v *View, change ReleaseChange) (*View, error) {
	p := change.patch(v)
	if p == nil {
		return nil, nil
	}
	return c.write(ctx, v, "release-ips", p)
}

// CreatePoolField gives a CiliumNode without a pool an empty one, conditional on the version in v. It returns the same as PatchSpec.
// Agents answer no mark without a pool (pkg/ipam/crd.go, updateLocalNodeResource, v1.20.2).
func (c *Client) CreatePoolField(ctx context.Context, v *View) (*View, error) {
	p := v.newPatch()
	p.Spec.IPAM.Pool = map[string]*struct{}{expand.ProbeAddress(ipalloc.IPv4, nil).String(): nil}
	return c.write(ctx, v, "spec", p)
}

// BumpVersion changes only the resourceVersion of a CiliumNode in effect, conditional
// on the version in v, so that every patch of that version or an older one conflicts.
// addr is an address that is not assigned to the agent: it refuses a mark of that.
func (c *Client) BumpVersion(ctx context.Context, v *View, addr netip.Addr) (*View, error) {
	if c.Mode == Kubernetes { // a Node has no handshake
		p := v.newPatch()
		p.Metadata.Annotations = map[string]string{versionAnnotation: v.ResourceVersion}
		return c.write(ctx, v, "spec", p)
	}
	if _, ok := v.Release[addr]; ok {
		return c.PatchReleaseIPs(ctx, v, ReleaseChange{Clear: []netip.Addr{addr}})
	}
	return c.PatchReleaseIPs(ctx, v, ReleaseChange{Mark: []netip.Addr{addr}})
}

// write patches the spec, or the part of the status that section names.
func (c *Client) write(ctx context.Context, v *View, section string, patch any) (*View, error) {
	o := c.Mode.object(v.Name)
	if section != "spec" {
		o = CRD.object(v.Name)
	}
	if err := send(ctx, c.Writer, o, section, patch); err != nil {
		return nil, err
	}
	return c.viewOf(o), nil
}

// send patches the spec, or the part of the status that section names, and decodes the response into o.
func send(ctx context.Context, w client.Client, o client.Object, section string, patch any) error {
	body, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	raw := client.RawPatch(types.MergePatchType, body)
	if section == "spec" {
		err = w.Patch(ctx, o, raw)
	} else {
		err = w.Status().Patch(ctx, o, raw)
	}
	if err != nil {
		return fmt.Errorf("patching %s of CiliumNode %s: %w", section, o.GetName(), err)
	}
	return nil
}

// Create creates the CiliumNode of a Node, as its agent would: owned by the Node, with
// its labels and addresses. The pool stays empty: only PatchSpec publishes addresses, as it
// checks that the node still holds them. In a mode where the Node itself takes its
// place, Create returns an AlreadyExists error.
func (c *Client) Create(ctx context.Context, node *corev1.Node) (*View, error) {
	cn := &ciliumv2.CiliumNode{ObjectMeta: metav1.ObjectMeta{
		Name:            node.Name,
		Labels:          maps.Clone(node.Labels),
		OwnerReferences: []metav1.OwnerReference{ownerOf(node)},
	}}
	for _, a := range node.Status.Addresses {
		if a.Type == corev1.NodeInternalIP || a.Type == corev1.NodeExternalIP {
			cn.Spec.Addresses = append(cn.Spec.Addresses, ciliumv2.NodeAddress{
				Type: nodeaddressing.AddressType(a.Type), IP: a.Address,
			})
		}
	}
	return c.create(ctx, cn)
}

// Recreate restores the last known state of a deleted CiliumNode, except for the addresses of
// blocks: the caller publishes those again with PatchSpec. Foreign pool entries and podCIDRs are
// restored unchanged. If the API server refuses the object, Recreate restores the parts that pods
// and the agent need: addresses and IPAM.
func (c *Client) Recreate(ctx context.Context, last *View, node *corev1.Node, blocks []netip.Prefix) (*View, error) {
	cn := last.rebuild(node)
	if c.Mode.ManyPools() {
		unlistBlocks(cn, blocks)
	} else {
		withoutBlocks(cn, blocks)
	}
	view, err := c.create(ctx, cn)
	if !apierrors.IsInvalid(err) {
		return view, err
	}
	spec := &cn.Spec
	return c.create(ctx, &ciliumv2.CiliumNode{
		ObjectMeta: metav1.ObjectMeta{Name: cn.Name, Labels: node.Labels, OwnerReferences: cn.OwnerReferences},
		Spec: ciliumv2.NodeSpec{
			BootID: spec.BootID, Addresses: spec.Addresses, HealthAddressing: spec.HealthAddressing, IngressAddressing: spec.IngressAddressing,
			IPAM: ipamtypes.IPAMSpec{Pool: spec.IPAM.Pool, PodCIDRs: spec.IPAM.PodCIDRs, Pools: ipamtypes.IPAMPoolSpec{Allocated: spec.IPAM.Pools.Allocated}},
		},
	})
}

func (c *Client) create(ctx context.Context, cn *ciliumv2.CiliumNode) (*View, error) {
	if kind, plural := c.Mode.Resource(); c.Mode == Kubernetes {
		return nil, apierrors.NewAlreadyExists(schema.GroupResource{Group: kind.Group, Resource: plural}, cn.Name)
	}
	if err := c.Writer.Create(ctx, cn); err != nil {
		return nil, fmt.Errorf("creating CiliumNode %s: %w", cn.Name, err)
	}
	return c.viewOf(cn), nil
}

// Delete deletes the CiliumNode in v, if it is still the same object. A missing one is no error. In
// kubernetes mode it only returns nil: the Node takes the CiliumNode's place.
func (c *Client) Delete(ctx context.Context, v *View) error {
	if c.Mode == Kubernetes {
		return nil
	}
	cn := &ciliumv2.CiliumNode{ObjectMeta: metav1.ObjectMeta{Name: v.Name}}
	err := c.Writer.Delete(ctx, cn, client.Preconditions{UID: &v.UID, ResourceVersion: &v.ResourceVersion})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting CiliumNode %s: %w", v.Name, err)
	}
	return nil
}

func ownerOf(node *corev1.Node) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}
}

// withoutBlocks removes the addresses of blocks from the pool, and podCIDRs that have
// no address left in the pool: they were blocks too.
func withoutBlocks(cn *ciliumv2.CiliumNode, blocks []netip.Prefix) {
	var taken, remaining []netip.Addr
	for key := range cn.Spec.IPAM.Pool {
		addr, ok := ipalloc.ParseAddr(key)
		if !ok {
			continue
		}
		if slices.ContainsFunc(blocks, func(b netip.Prefix) bool { return b.Contains(addr) }) {
			delete(cn.Spec.IPAM.Pool, key)
			taken = append(taken, addr)
		} else {
			remaining = append(remaining, addr)
		}
	}
	cn.Spec.IPAM.PodCIDRs = slices.DeleteFunc(cn.Spec.IPAM.PodCIDRs, func(p iputil.Prefix) bool {
		cidr := ipalloc.Canonical(p.Prefix)
		return slices.Contains(blocks, cidr) || slices.ContainsFunc(taken, cidr.Contains) && !slices.ContainsFunc(remaining, cidr.Contains)
	})
}
