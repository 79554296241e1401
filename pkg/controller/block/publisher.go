package block

import (
	"context"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/common"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// Publisher writes the condition Published of blocks in service. It compares the watched objects
// and remembers nothing, so the next leader continues after a crash. It has a queue of its own, and
// its writes are paced, so that no claim waits for them.
type Publisher struct {
	Cache    client.Reader
	Client   client.Client
	Ledger   *state.Ledger
	Counters *common.Counters
	Clock    clock.PassiveClock
	// ReadOnly stops all writes.
	ReadOnly bool
	// Pace waits until the next write may begin. Nil: at once.
	Pace func(context.Context) error
}

// Reconcile writes the condition of one block if it differs from the CiliumNode.
func (p *Publisher) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if err := p.Ledger.WaitReady(ctx); err != nil {
		return reconcile.Result{}, err
	}
	obj, _, err := p.differs(ctx, req)
	if obj == nil || err != nil {
		return reconcile.Result{}, err
	}
	if p.Pace != nil {
		if err := p.Pace(ctx); err != nil {
			return reconcile.Result{}, err
		}
	}
	obj, published, err := p.differs(ctx, req) // it may have changed in the meantime
	if obj == nil || err != nil {
		return reconcile.Result{}, err
	}
	obj = obj.DeepCopy()
	crd.SetBlockPublished(obj, published, p.Clock.Now())
	return common.UntilShown(client.IgnoreNotFound(p.Counters.CountWrite("PodIPBlock", obj.Name, "published", p.Client.Status().Update(ctx, obj))))
}

// differs returns a block in service that says otherwise than its node's CiliumNode, and whether
// that has the block. Nil: the block needs no write.
func (p *Publisher) differs(ctx context.Context, req reconcile.Request) (*v1alpha1.PodIPBlock, bool, error) {
	obj := &v1alpha1.PodIPBlock{}
	if err := p.Cache.Get(ctx, req.NamespacedName, obj); err != nil || p.ReadOnly {
		return nil, false, client.IgnoreNotFound(err)
	}
	b, err := crd.BlockFrom(obj)
	published := p.Ledger.CiliumNode(b.Node).ListsInAnyPool(b.CIDR)
	if err != nil || b.Phase != ipalloc.InService || b.Deleting || b.Published == published {
		return nil, false, nil //nolint:nilerr // the feed has logged that it cannot be read
	}
	return obj, published, nil
}
