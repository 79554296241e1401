package cli

import (
	"context"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// keeper keeps the objects that a snapshot drops from the lists that it passes on: whole
// CiliumNodes, as the ledger reads addresses taken by others from them.
type keeper struct {
	client.Reader
	ciliumNodes []*ciliumv2.CiliumNode
}

// List reads from the API server.
func (k *keeper) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if err := k.Reader.List(ctx, list, opts...); err != nil {
		return err
	}
	if l, ok := list.(*ciliumv2.CiliumNodeList); ok {
		for i := range l.Items {
			k.ciliumNodes = append(k.ciliumNodes, &l.Items[i])
		}
	}
	return nil
}
