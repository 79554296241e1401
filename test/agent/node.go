package agent

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"time"

	iputil "github.com/cilium/cilium/pkg/ip"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/cilium/cilium/pkg/node/addressing"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// pkg/nodediscovery/nodediscovery.go:38
	maxRetryCount   = 10
	backoffDuration = 500 * time.Millisecond
)

// Annotations that the CiliumNode gets from the Node (pkg/k8s/node.go:158,
// pkg/annotation/k8s.go:296).
var ciliumAnnotation = regexp.MustCompile(`^([A-Za-z0-9]+\.)*cilium.io/`)

// addresses of the agent itself, per family. The zero address: none yet.
type addresses map[Family]netip.Addr

// ownAddresses reads the router's and the health endpoint's addresses back
// from a CiliumNode (pkg/node/sync/local_node_sync.go:231).
func ownAddresses(cn *ciliumv2.CiliumNode) (router, health addresses) {
	router, health = addresses{}, addresses{}
	add := func(to addresses, ip string) {
		if addr, err := netip.ParseAddr(ip); err == nil {
			to[familyOf(addr)] = addr
		}
	}
	for _, address := range cn.Spec.Addresses {
		if address.Type == addressing.NodeCiliumInternalIP {
			add(router, address.IP)
		}
	}
	add(health, cn.Spec.HealthAddressing.IPv4)
	add(health, cn.Spec.HealthAddressing.IPv6)
	return router, health
}

// discover creates or updates the CiliumNode, keeping pool and podCIDRs
// (updateCiliumNodeResource, pkg/nodediscovery/nodediscovery.go:222), and returns it.
// The real agent reads it from a cache if it has one; this one reads it live.
func (a *Agent) discover(ctx context.Context, node *corev1.Node, router, health addresses) (*ciliumv2.CiliumNode, error) {
	var last error
	for range maxRetryCount {
		cn := &ciliumv2.CiliumNode{}
		err := a.client.Get(ctx, types.NamespacedName{Name: a.opts.NodeName}, cn)
		exists := err == nil
		if !exists {
			cn = &ciliumv2.CiliumNode{ObjectMeta: metav1.ObjectMeta{Name: a.opts.NodeName}}
		}
		a.mutate(cn, node, router, health)
		if exists {
			last = a.client.Update(ctx, cn)
		} else {
			last = a.client.Create(ctx, cn)
		}
		if last == nil {
			return cn, nil
		}
		if !sleep(ctx, backoffDuration) {
			return nil, ctx.Err()
		}
	}
	return nil, fmt.Errorf("create or update CiliumNode %s: %w", a.opts.NodeName, last)
}

// mutate is mutateNodeResource (pkg/nodediscovery/nodediscovery.go:297).
func (a *Agent) mutate(cn *ciliumv2.CiliumNode, node *corev1.Node, router, health addresses) {
	cn.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}}
	cn.Labels = maps.Clone(node.Labels)
	cn.Annotations = maps.Clone(node.Annotations)
	maps.DeleteFunc(cn.Annotations, func(key, _ string) bool { return !ciliumAnnotation.MatchString(key) })

	// nodediscovery.go:313: the old CiliumInternalIP stays until there is one.
	cn.Spec.Addresses = slices.DeleteFunc(cn.Spec.Addresses, func(address ciliumv2.NodeAddress) bool {
		addr, err := netip.ParseAddr(address.IP)
		if address.Type != addressing.NodeCiliumInternalIP || err != nil {
			return true
		}
		family := familyOf(addr)
		return !slices.Contains(a.opts.Families, family) || router[family].IsValid()
	})
	cn.Spec.Addresses = append(cn.Spec.Addresses, nodeAddresses(node)...)
	for _, family := range []Family{IPv4, IPv6} { // also a family that it ran before: local_node_sync.go:234
		if addr := router[family]; addr.IsValid() {
			cn.Spec.Addresses = append(cn.Spec.Addresses,
				ciliumv2.NodeAddress{Type: addressing.NodeCiliumInternalIP, IP: addr.String()})
		}
	}
	if a.opts.IPAM == Kubernetes { // nodediscovery.go:338
		cn.Spec.IPAM.PodCIDRs = nil
		for _, cidr := range a.podCIDRs(node) {
			cn.Spec.IPAM.PodCIDRs = append(cn.Spec.IPAM.PodCIDRs, iputil.PrefixFrom(cidr))
		}
	}
	cn.Spec.HealthAddressing = ciliumv2.HealthAddressingSpec{IPv4: text(health[IPv4]), IPv6: text(health[IPv6])}
	cn.Spec.IngressAddressing = ciliumv2.AddressPair{}
	cn.Spec.BootID = node.Status.NodeInfo.BootID
	cn.Spec.IPAM.StaticIPTags = nil // nodediscovery.go:387, from a flag
}

// nodeAddresses takes the first of each type and family (pkg/k8s/node.go:48).
func nodeAddresses(node *corev1.Node) []ciliumv2.NodeAddress {
	var all []ciliumv2.NodeAddress
	taken := map[string]bool{}
	for _, address := range node.Status.Addresses {
		addr, err := netip.ParseAddr(address.Address)
		if err != nil || address.Type != corev1.NodeInternalIP && address.Type != corev1.NodeExternalIP {
			continue
		}
		group := string(address.Type) + string(familyOf(addr))
		if taken[group] {
			continue
		}
		taken[group] = true
		all = append(all, ciliumv2.NodeAddress{Type: addressing.AddressType(address.Type), IP: addr.String()})
	}
	return all
}

func text(addr netip.Addr) string {
	if !addr.IsValid() {
		return ""
	}
	return addr.String()
}

// node waits for the Node (pkg/node/sync/local_node_sync.go:163), in kubernetes
// mode until that has a podCIDR of each family (pkg/node/sync/local_node_sync_wait.go).
func (a *Agent) node(ctx context.Context) (*corev1.Node, error) {
	for {
		node := &corev1.Node{}
		err := a.client.Get(ctx, types.NamespacedName{Name: a.opts.NodeName}, node)
		if err == nil && (a.opts.IPAM != Kubernetes || len(a.podCIDRs(node)) == len(a.opts.Families)) {
			return node, nil
		}
		if !sleep(ctx, time.Second) {
			return nil, ctx.Err()
		}
	}
}
