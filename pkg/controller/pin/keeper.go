package pin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumpool"
	"github.com/cilium-pool/cilium-pool-operator/pkg/config"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/common"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/event"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// Keeper makes a pin for each pod that a pool keeps an address for (spec.podAddresses), and deletes it once
// there has been no pod of that name for long enough. It writes nothing but pins. Their names
// follow from their addresses, so two leaders pin no address for two pods; of two pins for one pod, one goes.
type Keeper struct {
	Cache, Live client.Reader
	Client      client.Client
	Ledger      *state.Ledger
	Pools       *state.Pools
	Pods        *state.Pods
	CiliumPools *state.CiliumPools
	Events      *event.Recorder
	Counters    *common.Counters
	Clock       clock.PassiveClock
	// ReadOnly stops all writes.
	ReadOnly bool

	pools        []*crd.Pool           // with podAddresses, best first
	made         map[podFamily]madePin // until the watch shows them
	seen         map[string]time.Time  // when there was a pod of a name last
	notified     map[types.UID]string  // the last event of each pod without an address
	perNamespace map[namespaceIn]int   // the addresses of each namespace in each pool
	// spaces are the namespaces of this look; nil: not listed.
	spaces *corev1.NamespaceList
}

type podFamily struct {
	pod    string // namespace/name
	family ipalloc.Family
}

type madePin struct {
	cidr     netip.Prefix
	reserved bool
	time     time.Time
}

const (
	// nodeAgain is when to ask again for a pod on a node that no pool with an address for it serves, as far
	// as the watch shows the node.
	nodeAgain = 10 * time.Second
	// shownWithin is the time in which the watch shows a new pin, or its deletion.
	shownWithin = time.Minute
	// neverHeldFor is how long a pin stays that no node has ever held.
	neverHeldFor = time.Minute
	// liveInterval is the least interval of live reads about the pod of a pin.
	liveInterval = time.Minute
)

// maxSelected is the longest value of a label, which selectors compare names with.
const maxSelected = 63

// Reconcile makes and deletes pins for all pods, for any request.
func (k *Keeper) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	if err := k.Ledger.WaitReady(ctx); err != nil {
		return reconcile.Result{}, err
	}
	if k.pools = k.Pools.WithPodAddresses(); k.ReadOnly || !k.CiliumPools.Known() {
		return reconcile.Result{}, nil
	}
	list := &v1alpha1.PodIPPinList{}
	if err := k.Cache.List(ctx, list); err != nil {
		return reconcile.Result{}, fmt.Errorf("listing pins: %w", err)
	}
	k.forget()
	k.spaces = nil
	var errs []error
	var pods []state.NamedPod
	if len(k.pools) > 0 {
		pods = k.Pods.Named(k.CiliumPools.Picking())
		k.countKept(list.Items)
	}
	notified := map[types.UID]string{}
	wait := time.Duration(0)
	for i := range pods {
		pod := &pods[i]
		reason, requeue, err := k.ensurePins(ctx, pod)
		if reason != "" && (k.notified[pod.UID()] == reason || k.notify(pod, reason)) {
			notified[pod.UID()] = reason
		}
		if err != nil && !isAnswer(err) {
			return reconcile.Result{}, err
		}
		k.seen[pod.Name] = k.Clock.Now()
		wait = common.Sooner(wait, requeue)
		errs = append(errs, err)
	}
	if k.notified = notified; len(k.made) > 0 {
		wait = common.Sooner(wait, shownWithin)
	}
	for _, pins := range byPod(list.Items) {
		requeue, err := k.deletePins(ctx, pins)
		wait = common.Sooner(wait, requeue)
		errs = append(errs, err)
	}
	maps.DeleteFunc(k.seen, func(pod string, _ time.Time) bool { return len(k.Ledger.Pins.Of(pod)) == 0 })
	err := errors.Join(errs...)
	k.Events.ReportResult("podAddresses", err, func(refusal *common.Refusal) runtime.Object {
		if refusal == nil {
			return nil
		}
		return &v1alpha1.PodIPPin{ObjectMeta: metav1.ObjectMeta{Name: refusal.Name}}
	})
	return reconcile.Result{RequeueAfter: wait}, err
}

// isAnswer reports whether the API server has answered a write, so that one for another pod may fare better.
func isAnswer(err error) bool {
	var answer apierrors.APIStatus
	overloaded := apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err)
	return errors.As(err, &answer) && !overloaded || common.IsUnsent(err)
}

