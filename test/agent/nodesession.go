package agent

import (
	"context"
	"net/netip"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/agent/hostscope"
)

// podCIDROf returns the podCIDR that a Node assigns to its agent.
func podCIDROf(node *corev1.Node) (netip.Prefix, bool) { return hostscope.PodCIDR(node, ipalloc.IPv4) }

// nodeSession is a run in kubernetes mode: it allocates addresses of the CIDR that its Node
// named when it started (hostscope.go), and does not report them.
type nodeSession struct{ store *wholeStore }

func newNodeSession(cidr netip.Prefix) nodeSession {
	s := nodeSession{newWholeStore(0, 0, func(string) {})}
	s.store.sees([]netip.Prefix{cidr})
	return s
}

func (s nodeSession) pool() allocator                          { return s.store }
func (nodeSession) watch(*ciliumv2.CiliumNode) (cancel func()) { return func() {} }
func (nodeSession) write(context.Context)                      {}
func (nodeSession) ready() bool                                { return true }
func (nodeSession) open()                                      {}
func (nodeSession) restored()                                  {}
