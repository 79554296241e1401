package controller

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/common"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/informer"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// Scheduling checks whether admission policies can make pods request addresses, unless a webhook does.
// The chart installs them; Kubernetes serves their kind since 1.36.
type Scheduling struct {
	Mapper  meta.RESTMapper
	Webhook bool
	// Families are the families that Nodes should offer addresses of.
	Families []ipalloc.Family
}

// offers returns the families that Nodes offer addresses of: none if no policy can make a pod
// request one. It waits until the API server answers, because a missing answer is no reason to
// withdraw an offer. Without Families it returns at once.
func (s Scheduling) offers(ctx context.Context, m *operatorMetrics) []ipalloc.Family {
	if len(s.Families) == 0 || s.Webhook {
		return s.Families
	}
	logger := log.FromContext(ctx).WithName("scheduling")
	kind := schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "MutatingAdmissionPolicy"}
	var served bool
	err := wait.PollUntilContextCancel(ctx, prerequisitesRetry, true, func(context.Context) (bool, error) {
		var err error
		if served, err = informer.Serves(s.Mapper, kind); err != nil {
			logger.Error(err, "asking the API server for "+kind.Kind)
		}
		return err == nil, nil
	})
	if err != nil {
		return nil
	}
	m.noOffers.Set(common.OneIf(!served))
	if served {
		return s.Families
	}
	logger.Error(nil, "--scheduling-families is without effect: the API server serves no MutatingAdmissionPolicy in version v1, as Kubernetes 1.36 does. "+
		"Pods are scheduled without regard to addresses. Use the webhook, or restart the operator once the cluster is upgraded")
	return nil
}
