package bed

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// warmPage is the page size of Warm.
const warmPage = 2000

// Warm reads each kind once from an API server that has just started, so that it has read
// etcd and filled its caches before a contender asks. It requests only metadata, and
// discards it.
func (s *Stage) Warm(ctx context.Context) error {
	for _, kind := range []schema.GroupVersionKind{
		{Version: "v1", Kind: "NodeList"}, {Group: "cilium.io", Version: "v2", Kind: "CiliumNodeList"},
		{Group: "cilium-pool.io", Version: "v1alpha1", Kind: "PodIPBlockList"}, {Version: "v1", Kind: "PodList"},
	} {
		for next := ""; ; {
			list := &metav1.PartialObjectMetadataList{}
			list.SetGroupVersionKind(kind)
			if err := s.Client.List(ctx, list, client.Limit(warmPage), client.Continue(next)); err != nil {
				return fmt.Errorf("warm up the API server: %w", err)
			}
			if next = list.Continue; next == "" {
				break
			}
		}
	}
	return nil
}
