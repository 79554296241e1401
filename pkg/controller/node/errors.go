package node

import (
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/common"
)

var (
	// errStale means that the state behind the decision has changed.
	errStale = errors.New("the node has changed meanwhile")
	// errCacheBehind means that the watch lags behind a write that must be seen first.
	errCacheBehind = errors.New("the watch lags")
	// errUnprotected means that a block could go at any moment.
	errUnprotected = errors.New("not published")
)

// lostRace reports whether err means that the state behind a decision has changed, which
// the next reconcile resolves.
func lostRace(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || errors.Is(err, errStale) || errors.Is(err, ciliumnode.ErrRunsWithAnother)
}

// provesNotWritten reports whether err proves that a write was not carried out: the plan was out of date, the
// write conflicted, or it failed for certain.
func provesNotWritten(err error) bool {
	return errors.Is(err, errStale) || apierrors.IsConflict(err) || provesFailed(err)
}

// provesFailed reports whether the answer of the API server, or its lack, proves that a write was not carried out.
func provesFailed(err error) bool {
	return common.IsUnsent(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsForbidden(err) ||
		apierrors.IsNotFound(err) || apierrors.IsUnauthorized(err) || apierrors.IsTooManyRequests(err)
}

// refusesAll reports whether the API server would refuse any other block as well.
func refusesAll(err error) bool {
	refused := common.RefusalIn(err)
	return refused != nil && refused.OfKind()
}
