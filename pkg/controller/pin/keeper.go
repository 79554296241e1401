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

// Keeper makes a pin for the owner of each pod that a pool keeps an address for (spec.podAddresses), and deletes it once
// the owner has had no pod for long enough. It writes nothing but pins. Their names follow from their addresses, so two
// leaders pin no address for two owners; of two pins for one owner, one goes.
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

	pools        []*crd.Pool             // with podAddresses, best first
	made         map[ownerFamily]madePin // until the watch shows them
	seen         map[string]time.Time    // when an owner had a pod last
	notified     map[types.UID]string    // the last event of each pod without an address
	perNamespace map[namespaceIn]int     // the addresses of each namespace in each pool
	// spaces are the namespaces of this look; nil: not listed.
	spaces *corev1.NamespaceList
}

type ownerFamily struct {
	owner  string
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
	// liveInterval is the least interval of live reads about the pods of an owner.
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
	pods := k.Pods.OfOwners(k.CiliumPools.Picking())
	holders := state.HoldersOf(pods)
	k.countKept(list.Items)
	notified := map[types.UID]string{}
	wait := time.Duration(0)
	for i := range pods {
		pod := &pods[i]
		why, requeue, err := k.ensurePins(ctx, pod)
		if told := k.tell(pod, why, holders.WaitsFor(pod, k.Ledger.Pins)); told != "" {
			notified[pod.UID()] = told
		}
		if err != nil && !isAnswer(err) {
			return reconcile.Result{}, err
		}
		k.see(pod)
		wait = common.Sooner(wait, requeue)
		errs = append(errs, err)
	}
	if k.notified = notified; len(k.made) > 0 {
		wait = common.Sooner(wait, shownWithin)
	}
	for _, pins := range byOwner(list.Items) {
		requeue, err := k.deletePins(ctx, pins)
		wait = common.Sooner(wait, requeue)
		errs = append(errs, err)
	}
	maps.DeleteFunc(k.seen, func(owner string, _ time.Time) bool { return len(k.Ledger.Pins.Of(owner)) == 0 })
	err := errors.Join(errs...)
	k.Events.ReportResult("podAddresses", err, func(refusal *common.Refusal) runtime.Object {
		if refusal == nil {
			return nil
		}
		return &v1alpha1.PodIPPin{ObjectMeta: metav1.ObjectMeta{Name: refusal.Name}}
	})
	return reconcile.Result{RequeueAfter: wait}, err
}

// see notes that the owners that a pod may be of have a pod now.
func (k *Keeper) see(pod *state.OwnerPod) {
	for _, owner := range pod.Owners {
		k.seen[owner] = k.Clock.Now()
	}
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
		k.made = map[ownerFamily]madePin{}
		k.seen = map[string]time.Time{}
	}
	maps.DeleteFunc(k.made, func(_ ownerFamily, made madePin) bool {
		obsolete := len(k.Ledger.Pins.In(made.cidr)) > 0 || k.Clock.Since(made.time) >= shownWithin
		if obsolete && made.reserved {
			k.Ledger.Pins.Unreserve(made.cidr)
		}
		return obsolete
	})
}

// poolsFor returns the pools that keep an address for the owner of a pod on its node, best first, and that owner. If none
// does, requeue is when to ask again; 0: an event brings the next look.
func (k *Keeper) poolsFor(ctx context.Context, pod *state.OwnerPod) (pools []*crd.Pool, owner string, requeue time.Duration) {
	if pod.NamesPool() {
		return nil, "", 0
	}
	for _, pool := range k.pools {
		if pool.Picks(pod.Labels, pod.Namespace) && pod.OwnerBy(pool.PodAddresses.OwnerLabel) != "" {
			pools = append(pools, pool)
		}
	}
	if len(pools) == 0 {
		return nil, "", 0
	}
	node := &corev1.Node{}
	if err := k.Cache.Get(ctx, types.NamespacedName{Name: pod.Node}, node); err != nil {
		return nil, "", nodeAgain // the watch will show the Node
	}
	pools = slices.DeleteFunc(pools, func(pool *crd.Pool) bool { return !pool.Selects(labels.Set(node.Labels)) })
	if len(pools) == 0 {
		return nil, "", nodeAgain
	}
	owner = pod.OwnerBy(pools[0].PodAddresses.OwnerLabel)
	pools = slices.DeleteFunc(pools, func(pool *crd.Pool) bool { return pod.OwnerBy(pool.PodAddresses.OwnerLabel) != owner })
	return pools, owner, 0
}

