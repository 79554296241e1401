package pin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumpool"
	"github.com/cilium-pool/cilium-pool-operator/pkg/config"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/common"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// byOwner groups pins by owner and family. The first of each counts: a person's, else the oldest.
func byOwner(pins []v1alpha1.PodIPPin) map[ownerFamily][]*v1alpha1.PodIPPin {
	out := map[ownerFamily][]*v1alpha1.PodIPPin{}
	for i := range pins {
		if pin, err := crd.PinFrom(&pins[i]); err == nil && pin.Owner != "" {
			key := ownerFamily{pin.Owner, ipalloc.FamilyOf(pin.CIDR.Addr())}
			out[key] = append(out[key], &pins[i])
		}
	}
	ours := map[bool]int{true: 1}
	for _, ownerPins := range out {
		slices.SortFunc(ownerPins, func(a, b *v1alpha1.PodIPPin) int {
			return cmp.Or(ours[ciliumpool.IsOurs(a)]-ours[ciliumpool.IsOurs(b)], a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
		})
	}
	return out
}

// deletePins deletes the pins of one owner and family that the operator made and that count no more. It returns the
// time until the next look, unless an event brings it.
func (k *Keeper) deletePins(ctx context.Context, pins []*v1alpha1.PodIPPin) (requeue time.Duration, err error) {
	var errs []error
	for i, obj := range pins {
		if !ciliumpool.IsOurs(obj) || obj.DeletionTimestamp != nil {
			continue
		}
		pin, _ := crd.PinFrom(obj) // byOwner has read it
		due := i > 0 && (ciliumpool.IsOurs(pins[0]) || isUsable(pins[0]))
		if !due {
			var next time.Duration
			due, next, err = k.isDue(ctx, obj, pin)
			requeue = common.Sooner(requeue, next)
			errs = append(errs, err)
		}
		if !due {
			continue
		}
		line := config.HolderLine{Address: pin.CIDR.Addr(), Owner: pin.Owner}
		log.FromContext(ctx).Info(config.AddressReleased, line.KeysAndValues()...)
		err = k.Client.Delete(ctx, obj, client.Preconditions{UID: &obj.UID, ResourceVersion: &obj.ResourceVersion})
		if err = k.Counters.CountWrite("PodIPPin", obj.Name, "delete", err); !apierrors.IsConflict(err) {
			errs = append(errs, client.IgnoreNotFound(err))
		}
	}
	return requeue, errors.Join(errs...)
}

// isUsable reports whether a pin's owner has its address or can get it.
func isUsable(pin *v1alpha1.PodIPPin) bool {
	ready := meta.FindStatusCondition(pin.Status.Conditions, v1alpha1.PinReady)
	return ready != nil && (ready.Status == metav1.ConditionTrue || ready.Reason == v1alpha1.PinNotClaimed)
}

// isDue reports whether a pin has no use any more: no node holds its address in service, and its pool drains
// it, or for releaseAfter there has been neither a pod nor a node with it.
func (k *Keeper) isDue(ctx context.Context, obj *v1alpha1.PodIPPin, pin crd.Pin) (due bool, requeue time.Duration, err error) {
	ready := meta.FindStatusCondition(obj.Status.Conditions, v1alpha1.PinReady)
	if ready == nil || ready.Status != metav1.ConditionFalse {
		return false, 0, nil
	}
	release := k.Pools.ReleaseOf(obj, pin)
	if release.Stays != "" || release.Leaves {
		return release.Leaves, 0, nil
	}
	begin := k.Ledger.NotInFuture(obj.UID, ready.LastTransitionTime.Time)
	if seen := k.seen[pin.Owner]; seen.After(begin) {
		begin = seen
	}
	if rest := release.After - k.Clock.Since(begin); rest > 0 {
		return false, rest, nil
	}
	if due, err = k.isGone(ctx, pin.Owner); err == nil && !due {
		k.seen[pin.Owner] = k.Clock.Now()
		requeue = max(release.After, liveInterval)
	}
	return due, requeue, err
}

// isGone reports whether an owner has no pod, bound or not. The watch shows bound ones only.
func (k *Keeper) isGone(ctx context.Context, owner string) (bool, error) {
	namespace, key, value := crd.SplitOwner(owner)
	var only client.ListOption = client.MatchingFields{"metadata.name": value}
	if key != "" {
		only = client.MatchingLabels{key: value}
	}
	pods := &corev1.PodList{}
	if err := k.Live.List(ctx, pods, client.InNamespace(namespace), only, client.Limit(1)); err != nil {
		return false, fmt.Errorf("looking for %s: %w", crd.OwnerWords(owner), err)
	}
	return len(pods.Items) == 0, nil
}