// forget forgets the new pins that the watch has shown, or that were deleted before it could.
func (k *Keeper) forget() {
	if k.made == nil {
		k.made = map[podFamily]madePin{}
		k.seen = map[string]time.Time{}
	}
	maps.DeleteFunc(k.made, func(_ podFamily, made madePin) bool {
		obsolete := len(k.Ledger.Pins.In(made.cidr)) > 0 || k.Clock.Since(made.time) >= shownWithin
		if obsolete && made.reserved {
			k.Ledger.Pins.Unreserve(made.cidr)
		}
		return obsolete
	})
}

// poolsFor returns the pools that keep an address for a pod on its node, best first. If none does, requeue is
// when to ask again; 0: an event brings the next look.
func (k *Keeper) poolsFor(ctx context.Context, pod *state.NamedPod) (pools []*crd.Pool, requeue time.Duration) {
	if pod.NamesPool() {
		return nil, 0
	}
	for _, pool := range k.pools {
		if pool.Picks(pod.Labels, pod.Namespace) {
			pools = append(pools, pool)
		}
	}
	if len(pools) == 0 {
		return nil, 0
	}
	node := &corev1.Node{}
	if err := k.Cache.Get(ctx, types.NamespacedName{Name: pod.Node}, node); err != nil {
		return nil, nodeAgain // the watch will show the Node
	}
	pools = slices.DeleteFunc(pools, func(pool *crd.Pool) bool { return !pool.Selects(labels.Set(node.Labels)) })
	if len(pools) == 0 {
		return nil, nodeAgain
	}
	return pools, 0
}

// ensurePins makes the pins that a pod lacks, or returns why it cannot, and when to ask again.
func (k *Keeper) ensurePins(ctx context.Context, pod *state.NamedPod) (reason string, requeue time.Duration, err error) {
	pools, requeue := k.poolsFor(ctx, pod)
	if len(pools) == 0 || pools[0].Paused {
		return "", requeue, nil
	}
	if _, name, _ := strings.Cut(pod.Name, "/"); len(name) > maxSelected {
		return fmt.Sprintf("no address is kept for its name: CiliumPodIPPools select no pod with a name of more than %d characters", maxSelected), 0, nil
	}
	if others := pod.OtherCandidates(); len(others) > 0 {
		return "no address is kept for its name: CiliumPodIPPool " + others[0] + " selects it, too, and agents accept only one", 0, nil
	}
	for _, f := range ipalloc.Families() {
		cidr, err := k.pin(ctx, podFamily{pod.Name, f}, pod.IPs, pools)
		switch {
		case errors.Is(err, ipalloc.ErrExhausted):
			reason = fmt.Sprintf("no %s address is free for its name in PodIPPool %s: add a CIDR, or delete PodIPPins of pods that are gone", f, pools[0].Name)
		case errors.Is(err, errShare):
			reason = fmt.Sprintf("no %s address is kept for its name: its namespace keeps half of PodIPPool %s already. Delete PodIPPins of pods that are gone, add a CIDR, or let spec.podAddresses select one namespace", f, pools[0].Name)
		case apierrors.IsAlreadyExists(err): // the watch is about to show it
			requeue = common.WatchRetry
		case err != nil:
			return reason, requeue, err
		case cidr.IsValid() && !pod.Strict:
			k.notify(pod, fmt.Sprintf("from now on %s is kept for its name; this pod may have another address, as neither it nor its namespace has the annotation %s: \"true\"", cidr.Addr(), state.RequireAnnotation))
		}
	}
	return reason, requeue, nil
}

