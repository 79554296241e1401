package controller

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/informer"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// Scheduling checks whether admission policies can make pods request addresses. The chart
// installs them; Kubernetes serves their kind since 1.36.
type Scheduling struct {
	Mapper meta.RESTMapper
	// Families are the families that Nodes should offer addresses of.
	Families []ipalloc.Family
}

// offers returns the families that Nodes offer addresses of: none if no policy can make a pod
// request one. It waits until the API server answers, because a missing answer is no reason to
// withdraw an offer. Without Families it returns at once.
func (s Scheduling) offers(ctx context.Context, m *operatorMetrics) []ipalloc.Family {
	if len(s.Families) == 0 {
		return nil
	}
	logger := log.FromContext(ctx).WithName("scheduling")
	kind := schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "MutatingAdmissionPolicy"}
	for {
		served, err := informer.Serves(s.Mapper, kind)
		if err == nil {
			m.unavailable(!served)
		}
		switch {
		case err == nil && served:
			return s.Families
		case err == nil:
			logger.Error(nil, "--scheduling-families is without effect: the API server serves no MutatingAdmissionPolicy in version v1, as Kubernetes 1.36 does. "+
				"Pods are scheduled without regard to addresses. Restart the operator once the cluster is upgraded")
			return nil
		}
		logger.Error(err, "asking the API server for "+kind.Kind)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(prerequisitesRetry):
		}
	}
}