// unkeepable returns why no address can be kept for the owner of a pod; "": one can.
func unkeepable(pod *state.OwnerPod, owner string) string {
	_, key, value := crd.SplitOwner(owner)
	switch {
	case pod.Unreadable != "":
		return fmt.Sprintf("no address is kept for %s: in its annotation %s, %s", crd.OwnerWords(owner), state.AddressAnnotation, pod.Unreadable)
	case key == "" && len(value) > maxSelected:
		return fmt.Sprintf("no address is kept for its name: CiliumPodIPPools select no pod with a name of more than %d characters", maxSelected)
	case key != "" && !crd.IsOwnerValue(value):
		return fmt.Sprintf("no address is kept for its label %s: the value %q must be lower case letters, digits, '-' and '.', as the name of a CiliumPodIPPool contains it", key, value)
	}
	if others := pod.OtherCandidates(owner); len(others) > 0 {
		return fmt.Sprintf("no address is kept for %s: CiliumPodIPPool %s selects this pod, too, and agents accept only one", crd.OwnerWords(owner), others[0])
	}
	return ""
}

// ensurePins makes the pins that the owner of a pod lacks, or returns why it cannot, and when to ask again.
func (k *Keeper) ensurePins(ctx context.Context, pod *state.OwnerPod) (reason string, requeue time.Duration, err error) {
	pools, owner, requeue := k.poolsFor(ctx, pod)
	if len(pools) == 0 || pools[0].Paused {
		return "", requeue, nil
	}
	if reason := unkeepable(pod, owner); reason != "" {
		return reason, 0, nil
	}
	for _, f := range ipalloc.Families() {
		cidr, err := k.pin(ctx, ownerFamily{owner, f}, pod, pools)
		var refusal addressRefused
		switch {
		case errors.As(err, &refusal):
			reason = refusal.Error()
		case errors.Is(err, ipalloc.ErrExhausted):
			reason = fmt.Sprintf("no %s address is free for %s in PodIPPool %s: add a CIDR, or delete PodIPPins of owners that are gone", f, crd.OwnerWords(owner), pools[0].Name)
		case errors.Is(err, errShare):
			reason = fmt.Sprintf("no %s address is kept for %s: its namespace keeps half of PodIPPool %s already. Delete PodIPPins of owners that are gone, add a CIDR, or let spec.podAddresses select one namespace", f, crd.OwnerWords(owner), pools[0].Name)
		case apierrors.IsAlreadyExists(err): // the watch is about to show it
			requeue = common.WatchRetry
		case err != nil:
			return reason, requeue, err
		case cidr.IsValid() && !pod.Strict:
			k.notify(pod, event.ReasonAddressNotKept, fmt.Sprintf("from now on %s is kept for %s; this pod may have another address, as neither it nor its namespace has the annotation %s: \"true\"", cidr.Addr(), crd.OwnerWords(owner), state.RequireAnnotation))
		}
	}
	return reason, requeue, nil
}

