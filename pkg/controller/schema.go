package controller

import (
	"context"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/common"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/event"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/crds"
)

// schemaLookEvery is the interval of the operator's checks of the CRDs for changes.
const schemaLookEvery = time.Minute

// schemaCheck reports CRDs that this build was not made with: the API server drops or rejects
// fields it does not know, while pools appear to serve. It has no other effect on the operator.
type schemaCheck struct {
	live    client.Reader
	built   map[string]string // by CRD
	metrics *operatorMetrics
	last    event.Last
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
		case err != nil: // the CRD is missing, which the prerequisites report, or the API server is unreachable
			continue
		default:
			words = crds.Mismatch(name, served, s.built[name])
		}
		s.metrics.schemas.WithLabelValues(name).Set(common.OneIf(words != ""))
		logger := log.FromContext(ctx).WithName("schema").WithValues("crd", name)
		switch changed := s.last.Changed(name, "schema", words); {
		case changed && words != "":
			logger.Error(nil, words)
		case changed:
			logger.Info("the CRD is the one that this operator was built with")
		}
	}
}
