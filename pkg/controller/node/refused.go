package node

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/common"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
)

// writesOf is the key of reports about the writes of a node.
func writesOf(node string) string { return "node/" + node }

// reportWrites reports on the object concerned that the API server refuses a write of a reconcile,
// and when it no longer does; err is the write's error.
func (r *Reconciler) reportWrites(ctx context.Context, node string, err error) {
	r.Events.Writes(writesOf(node), err, func(refused *common.Refusal) runtime.Object {
		return r.concerned(ctx, node, refused)
	})
}

// concerned is the object that people look at: the block to be written, or the Node, also for its
// CiliumNode and for a block to be created.
func (r *Reconciler) concerned(ctx context.Context, node string, refused *common.Refusal) runtime.Object {
	blocks := r.Ledger.NodeBlocks(node)
	if i := slices.IndexFunc(blocks, func(b crd.Block) bool { return refused.Kind == "PodIPBlock" && b.Name == refused.Name }); i >= 0 {
		return &v1alpha1.PodIPBlock{ObjectMeta: metav1.ObjectMeta{Name: blocks[i].Name, UID: blocks[i].UID}}
	}
	is := &corev1.Node{}
	if err := r.Cache.Get(ctx, types.NamespacedName{Name: node}, is); err != nil {
		is.Name = node // an event by its name is better than none
	}
	return is
}
