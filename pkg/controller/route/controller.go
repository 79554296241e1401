// Package route announces the blocks of nodes by BGP: it maintains FRRConfigurations, and
// frr-k8s configures the FRR of each node by them.
package route

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/common"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/event"
	"github.com/cilium-pool/cilium-pool-operator/pkg/frrconfig"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

const (
	// announceWithin bounds the wait of addresses for the write of their route. A pod
	// without a route still serves its cluster, and the webhook of frr-k8s may itself be a pod that waits
	// for an address.
	announceWithin = 2 * time.Second
	// For announceAgain after a failure addresses do not wait.
	announceAgain = 30 * time.Second
	// writeTries bounds the writes of an object that lose a race.
	writeTries = 3
)

// Reconciler maintains the FRRConfigurations of nodes. They announce each block from before its first
// address is published until it cools down.
type Reconciler struct {
	// Cache reads Nodes from the informer, Live reads FRRConfigurations from the API server.
	Cache    client.Reader
	Live     client.Reader
	Client   client.Client
	Ledger   *state.Ledger
	Routes   *state.FRRConfigurations
	Events   *event.Recorder
	Counters *common.Counters
	Clock    clock.PassiveClock
	// Namespace is that of frr-k8s.
	Namespace string
	// ReadOnly stops all writes.
	ReadOnly bool

	// writing has a channel for each node whose routes are being written. It closes when they are.
	writing sync.Map

	mu sync.Mutex
	// retryAt is when addresses wait for the next write of a route. Zero: the last one succeeded.
	retryAt time.Time
}

// Reconcile writes the FRRConfigurations of one node, and reports the blocks that are not announced.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if err := r.Ledger.WaitReady(ctx); err != nil {
		return reconcile.Result{}, err
	}
	if r.ReadOnly {
		return reconcile.Result{}, nil
	}
	node, problem, err := r.syncRoutes(ctx, req.Name)
	if node == nil && err == nil {
		r.Events.ForgetResult(writesOf + req.Name)
		r.Events.Last.Changed(req.Name, topic, "")
		return reconcile.Result{}, nil
	}
	if node != nil {
		r.Events.ReportResult(writesOf+req.Name, err, func(*common.Refusal) runtime.Object { return node })
		if err == nil {
			r.report(node, problem)
		}
	}
	if lost(err) {
		return reconcile.Result{RequeueAfter: common.ConflictRetry}, nil
	}
	return reconcile.Result{}, err
}

const (
	writesOf = "route/"
	topic    = "route"
)

// report sends an event about a node with blocks that are not announced, once.
func (r *Reconciler) report(node *corev1.Node, problem string) {
	if problem == r.Events.Last.Text(node.Name, topic) {
		return
	}
	if problem == "" || r.Events.SendOften(node, nil, event.ReasonBlocksNotAnnounced, problem) {
		r.Events.Last.Changed(node.Name, topic, problem)
	}
}

// Announce writes the routes of a node just before its addresses are published. If that fails, the
// addresses are published all the same, and Reconcile tries again.
func (r *Reconciler) Announce(ctx context.Context, node string) {
	if r.ReadOnly || !r.mayTry() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, announceWithin)
	defer cancel()
	_, _, err := r.syncRoutes(ctx, node)
	r.noteResult(err)
	if err != nil {
		log.FromContext(ctx).Info("publishing addresses before their route", "reason", err.Error())
	}
}

// mayTry reports whether addresses wait for the write of their route. After a failure only one of them
// does from time to time.
func (r *Reconciler) mayTry() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.retryAt.IsZero() {
		return true
	}
	if r.Clock.Now().Before(r.retryAt) {
		return false
	}
	r.retryAt = r.Clock.Now().Add(announceAgain)
	return true
}

func (r *Reconciler) noteResult(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.retryAt = time.Time{}
	if err != nil && common.RefusalIn(err) == nil { // a refusal came at once, and may concern this node alone
		r.retryAt = r.Clock.Now().Add(announceAgain)
	}
}

// Announces reports whether the node still announces a block, so that no other node may have it.
func (r *Reconciler) Announces(node string, cidr netip.Prefix) bool {
	return !r.ReadOnly && r.Routes.Announces(node, cidr)
}