// pin makes a pin, unless there is one: of the address that the pod has had by an earlier pin, unless that
// drains, or of the lowest free one.
func (k *Keeper) pin(ctx context.Context, key podFamily, addrs []netip.Addr, pools []*crd.Pool) (cidr netip.Prefix, err error) {
	if _, made := k.made[key]; made || slices.ContainsFunc(k.Ledger.Pins.Of(key.pod), key.contains) {
		return cidr, nil
	}
	cidr = k.earlier(key, addrs, pools)
	reserved := !cidr.IsValid()
	if reserved {
		cidr, err = k.reserve(ctx, key, pools)
	}
	if !cidr.IsValid() {
		return cidr, err
	}
	obj := &v1alpha1.PodIPPin{ObjectMeta: metav1.ObjectMeta{
		Name: crd.BlockName(cidr), Labels: map[string]string{ciliumpool.ManagedByLabel: ciliumpool.ManagedBy},
	}}
	obj.Spec.CIDR = cidr.String()
	obj.Spec.PodNamespace, obj.Spec.PodName, _ = strings.Cut(key.pod, "/")
	if err := k.Counters.CountWrite("PodIPPin", obj.Name, "create", k.Client.Create(ctx, obj)); err != nil {
		if reserved { // if it was created all the same, the watch shows it
			k.Ledger.Pins.Unreserve(cidr)
		}
		return cidr, err
	}
	line := config.HolderLine{Address: cidr.Addr(), Pod: key.pod}
	log.FromContext(ctx).Info(config.AddressKept, line.KeysAndValues()...)
	k.made[key] = madePin{cidr, reserved, k.Clock.Now()}
	k.count(key, cidr)
	return cidr, nil
}

// reserve reserves the lowest free address of the first pool that has one for the pod's namespace.
func (k *Keeper) reserve(ctx context.Context, key podFamily, pools []*crd.Pool) (cidr netip.Prefix, err error) {
	namespace, _, _ := strings.Cut(key.pod, "/")
	for _, pool := range pools {
		if _, ok := pool.Ranges(key.family); !ok || pool.Paused {
			continue
		}
		share, shareErr := k.shareOf(ctx, pool, key.family)
		if shareErr != nil {
			return cidr, shareErr
		}
		if k.perNamespace[namespaceIn{namespace, pool.Name, key.family}] >= share {
			err = errShare
			continue
		}
		if cidr, err = k.Ledger.Pins.Reserve(key.family, pool); err == nil {
			return cidr, nil
		}
	}
	return cidr, err
}

// earlier returns the address that a pod has by an earlier pin, unless it drains.
func (k *Keeper) earlier(key podFamily, addrs []netip.Addr, pools []*crd.Pool) (cidr netip.Prefix) {
	for _, addr := range addrs {
		block, _ := k.Ledger.Block(netip.PrefixFrom(addr, addr.BitLen()))
		stays := func(pool *crd.Pool) bool { return pool.OnGrid(block.CIDR) && !pool.Drains(block.CIDR) }
		if crd.PodOfPool(block.CiliumPool) == key.pod && key.contains(block.CIDR) && len(k.Ledger.Pins.In(block.CIDR)) == 0 && slices.ContainsFunc(pools, stays) {
			cidr = block.CIDR
		}
	}
	return cidr
}

// contains reports whether an address is of the family.
func (key podFamily) contains(cidr netip.Prefix) bool {
	return ipalloc.FamilyOf(cidr.Addr()) == key.family
}

func (k *Keeper) notify(pod *state.NamedPod, reason string) bool {
	namespace, name, _ := strings.Cut(pod.Name, "/")
	subject := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: pod.UID()}}
	return k.Events.SendOften(subject, nil, event.ReasonAddressNotKept, reason)
}

