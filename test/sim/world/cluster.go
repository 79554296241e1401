package world

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	iputil "github.com/cilium/cilium/pkg/ip"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/cilium/cilium/pkg/node/addressing"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
)

// Cluster lists the cluster's own addresses in the pools' ranges.
type Cluster struct {
	// Addresses are those that Nodes may have.
	Addresses []netip.Addr
	// Services are ranges of Services' addresses, one for each ServiceCIDR.
	Services []netip.Prefix
}

// enableAddresses enables the addresses that a Node may get, in the form "type=address".
func (u *users) enableAddresses(m *machine) {
	if u.cfg.Cluster == nil {
		return
	}
	for _, addr := range u.cfg.Cluster.Addresses {
		for _, kind := range []corev1.NodeAddressType{corev1.NodeInternalIP, corev1.NodeExternalIP} {
			u.can(NodeAddress, m.name, string(kind)+"="+addr.String())
		}
	}
	if len(u.api.Get(KindNode, m.name).(*corev1.Node).Status.Addresses) > 0 {
		u.can(NodeAddress, m.name, "none")
	}
}

// setAddress replaces the addresses of a Node by one.
func (u *users) setAddress(name, what string) {
	kind, addr, some := strings.Cut(what, "=")
	node := u.api.Get(KindNode, name).DeepCopyObject().(*corev1.Node)
	if node.Status.Addresses = nil; some {
		node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeAddressType(kind), Address: addr}}
	}
	u.must(u.api.Update(node, true))
}

// addressesOf returns an agent's report of its Node's addresses.
func addressesOf(node *corev1.Node) []ciliumv2.NodeAddress {
	var out []ciliumv2.NodeAddress
	for _, a := range node.Status.Addresses {
		out = append(out, ciliumv2.NodeAddress{Type: addressing.AddressType(a.Type), IP: a.Address})
	}
	return out
}

func serviceName(i int) string { return "services-" + string(rune('a'+i)) }

func (u *users) enableServices() {
	if u.cfg.Cluster == nil {
		return
	}
	for i := range u.cfg.Cluster.Services {
		u.can(ServiceEdit, people, serviceName(i))
	}
}

// editService creates or deletes a ServiceCIDR.
func (u *users) editService(name string) {
	if u.api.Get(KindServiceCIDR, name) != nil {
		u.mustNot(u.api.Delete(KindServiceCIDR, name, nil, nil))
		return
	}
	i := slices.IndexFunc(u.cfg.Cluster.Services, func(p netip.Prefix) bool { return name == serviceName(slices.Index(u.cfg.Cluster.Services, p)) })
	u.must(u.api.Create(&networkingv1.ServiceCIDR{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       networkingv1.ServiceCIDRSpec{CIDRs: []string{u.cfg.Cluster.Services[i].String()}},
	}))
}

// nonPodCIDRs returns the addresses of an object of the cluster that no pod may get.
func nonPodCIDRs(obj client.Object) []netip.Prefix {
	var out []netip.Prefix
	one := func(s string) {
		if addr, err := netip.ParseAddr(s); err == nil {
			out = append(out, netip.PrefixFrom(addr, addr.BitLen()))
		}
	}
	switch obj := obj.(type) {
	case *corev1.Node:
		for _, a := range obj.Status.Addresses {
			one(a.Address)
		}
	case *ciliumv2.CiliumNode:
		for _, a := range obj.Spec.Addresses {
			if a.Type != addressing.NodeCiliumInternalIP {
				one(a.IP)
			}
		}
	case *networkingv1.ServiceCIDR:
		for _, c := range obj.Spec.CIDRs {
			out = append(out, netip.MustParsePrefix(c))
		}
	}
	return out
}

// clusterKey is an object that has addresses.
type clusterKey struct {
	kind Kind
	name string
}

// knownCluster is an operator's knowledge of them.
type knownCluster struct{ by map[clusterKey][]netip.Prefix }

func newKnownCluster(c *Cluster) *knownCluster {
	if c == nil {
		return nil
	}
	return &knownCluster{by: map[clusterKey][]netip.Prefix{}}
}

func (k *knownCluster) there(obj client.Object) {
	if k == nil {
		return
	}
	key := clusterKey{kindOf(obj), keyOf(obj)}
	if k.by[key] = nonPodCIDRs(obj); len(k.by[key]) == 0 {
		delete(k.by, key)
	}
}