// syncRoutes writes the differences from the FRRConfigurations that a node should have. It returns the Node,
// or nil if it is gone, and the reason that a block is not announced.
func (r *Reconciler) syncRoutes(ctx context.Context, name string) (*corev1.Node, string, error) {
	done, err := r.lockNode(ctx, name)
	if err != nil {
		return nil, "", err
	}
	defer done()
	node := &corev1.Node{}
	err = r.Cache.Get(ctx, types.NamespacedName{Name: name}, node)
	if apierrors.IsNotFound(err) {
		node = nil
	} else if err != nil {
		return nil, "", fmt.Errorf("reading Node %s: %w", name, err)
	}
	blocks := r.blocks(name)
	if !r.Routes.Known() {
		if len(blocks) == 0 {
			return node, "", nil
		}
		return node, "the API server serves no FRRConfigurations, or the operator may not read those in namespace " + r.Namespace +
			": install frr-k8s there, or set bgp.frrK8s.namespace to its namespace", nil
	}
	var wanted []frrconfig.Want
	problem := ""
	if node != nil {
		wanted, problem = frrconfig.For(node, r.Routes.Templates(), blocks, r.Routes.HostnameHolder(name))
	}
	var failed error // one refused object stops no other
	for _, want := range wanted {
		taken, err := r.write(ctx, want, name)
		failed = errors.Join(failed, err)
		if taken {
			problem = "FRRConfiguration " + want.Name + " is not the operator's: rename it"
		}
	}
	for _, current := range r.Routes.OfNode(name) {
		if slices.ContainsFunc(wanted, func(w frrconfig.Want) bool { return w.Name == current.Name }) {
			continue
		}
		err := r.Client.Delete(ctx, frrconfig.Empty(r.Namespace, current.Name), client.Preconditions{UID: &current.UID, ResourceVersion: &current.ResourceVersion})
		failed = errors.Join(failed, client.IgnoreNotFound(r.Counters.CountWrite("FRRConfiguration", current.Name, "delete", err)))
	}
	return node, problem, failed
}

// lockNode waits until nobody else writes the routes of a node. Without it the queue and Announce would
// patch the same version, and the API server would refuse one of the patches.
func (r *Reconciler) lockNode(ctx context.Context, node string) (done func(), err error) {
	released := make(chan struct{})
	for {
		writer, busy := r.writing.LoadOrStore(node, released)
		if !busy {
			return func() { r.writing.Delete(node); close(released) }, nil
		}
		select {
		case <-writer.(chan struct{}):
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for another write of the routes of %s: %w", node, ctx.Err())
		}
	}
}

// blocks returns the blocks of a node that a pod may have an address of, now or once the next addresses
// are published.
func (r *Reconciler) blocks(node string) []netip.Prefix {
	cn := r.Ledger.CiliumNode(node)
	var out []netip.Prefix
	for _, b := range r.Ledger.NodeBlocks(node) {
		if cn.ListsInAnyPool(b.CIDR) || b.Phase != ipalloc.CoolingDown && len(r.Ledger.Overlaps(b.CIDR)) == 0 {
			out = append(out, b.CIDR)
		}
	}
	slices.SortFunc(out, netip.Prefix.Compare)
	return out
}

// write creates or patches an object unless it is as wanted. It reports whether the name is taken by an
// object that is not the operator's for this node.
func (r *Reconciler) write(ctx context.Context, want frrconfig.Want, node string) (taken bool, err error) {
	current := r.Routes.Get(want.Name)
	for range writeTries {
		switch {
		case current == nil:
			err = r.Counters.CountWrite("FRRConfiguration", want.Name, "create", r.Client.Create(ctx, want.New(r.Namespace)))
		case !current.Ours || current.Node != node:
			return true, nil
		case want.Is(current):
			return false, nil
		default:
			var patch []byte
			if patch, err = want.Patch(current); err == nil {
				obj := frrconfig.Empty(r.Namespace, want.Name)
				err = r.Counters.CountWrite("FRRConfiguration", want.Name, "patch", r.Client.Patch(ctx, obj, client.RawPatch(types.JSONPatchType, patch)))
				if err == nil { // or the next look would write it again
					r.Routes.Patched(frrconfig.Read(obj))
				}
			}
		}
		if !lost(err) && (current == nil || !apierrors.IsNotFound(err)) {
			return false, err
		}
		live := frrconfig.Empty(r.Namespace, want.Name)
		getErr := r.Live.Get(ctx, client.ObjectKeyFromObject(live), live)
		if client.IgnoreNotFound(getErr) != nil {
			return false, fmt.Errorf("reading FRRConfiguration %s: %w", want.Name, getErr)
		}
		current = nil
		if getErr == nil {
			current = frrconfig.Read(live)
		}
	}
	return false, err
}

// lost reports whether a write lost against another. A create without its kind or namespace did not.
func lost(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }
