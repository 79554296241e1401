package pool

import (
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/refusal"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
)

// writesOf is the key of what is reported about the writes of a pool.
func writesOf(pool string) string { return "pool/" + pool }

// reportWrites reports on a pool that the API server refuses a write, whose error is err,
// and when it no longer does.
func (r *Reconciler) reportWrites(key string, pool *v1alpha1.PodIPPool, err error) {
	r.Events.Writes(key, err, func(*refusal.Error) runtime.Object { return pool })
}