// byPod groups pins by pod and family. The first of each counts: a person's, else the oldest.
func byPod(pins []v1alpha1.PodIPPin) map[podFamily][]*v1alpha1.PodIPPin {
	out := map[podFamily][]*v1alpha1.PodIPPin{}
	for i := range pins {
		if pin, err := crd.PinFrom(&pins[i]); err == nil && pin.Pod != "" {
			key := podFamily{pin.Pod, ipalloc.FamilyOf(pin.CIDR.Addr())}
			out[key] = append(out[key], &pins[i])
		}
	}
	ours := map[bool]int{true: 1}
	for _, podPins := range out {
		slices.SortFunc(podPins, func(a, b *v1alpha1.PodIPPin) int {
			return cmp.Or(ours[isOurs(a)]-ours[isOurs(b)], a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
		})
	}
	return out
}

func isOurs(pin *v1alpha1.PodIPPin) bool {
	return pin.Labels[ciliumpool.ManagedByLabel] == ciliumpool.ManagedBy
}

// deletePins deletes the pins of one pod and family that the operator made and that count no more. It returns the
// time until the next look, unless an event brings it.
func (k *Keeper) deletePins(ctx context.Context, pins []*v1alpha1.PodIPPin) (requeue time.Duration, err error) {
	var errs []error
	for i, obj := range pins {
		if !isOurs(obj) || obj.DeletionTimestamp != nil {
			continue
		}
		pin, _ := crd.PinFrom(obj) // byPod has read it
		due := i > 0 && (isOurs(pins[0]) || isUsable(pins[0]))
		if !due {
			var next time.Duration
			due, next, err = k.isDue(ctx, obj, pin)
			requeue = common.Sooner(requeue, next)
			errs = append(errs, err)
		}
		if !due {
			continue
		}
		line := config.HolderLine{Address: pin.CIDR.Addr(), Pod: pin.Pod}
		log.FromContext(ctx).Info(config.AddressReleased, line.KeysAndValues()...)
		err = k.Client.Delete(ctx, obj, client.Preconditions{UID: &obj.UID, ResourceVersion: &obj.ResourceVersion})
		if err = k.Counters.CountWrite("PodIPPin", obj.Name, "delete", err); !apierrors.IsConflict(err) {
			errs = append(errs, client.IgnoreNotFound(err))
		}
	}
	return requeue, errors.Join(errs...)
}

// isUsable reports whether a pin's pod has its address or can get it.
func isUsable(pin *v1alpha1.PodIPPin) bool {
	ready := meta.FindStatusCondition(pin.Status.Conditions, v1alpha1.PinReady)
	return ready != nil && (ready.Status == metav1.ConditionTrue || ready.Reason == v1alpha1.PinNotClaimed)
}

// mayRelease reports whether the pool of a pin, nil if it has none, lets the pin end.
func (k *Keeper) mayRelease(pool *crd.Pool) bool {
	isInvalid := func(name string) bool { return k.Pools.Invalid(name) != nil }
	if pool == nil {
		return !slices.ContainsFunc(k.Pools.Names(), isInvalid) // one of them may have it
	}
	return !pool.Paused && !isInvalid(pool.Name)
}

// isDue reports whether a pin has no use any more: no node holds its address in service, and its pool drains
// it, or for releaseAfter there has been neither a pod nor a node with it. Where no pool has or keeps the
// address any more, that is the default.
func (k *Keeper) isDue(ctx context.Context, obj *v1alpha1.PodIPPin, pin crd.Pin) (due bool, requeue time.Duration, err error) {
	ready := meta.FindStatusCondition(obj.Status.Conditions, v1alpha1.PinReady)
	if ready == nil || ready.Status != metav1.ConditionFalse {
		return false, 0, nil
	}
	pool := poolOf(k.Pools, pin)
	if !k.mayRelease(pool) {
		return false, 0, nil
	}
	rule := &crd.PodAddresses{ReleaseAfter: crd.DefaultReleaseAfter}
	if pool != nil {
		if pool.Drains(pin.CIDR) || pool.Deleting {
			return true, 0, nil
		}
		if pool.PodAddresses != nil {
			rule = pool.PodAddresses
		}
	}
	if neverHeld(obj, ready) {
		rule = &crd.PodAddresses{ReleaseAfter: neverHeldFor}
	}
	if rule.Never {
		return false, 0, nil
	}
	begin := k.Ledger.NotInFuture(obj.UID, ready.LastTransitionTime.Time)
	if seen := k.seen[pin.Pod]; seen.After(begin) {
		begin = seen
	}
	if rest := rule.ReleaseAfter - k.Clock.Since(begin); rest > 0 {
		return false, rest, nil
	}
	if due, err = k.isGone(ctx, pin.Pod); err == nil && !due {
		k.seen[pin.Pod] = k.Clock.Now()
		requeue = max(rule.ReleaseAfter, liveInterval)
	}
	return due, requeue, err
}

// neverHeld reports whether no node has held the address of a pin that is not held: its condition is as
// old as the pin. A held address would have cooled down since.
func neverHeld(obj *v1alpha1.PodIPPin, ready *metav1.Condition) bool {
	return ready.LastTransitionTime.Sub(obj.CreationTimestamp.Time) < crd.MinMultiPoolCooldown
}

// isGone reports whether there is no pod of a name, bound or not. The watch shows bound ones only.
func (k *Keeper) isGone(ctx context.Context, pod string) (bool, error) {
	namespace, name, _ := strings.Cut(pod, "/")
	pods := &corev1.PodList{}
	if err := k.Live.List(ctx, pods, client.InNamespace(namespace), client.MatchingFields{"metadata.name": name}, client.Limit(1)); err != nil {
		return false, fmt.Errorf("looking for pod %s: %w", pod, err)
	}
	return len(pods.Items) == 0, nil
}
