package plugin

import (
	"context"
	"net/netip"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// keeper keeps what a snapshot drops of the lists that pass through it: whole
// CiliumNodes, from which the ledger learns what is taken by others, and the
// addresses of Nodes.
type keeper struct {
	client.Reader
	ciliumNodes []*ciliumv2.CiliumNode
	hops        map[string][]netip.Addr // InternalIPs by Node
}

// List reads from the API server.
func (k *keeper) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if err := k.Reader.List(ctx, list, opts...); err != nil {
		return err
	}
	switch l := list.(type) {
	case *ciliumv2.CiliumNodeList:
		for i := range l.Items {
			k.ciliumNodes = append(k.ciliumNodes, &l.Items[i])
		}
	case *corev1.NodeList:
		for i := range l.Items {
			k.keepHops(&l.Items[i])
		}
	}
	return nil
}

func (k *keeper) keepHops(node *corev1.Node) {
	if k.hops == nil {
		k.hops = map[string][]netip.Addr{}
	}
	for _, a := range node.Status.Addresses {
		if ip, err := netip.ParseAddr(a.Address); err == nil && a.Type == corev1.NodeInternalIP {
			k.hops[node.Name] = append(k.hops[node.Name], ip.Unmap())
		}
	}
}
