package informer

import (
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// withdrawnDelay is the time until a block reports that its CiliumNode no longer has it. A block that
// its agent returned cools down sooner, and a CiliumNode that was deleted is back.
const withdrawnDelay = 10 * time.Second

// queuePublished queues the blocks of a node with a condition Published that differs from its
// CiliumNode.
func queuePublished(q *Queues, ledger *state.Ledger, node string) {
	if !q.leads() {
		return
	}
	cn := ledger.CiliumNode(node)
	for _, b := range ledger.NodeBlocks(node) {
		switch published := cn.HasBlock(b.CIDR); {
		case b.Phase != ipalloc.InService || b.Published == published:
		case published:
			q.add(PublishedQueue, b.Name, 0)
		default:
			q.add(PublishedQueue, b.Name, withdrawnDelay)
		}
	}
}
