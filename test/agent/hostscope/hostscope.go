// Package hostscope models Cilium's agent in kubernetes mode: which CIDRs it reads off its Node,
// and which addresses it allocates from them. It keeps the CIDRs it started with. It needs no clock
// and no API server.
//
// Source: pkg/k8s/node.go (ParseNode) and pkg/ipam/hostscope.go of Cilium v1.20.1.
package hostscope

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/agent/multipool"
)

// Annotations are the annotations of a Node that name its CIDR, by family. Where the first is
// there, with any value, the second, its older name, is not read.
var Annotations = [2][2]string{
	ipalloc.IPv4: {"network.cilium.io/ipv4-pod-cidr", "io.cilium.network.ipv4-pod-cidr"},
	ipalloc.IPv6: {"network.cilium.io/ipv6-pod-cidr", "io.cilium.network.ipv6-pod-cidr"},
}

// PodCIDR returns the CIDR of a family that an agent reads off its Node: of the spec, else
// of an annotation. Annotations of another family, which Cilium takes all the same, count
// for none.
func PodCIDR(node *corev1.Node, f ipalloc.Family) (netip.Prefix, bool) {
	said := slices.Clone(node.Spec.PodCIDRs)
	if len(said) == 0 {
		said = append(said, node.Spec.PodCIDR)
	}
	for _, name := range Annotations[f] {
		if text, ok := node.Annotations[name]; ok {
			said = append(said, text)
			break
		}
	}
	for _, text := range said {
		if p, err := netip.ParsePrefix(text); err == nil && ipalloc.FamilyOf(p.Addr()) == f {
			return p.Masked(), true
		}
	}
	return netip.Prefix{}, false
}

// Agent is one run of an agent with the CIDRs that it started with.
type Agent struct {
	CIDRs []netip.Prefix
	// Taken are the addresses in use, with their owners.
	Taken map[netip.Addr]string
}

// Take allocates one address (ipallocator.Range.Allocate).
func (a *Agent) Take(addr netip.Addr, owner string) error {
	usable := func(c netip.Prefix) bool { return c.Contains(addr) && slices.Contains(multipool.Inner(c), addr) }
	switch _, busy := a.Taken[addr]; {
	case !slices.ContainsFunc(a.CIDRs, usable):
		return multipool.ErrNotInPool
	case busy:
		return multipool.ErrInUse
	}
	if a.Taken == nil {
		a.Taken = map[netip.Addr]string{}
	}
	a.Taken[addr] = owner
	return nil
}

// Free returns the addresses of a family that are free. An agent allocates any of them.
func (a *Agent) Free(f ipalloc.Family) []netip.Addr {
	var out []netip.Addr
	for _, c := range a.CIDRs {
		if ipalloc.FamilyOf(c.Addr()) != f {
			continue
		}
		for _, addr := range multipool.Inner(c) {
			if _, busy := a.Taken[addr]; !busy {
				out = append(out, addr)
			}
		}
	}
	return out
}

// Release frees an address.
func (a *Agent) Release(addr netip.Addr) { delete(a.Taken, addr) }

// Uses reports whether an address of a CIDR is in use.
func (a *Agent) Uses(cidr netip.Prefix) bool {
	for addr := range a.Taken {
		if cidr.Contains(addr) {
			return true
		}
	}
	return false
}