// pin makes a pin, unless there is one: of the address that the pod names, else of the one that a pod of the owner has had
// by an earlier pin, unless that drains, else of the lowest free one.
func (k *Keeper) pin(ctx context.Context, key ownerFamily, pod *state.OwnerPod, pools []*crd.Pool) (cidr netip.Prefix, err error) {
	wanted := pod.Wanted[key.family]
	if _, made := k.made[key]; made || slices.ContainsFunc(k.Ledger.Pins.Of(key.owner), key.contains) {
		return cidr, k.keepsAnother(key, wanted)
	}
	cidr = k.earlier(key, pod.IPs, pools)
	if wanted.IsValid() && cidr.Addr() != wanted {
		cidr = netip.Prefix{}
	}
	reserved := !cidr.IsValid()
	if reserved {
		cidr, err = k.reserve(ctx, key, wanted, pools)
	}
	if !cidr.IsValid() {
		return cidr, err
	}
	obj := &v1alpha1.PodIPPin{ObjectMeta: metav1.ObjectMeta{
		Name: crd.BlockName(cidr), Labels: map[string]string{ciliumpool.ManagedByLabel: ciliumpool.ManagedBy},
	}}
	obj.Spec = crd.PinSpec(cidr, key.owner)
	if err := k.Counters.CountWrite("PodIPPin", obj.Name, "create", k.Client.Create(ctx, obj)); err != nil {
		if reserved { // if it was created all the same, the watch shows it
			k.Ledger.Pins.Unreserve(cidr)
		}
		return cidr, err
	}
	line := config.HolderLine{Address: cidr.Addr(), Owner: key.owner}
	log.FromContext(ctx).Info(config.AddressKept, line.KeysAndValues()...)
	k.made[key] = madePin{cidr, reserved, k.Clock.Now()}
	k.count(key, cidr)
	return cidr, nil
}

// reserve reserves the wanted address, or if it is invalid the lowest free one, of the first pool that has it for the
// owner's namespace.
func (k *Keeper) reserve(ctx context.Context, key ownerFamily, wanted netip.Addr, pools []*crd.Pool) (cidr netip.Prefix, err error) {
	namespace, _, _ := crd.SplitOwner(key.owner)
	single := netip.PrefixFrom(wanted, wanted.BitLen())
	if wanted.IsValid() {
		err = addressRefused(fmt.Sprintf("%s is in no PodIPPool that keeps addresses for %s", wanted, crd.OwnerWords(key.owner)))
	}
	for _, pool := range pools {
		if _, ok := pool.Ranges(key.family); !ok || pool.Paused || wanted.IsValid() && !pool.OnGrid(single) {
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
		if wanted.IsValid() {
			if err := k.Ledger.Pins.ReserveOne(single, pool); err != nil {
				return netip.Prefix{}, addressRefused(k.whyRefused(single, pool))
			}
			return single, nil
		}
		if cidr, err = k.Ledger.Pins.Reserve(key.family, pool); err == nil {
			return cidr, nil
		}
	}
	return cidr, err
}

// earlier returns the address that a pod of an owner has by an earlier pin, unless it drains.
func (k *Keeper) earlier(key ownerFamily, addrs []netip.Addr, pools []*crd.Pool) (cidr netip.Prefix) {
	for _, addr := range addrs {
		block, _ := k.Ledger.Block(netip.PrefixFrom(addr, addr.BitLen()))
		stays := func(pool *crd.Pool) bool { return pool.OnGrid(block.CIDR) && !pool.Drains(block.CIDR) }
		if crd.OwnerOfPool(block.CiliumPool) == key.owner && key.contains(block.CIDR) && len(k.Ledger.Pins.In(block.CIDR)) == 0 && slices.ContainsFunc(pools, stays) {
			cidr = block.CIDR
		}
	}
	return cidr
}

// contains reports whether an address is of the family.
func (key ownerFamily) contains(cidr netip.Prefix) bool {
	return ipalloc.FamilyOf(cidr.Addr()) == key.family
}

// tell sends an event of a pod once, why no address is kept for its owner, else what it waits for. It returns the note that
// the pod has; "": none.
func (k *Keeper) tell(pod *state.OwnerPod, why, waitsFor string) string {
	note := cmp.Or(why, waitsFor)
	reason := event.ReasonAddressNotKept
	if why == "" {
		reason = event.ReasonAddressInUse
	}
	if note == "" || k.notified[pod.UID()] != note && !k.notify(pod, reason, note) {
		return ""
	}
	return note
}

func (k *Keeper) notify(pod *state.OwnerPod, why, note string) bool {
	namespace, name, _ := strings.Cut(pod.Name, "/")
	subject := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: pod.UID()}}
	return k.Events.SendOften(subject, nil, why, note)
}
