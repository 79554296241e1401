package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/yaml"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/common"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/event"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

const (
	initialPoolsRetry    = 2 * time.Second
	initialPoolsMaxRetry = time.Minute
)

// InitialPools creates the pools of a first installation. Helm cannot create an
// object together with its CRD, so the chart puts the pools of its values into a
// ConfigMap; each is created once, as soon as its kind is served.
//
// The writes for a pool, each conditional and safe to repeat:
//
//  1. Create it, with the finalizer that the pool's reconciler would add.
//  2. Hand the values' fields over to Helm's field manager (see handedOver).
//  3. Record its name on the ConfigMap.
//
// A pool without a record is created, so none is lost to a crash. A pool that was
// created but not yet recorded cannot go away either: its finalizer stays until
// the record is there (state.Unrecorded), so a deleted pool is never created again.
type InitialPools struct {
	// ConfigMap has a PodIPPool as YAML under each key, which is the pool's name.
	ConfigMap client.ObjectKey
	// Live reads from the API server.
	Live   client.Reader
	Client client.Client
	Events *event.Recorder
	Shared *common.Shared
	// Unrecorded learns which pools lack their record.
	Unrecorded *state.Unrecorded
}

// Start creates the pools and returns once all are recorded. As a manager's
// Runnable it runs on the leader alone.
func (p *InitialPools) Start(ctx context.Context) error {
	logger := log.FromContext(ctx).WithName("initial-pools")
	ctx = log.IntoContext(ctx, logger)
	for wait := initialPoolsRetry; ; wait = min(2*wait, initialPoolsMaxRetry) {
		left, err := p.createAll(ctx)
		if ctx.Err() != nil || err == nil && left == 0 {
			return nil //nolint:nilerr // the operator is being stopped
		}
		switch {
		case notServed(err):
			wait = initialPoolsRetry // the log names the missing ones: see Prerequisites
		case err != nil:
			logger.Error(err, "pools of the chart's values are not all created yet; trying again", "configMap", p.ConfigMap.String())
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// createAll returns the number of pools that the API server refused.
func (p *InitialPools) createAll(ctx context.Context) (refused int, err error) {
	config := &corev1.ConfigMap{}
	switch err := p.Live.Get(ctx, p.ConfigMap, config); {
	case apierrors.IsNotFound(err):
		config.Data = nil // the pools are objects of the release, or there are none
	case apierrors.IsForbidden(err):
		log.FromContext(ctx).Info("may not read the ConfigMap of a first installation's pools, and creates none", "reason", err.Error())
		config.Data = nil
	case err != nil:
		return 0, fmt.Errorf("reading ConfigMap %s: %w", p.ConfigMap, err)
	}
	p.observe(config)
	for _, name := range slices.Sorted(maps.Keys(config.Data)) {
		if !p.Unrecorded.Has(name) {
			continue
		}
		switch err := p.create(ctx, name, config.Data[name]); {
		case isRefusal(err):
			refused++
			p.refused(ctx, name, err)
			continue
		case err != nil:
			return refused, err
		}
		if err := p.record(ctx, config, name); err != nil {
			return refused, fmt.Errorf("recording pool %s on ConfigMap %s: %w", name, p.ConfigMap, err)
		}
		p.observe(config)
	}
	return refused, nil
}

// refused reports a pool of the chart's values that cannot be created.
func (p *InitialPools) refused(ctx context.Context, name string, why error) {
	advice := "Correct the value and run helm upgrade"
	if apierrors.IsForbidden(why) {
		advice = "Let the operator create PodIPPools, by its ClusterRole or the policy that is named: it tries again every minute"
	}
	note := fmt.Sprintf("pools.%s in the chart's values cannot be created: %v. %s", name, why, advice)
	if p.Events.Last.Changed(name, "initial", note) {
		log.FromContext(ctx).Error(why, "a pool of the chart's values cannot be created", "value", "pools."+name, "advice", advice)
		p.Events.Send(&v1alpha1.PodIPPool{ObjectMeta: metav1.ObjectMeta{Name: name}}, event.ReasonInitialPoolRefused, "Create", note)
	}
}

// observe records which pools have no record.
func (p *InitialPools) observe(config *corev1.ConfigMap) {
	recorded, unrecorded := recordedPools(config), map[string]bool{}
	for name := range config.Data {
		unrecorded[name] = !slices.Contains(recorded, name)
	}
	p.Unrecorded.Set(unrecorded)
}

func recordedPools(config *corev1.ConfigMap) []string {
	return strings.Fields(config.Annotations[v1alpha1.CreatedPoolsAnnotation])
}

// create makes sure that the pool exists, whoever created it, and that Helm owns the
// fields if this operator created it.
func (p *InitialPools) create(ctx context.Context, name, manifest string) error {
	obj := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(manifest), &obj.Object); err != nil {
		return refusal{err}
	}
	if kind := v1alpha1.GroupVersion.WithKind("PodIPPool"); obj.GroupVersionKind() != kind || obj.GetName() != name {
		return refusal{fmt.Errorf("it is %s %q instead of %s %q", obj.GroupVersionKind(), obj.GetName(), kind, name)}
	}
	obj.SetFinalizers([]string{v1alpha1.Finalizer})
	err := p.Client.Create(ctx, obj, client.FieldOwner(fieldOwner), client.FieldValidation(metav1.FieldValidationStrict))
	switch err = p.Shared.Wrote("PodIPPool", name, "create", err); {
	case err == nil:
		log.FromContext(ctx).Info("created a pool of the chart's values", "pool", name)
	case !apierrors.IsAlreadyExists(err):
		return fmt.Errorf("creating pool %s: %w", name, err)
	}
	live := &v1alpha1.PodIPPool{}
	if err := p.Live.Get(ctx, client.ObjectKey{Name: name}, live); err != nil {
		return client.IgnoreNotFound(err)
	}
	fields, mine := handedOver(live.ManagedFields)
	if !mine {
		return nil
	}
	err = p.patchMeta(ctx, live, "managedFields", fields)
	return p.Shared.Wrote("PodIPPool", name, "managedFields", client.IgnoreNotFound(err))
}

// record adds a pool to the created or found ones. The operator never creates these again.
func (p *InitialPools) record(ctx context.Context, config *corev1.ConfigMap, name string) error {
	names := append(recordedPools(config), name)
	err := p.patchMeta(ctx, config, "annotations", map[string]string{v1alpha1.CreatedPoolsAnnotation: strings.Join(names, " ")})
	return p.Shared.Wrote("ConfigMap", config.Name, "created-pools", err)
}

// patchMeta sets one metadata field of obj, conditional on its version.
func (p *InitialPools) patchMeta(ctx context.Context, obj client.Object, field string, value any) error {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": obj.GetUID(), "resourceVersion": obj.GetResourceVersion(), field: value,
	}})
	if err != nil {
		return err
	}
	return p.Client.Patch(ctx, obj, client.RawPatch(types.MergePatchType, body), client.FieldOwner(fieldOwner))
}

// refusal is an error that no retry fixes.
type refusal struct{ error }

// isRefusal reports whether the manifest, a policy or a role must change.
func isRefusal(err error) bool {
	return errors.As(err, &refusal{}) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsForbidden(err)
}

// notServed reports whether the API server does not serve the kind yet.
func notServed(err error) bool { return meta.IsNoMatchError(err) || apierrors.IsNotFound(err) }
