package agent

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/test/agent/multipool"
)

// poolSession is a run in multi-pool mode: the watch that feeds the model, and
// its writes (multiPoolManager).
//
// Unlike a real agent it writes only once it has seen its own last write. A real agent with a watch
// that lags behind its write for longer than its update rate may allocate addresses of a CIDR that
// it has returned. The operator does not protect against that (docs/modes.md). Here update rates
// are seconds, and API servers are down for longer.
type poolSession struct {
	client  client.Client
	hub     *Hub
	name    string
	refresh time.Duration
	trigger *trigger
	store   *wholeStore

	mu   sync.Mutex
	seen *ciliumv2.CiliumNode
	// from is the version that the watch must have reached. doubt is set while the outcome of a
	// write is unknown.
	from  uint64
	doubt bool
}

func newPoolSession(c client.Client, hub *Hub, opts Options) *poolSession {
	s := &poolSession{
		client: c, hub: hub, name: opts.NodeName,
		refresh: refreshEvery(opts.UpdateRate), trigger: newTrigger(opts.UpdateRate),
	}
	model := &multipool.Pools{Reserve: opts.PreAllocate, IPv6: slices.Contains(opts.Families, IPv6)}
	s.store = newWholeStore(model, pendingFor(opts.UpdateRate), s.trigger.request)
	return s
}

func (s *poolSession) pool() allocator { return s.store }
func (s *poolSession) ready() bool     { return s.store.ready() }
func (s *poolSession) open()           {}
func (s *poolSession) restored()       { s.store.restored() }

// watch ignores versions older than the list of a real agent at its start.
func (s *poolSession) watch(from *ciliumv2.CiliumNode) (cancel func()) {
	s.mu.Lock()
	s.from = versionOf(from)
	s.mu.Unlock()
	return s.hub.Subscribe(s.name, s.observe)
}

// observe is ciliumNodeUpdated. After its CiliumNode is deleted, the agent continues with the
// last version.
func (s *poolSession) observe(cn *ciliumv2.CiliumNode) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if cn == nil || s.seen == nil && versionOf(cn) < s.from {
		return
	}
	first := s.seen == nil
	s.seen = cn
	s.store.sees(cn)
	if first {
		s.trigger.request("first CiliumNode")
	}
}

func (s *poolSession) write(ctx context.Context) {
	var timer sync.WaitGroup
	defer timer.Wait()
	timer.Go(func() {
		for sleep(ctx, s.refresh) {
			s.trigger.request("refresh")
		}
	})
	s.trigger.run(ctx, func() { s.update(ctx) })
}

// update writes the list and the request, both in full, on the version that was
// seen (updateLocalNode). After a conflict the next refresh retries.
func (s *poolSession) update(ctx context.Context) {
	if !s.caughtUp(ctx) {
		s.trigger.request("behind its own write")
		return
	}
	cn := s.next()
	if cn == nil {
		return
	}
	err := s.client.Update(ctx, cn)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.from = versionOf(cn)
		return
	}
	s.doubt = !apierrors.IsConflict(err) && !apierrors.IsNotFound(err)
}

// caughtUp reports whether the watch has delivered the agent's own last write.
func (s *poolSession) caughtUp(ctx context.Context) bool {
	s.mu.Lock()
	doubt := s.doubt
	s.mu.Unlock()
	live := &ciliumv2.CiliumNode{}
	if doubt {
		err := s.client.Get(ctx, types.NamespacedName{Name: s.name}, live)
		if client.IgnoreNotFound(err) != nil {
			return false
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.from, s.doubt = max(s.from, versionOf(live)), false
	return s.seen == nil || versionOf(s.seen) >= s.from
}

// next returns the CiliumNode to write, or nil if it has not changed.
func (s *poolSession) next() *ciliumv2.CiliumNode {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen == nil {
		return nil
	}
	cn := s.seen.DeepCopy()
	cn.Spec.IPAM.Pools = multipool.Spec(s.store.update())
	if cn.Spec.IPAM.Pools.DeepEqual(&s.seen.Spec.IPAM.Pools) {
		return nil
	}
	return cn
}

func versionOf(o metav1.Object) uint64 {
	version, _ := strconv.ParseUint(o.GetResourceVersion(), 10, 64) // the API server's own
	return version
}