func (k *knownCluster) gone(obj client.Object) {
	if k != nil {
		delete(k.by, clusterKey{kindOf(obj), keyOf(obj)})
	}
}

// only drops objects that a list lacks.
func (k *knownCluster) only(kind Kind, there map[string]client.Object) {
	if k != nil {
		maps.DeleteFunc(k.by, func(key clusterKey, _ []netip.Prefix) bool { return key.kind == kind && there[key.name] == nil })
	}
}

func (k *knownCluster) tell(n notice) {
	if n.now == nil {
		k.gone(n.old)
		return
	}
	k.there(n.now)
}

// all returns all of them, in no order.
func (k *knownCluster) all() []netip.Prefix {
	if k == nil {
		return nil
	}
	return slices.Concat(slices.Collect(maps.Values(k.by))...)
}

// isStray reports whether an address is an agent's own and lies in no block and no podCIDR of its
// node, such as one that a user published. Operators withhold it from every node.
func (r *writeRules) isStray(addr netip.Addr) bool {
	return slices.ContainsFunc(list[ciliumv2.CiliumNode](r.api, KindCiliumNode), func(cn *ciliumv2.CiliumNode) bool {
		return slices.Contains(ownIn(cn), addr) && !r.inBlockOf(cn.Name, addr) &&
			!slices.ContainsFunc(cn.Spec.IPAM.PodCIDRs, func(p iputil.Prefix) bool { return p.Contains(addr) })
	})
}

// checkNotCluster checks that a claimed block contains no address of the cluster that the operator
// knew when it chose the block. A block that the CiliumNode already lists may be recreated.
func (r *writeRules) checkNotCluster(b *v1alpha1.PodIPBlock) {
	if r.lists(b) {
		return
	}
	cidr := cidrOf(b)
	for _, p := range r.writer.current.pending.cluster {
		if p.Overlaps(cidr) {
			r.violate(10, "block %s was claimed for node %s, and %s is the cluster's own", b.Name, b.Spec.NodeName, p)
		}
	}
}

// checkWithheld checks that no address enters a pool that the operator knew to belong to the
// cluster, unless it is in use. A deleted CiliumNode is restored whole: its agent may have
// assigned any of its addresses to a pod since.
func (r *writeRules) checkWithheld(node string, old, now *ciliumv2.CiliumNode) {
	f := r.writer.current
	if f == nil || r.whole() || r.fixed() || r.cfg.Cluster == nil {
		return
	}
	for addr := range addresses(now.Spec.IPAM.Pool) {
		key := addr.String()
		putBack := len(old.Spec.IPAM.Pool) == 0 && r.excused[addr].node == node
		if _, was := old.Spec.IPAM.Pool[key]; was || putBack || r.writer.isUsed(f, old, addr) {
			continue
		}
		contains := func(p netip.Prefix) bool { return p.Contains(addr) }
		if slices.ContainsFunc(f.cluster, contains) && slices.ContainsFunc(f.pending.cluster, contains) {
			r.violate(10, "%s, which is the cluster's own, was put into the pool of node %s", key, node)
		}
	}
}

// isUsed reports whether an address is in use as far as the operator can know.
func (o *Operator) isUsed(f *flight, cn *ciliumv2.CiliumNode, addr netip.Addr) bool {
	if _, used := cn.Status.IPAM.Used[addr.String()]; used || f.pods[addr] {
		return true
	}
	return o.w.machine(f.name).hasAddress(addr)
}

// checkWithheldRest checks at rest that of a node's blocks in service, no address that belongs
// to the cluster is in its pool, unless it is in use.
func (r *settledRules) checkWithheldRest(when string, m *machine, cn *ciliumv2.CiliumNode, held []heldBlock) {
	for _, b := range held {
		for addr := range addresses(cn.Spec.IPAM.Pool) {
			if !b.cidr.Contains(addr) || !r.space.withheld(addr) || m.phase != serving {
				continue
			}
			if _, used := cn.Status.IPAM.Used[addr.String()]; !used && !m.hasAddress(addr) && !r.overlapped(b.name, b.cidr) {
				r.violate(10, "%s: %s, which is the cluster's own, is in the pool of node %s", when, addr, m.name)
			}
		}
	}
}
