package agent

import (
	"context"
	"net/netip"
	"slices"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/test/agent/hostscope"
	"github.com/cilium-pool/cilium-pool-operator/test/agent/multipool"
)

// podCIDRs returns the podCIDRs that a Node assigns to its agent, of the families that it runs.
func (a *Agent) podCIDRs(node *corev1.Node) (out []netip.Prefix) {
	for _, family := range a.opts.Families {
		if cidr, ok := hostscope.PodCIDR(node, family.number()); ok {
			out = append(out, cidr)
		}
	}
	return out
}

// nodeSession is a run in kubernetes mode: it allocates addresses of the CIDRs that its Node
// named when it started (hostscope.go), and does not report them.
type nodeSession struct{ store *wholeStore }

func newNodeSession(cidrs []netip.Prefix) nodeSession {
	ipv6 := slices.ContainsFunc(cidrs, func(p netip.Prefix) bool { return p.Addr().Is6() })
	s := nodeSession{newWholeStore(&multipool.Pools{IPv6: ipv6}, 0, func(string) {})}
	s.store.model.Sees(crd.DefaultCiliumPool, cidrs)
	return s
}

func (s nodeSession) pool() allocator                          { return s.store }
func (nodeSession) watch(*ciliumv2.CiliumNode) (cancel func()) { return func() {} }
func (nodeSession) write(context.Context)                      {}
func (nodeSession) ready() bool                                { return true }
func (nodeSession) open()                                      {}
func (nodeSession) restored()                                  {}
