package cluster

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
)

// DeleteBlock deletes a block, and its finalizer keeps it: from then on the operator publishes none
// of its addresses. A block that was recreated in the meantime is left alone.
func (c *Cluster) DeleteBlock(ctx context.Context, b crd.Block) error {
	obj := &v1alpha1.PodIPBlock{}
	obj.Name = b.Name
	err := c.Client.Delete(ctx, obj, client.Preconditions{UID: &b.UID})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting block %s: %w", b.Name, err)
	}
	return nil
}
