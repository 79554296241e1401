//go:build linux

package main

import (
	"fmt"
	"net/netip"
	"slices"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/e2e/bed"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant/whole"
)

// compact returns an error while a node holds more than it needs: except in one block in
// service of each family, every address in its pool must be used, and none may be on its way
// to release.
func compact(s state) error {
	if n := len(s.cn.Status.IPAM.ReleaseIPs); n > 0 {
		return fmt.Errorf("%d addresses are being released", n)
	}
	inService := map[bool]int{} // by whether they are IPv4
	for _, cidr := range prefixesOf(s.cn) {
		ipv4 := cidr.Addr().Is4()
		inService[ipv4] += 0
		published, used := count(s.cn, cidr)
		switch {
		case published == wholeBlock(cidr) && used < published:
			inService[ipv4]++
		case published != used:
			return fmt.Errorf("%s has %d addresses, %d used", cidr, published, used)
		}
	}
	for ipv4, n := range inService {
		if n != 1 {
			return fmt.Errorf("%d blocks are in service, IPv4 %t", n, ipv4)
		}
	}
	return s.held(len(s.cn.Spec.IPAM.PodCIDRs))
}

// held returns an error unless the node holds this number of PodIPBlocks.
func (s state) held(want int) error {
	if held := countFunc(s.blocks, func(b v1alpha1.PodIPBlock) bool { return b.Spec.NodeName == s.cn.Name }); held != want {
		return fmt.Errorf("%d PodIPBlocks, %d CIDRs", held, want)
	}
	return nil
}

// wholeBlock returns the number of addresses that a block has for pods.
func wholeBlock(p netip.Prefix) int { return 1<<(p.Addr().BitLen()-p.Bits()) - 2 }

// count returns the number of a CIDR's addresses in a node's pool, and the number in use.
func count(cn *ciliumv2.CiliumNode, cidr netip.Prefix) (published, used int) {
	for ip := range cn.Spec.IPAM.Pool {
		if addr, err := netip.ParseAddr(ip); err == nil && cidr.Contains(addr) {
			published++
			if _, ok := cn.Status.IPAM.Used[ip]; ok {
				used++
			}
		}
	}
	return published, used
}

// inUse reports whether a pod or the agent has an address of a CIDR.
func inUse(cn *ciliumv2.CiliumNode, cidr netip.Prefix, pods []*bed.Pod) bool {
	return countIn(pods, cidr) > 0 || slices.ContainsFunc(whole.OwnAddresses(cn), cidr.Contains)
}

// prefixesOf returns the podCIDRs of a CiliumNode, sorted.
func prefixesOf(cn *ciliumv2.CiliumNode) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range cn.Spec.IPAM.PodCIDRs {
		out = append(out, p.Masked())
	}
	slices.SortFunc(out, netip.Prefix.Compare)
	return out
}

// ranges are the pool's, and the unused ones of the example values, which keep agents from
// making up routes.
var ranges = []netip.Prefix{
	netip.MustParsePrefix(poolCIDR), netip.MustParsePrefix(poolCIDR6),
	netip.MustParsePrefix("169.254.254.0/24"), netip.MustParsePrefix("100::/96"), netip.MustParsePrefix("fe80::/10"),
}

// isBlock reports whether a prefix may be a block of the pool: neither the whole pool nor a
// single pod.
func isBlock(p netip.Prefix) bool {
	for _, cidr := range []string{poolCIDR, poolCIDR6} {
		whole := netip.MustParsePrefix(cidr)
		if whole.Contains(p.Addr()) {
			return whole.Bits() < p.Bits() && !p.IsSingleIP()
		}
	}
	return false
}

// leads reports whether a route of another node leads to n: into the tunnel, or straight to
// its address.
func (e *env) leads(r bed.Route, n *bed.Node) bool {
	if !e.options.Native {
		return r.Device == "cilium_host"
	}
	return r.Device == "eth0" && slices.Contains(n.Addresses, r.Via)
}

// sameBlocks returns an error if now does not have the same blocks as before.
func sameBlocks(before, now *ciliumv2.CiliumNode) error {
	if now.UID == before.UID {
		return fmt.Errorf("it is still the old one")
	}
	if want, got := prefixesOf(before), prefixesOf(now); !slices.Equal(want, got) {
		return fmt.Errorf("podCIDRs %v, were %v", got, want)
	}
	for ip := range before.Spec.IPAM.Pool {
		if _, ok := now.Spec.IPAM.Pool[ip]; !ok {
			return fmt.Errorf("%s is missing", ip)
		}
	}
	return nil
}

// countIn counts the pods with an address in the CIDR.
func countIn(pods []*bed.Pod, cidr netip.Prefix) int {
	return countFunc(pods, func(p *bed.Pod) bool { return slices.ContainsFunc(p.Addresses, cidr.Contains) })
}
