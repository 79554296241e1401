package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumconfig"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/common"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/event"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/crds"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/pkg/termsafe"
)

// ciliumConfigCheck keeps Cluster.Cilium up to date, and reports nodes with agents that would not
// find their blocks at their next start, as Cilium's IPAM mode has changed. It polls: a watch would
// need more rights, for two small objects.
type ciliumConfigCheck struct {
	live, cache client.Reader
	namespace   string // Cilium's
	cluster     *state.Cluster
	events      *event.Recorder
	metrics     *operatorMetrics
	// leads is closed once this process leads: others send no events.
	leads <-chan struct{}
	every time.Duration
	// changed queues the objects that depend on the configuration.
	changed func()
}

// Start checks until ctx ends. It is a manager's Runnable.
func (c *ciliumConfigCheck) Start(ctx context.Context) error {
	if c.cluster.Ledger.WaitClaimable(ctx) == nil { // otherwise a shutdown, which is not a failure
		wait.UntilWithContext(ctx, func(ctx context.Context) {
			if err := c.look(ctx); err != nil && ctx.Err() == nil {
				log.FromContext(ctx).WithName("cilium-config").Error(err, "reading Cilium's configuration; what was read last applies")
			}
		}, c.every)
	}
	return nil
}

// NeedLeaderElection is false: a new leader decides by the present configuration.
func (c *ciliumConfigCheck) NeedLeaderElection() bool { return false }

func (c *ciliumConfigCheck) look(ctx context.Context) error {
	config, failed := ciliumconfig.Read(ctx, c.live, c.namespace, c.cluster.Cilium.Get())
	if !reflect.DeepEqual(config, c.cluster.Cilium.Get()) {
		c.cluster.Cilium.Set(config)
		if len(config.Denied) > 0 {
			log.FromContext(ctx).WithName("cilium-config").Info("may not read Cilium's configuration; what was read last applies", "denied", strings.Join(config.Denied, ", "))
		}
		c.changed()
	}
	nodes := &corev1.NodeList{}
	if !c.cluster.AnyMode && config.Differs(c.cluster.Mode.String()) {
		if err := c.cache.List(ctx, nodes, client.UnsafeDisableDeepCopy); err != nil {
			return err
		}
	}
	groups, n := c.cluster.OtherModes(nodes.Items)
	c.metrics.otherMode.Set(float64(n))
	select {
	case <-c.leads:
		c.report(groups)
	default:
	}
	return failed
}

// report sends an event when the modes of the nodes' next start change.
func (c *ciliumConfigCheck) report(groups []state.NodesInMode) {
	modes := make([]string, 0, len(groups))
	for _, o := range groups {
		modes = append(modes, o.Mode)
	}
	if !c.events.Last.Changed(ciliumconfig.Name, "mode", strings.Join(modes, ",")) {
		return
	}
	obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: ciliumconfig.Name}}
	for _, o := range groups {
		c.events.Send(obj, event.ReasonCiliumModeDiffers, "StartIn-"+termsafe.Cut(o.Mode, 100), o.Describe(c.cluster.Mode)+
			fmt.Sprintf(". Until then nothing changes for their pods, and no drain begins there. Set ipam back to %s, also in CiliumNodeConfigs, or see docs/migration.md", c.cluster.Mode))
	}
}

// schemaLookEvery is the interval of the operator's checks of the CRDs for changes.
const schemaLookEvery = time.Minute

// schemaCheck reports CRDs that this build was not made with: the API server drops or rejects
// fields it does not know, while pools appear to serve. It has no other effect on the operator.
type schemaCheck struct {
	live    client.Reader
	built   map[string]string // by CRD
	metrics *operatorMetrics
	last    event.Last
	// seen holds the CRDs served so far. The prerequisites report the others.
	seen map[string]bool
}

// Start checks until ctx ends. It is a manager's Runnable.
func (s *schemaCheck) Start(ctx context.Context) error {
	wait.UntilWithContext(ctx, s.look, schemaLookEvery)
	return nil
}

// NeedLeaderElection is false: a standby of another version reports before it leads.
func (s *schemaCheck) NeedLeaderElection() bool { return false }

// look logs each new difference once, and sets the gauge.
func (s *schemaCheck) look(ctx context.Context) {
	for _, name := range slices.Sorted(maps.Keys(s.built)) {
		served, err := crds.Served(ctx, s.live, name)
		var words string
		switch {
		case apierrors.IsForbidden(err):
			words = "the operator may not read CRD " + name + ": its ClusterRole is of an older chart, or lacks get of customresourcedefinitions. " +
				"Install chart and image of one version"
		case errors.Is(err, crds.ErrDeleted) && s.seen[name]:
			words = err.Error() + ". Nodes get no blocks, and blocks drain: see \"A CRD was deleted\" in docs/operations.md"
		case err != nil:
			continue
		default:
			s.seen[name] = true
			words = crds.Mismatch(name, served, s.built[name])
		}
		s.metrics.schemas.WithLabelValues(name).Set(common.OneIf(words != ""))
		logger := log.FromContext(ctx).WithName("schema").WithValues("crd", name)
		changed := s.last.Changed(name, "schema", words)
		if changed && words != "" {
			logger.Error(nil, words)
		} else if changed {
			logger.Info("the CRD is the one that this operator was built with")
		}
	}
}
