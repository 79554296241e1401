package harness

import (
	"context"
	"errors"
	"strings"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
)

// Still returns a condition: no block, pool or CiliumNode was written for a moment, as far as its
// calls can see.
func Still(c client.Client, moment time.Duration) func(context.Context) error {
	last, since := "", time.Now()
	return func(ctx context.Context) error {
		var versions []string
		for _, list := range []client.ObjectList{&v1alpha1.PodIPBlockList{}, &v1alpha1.PodIPPoolList{}, &ciliumv2.CiliumNodeList{}} {
			if err := c.List(ctx, list); err != nil {
				return err
			}
			if err := meta.EachListItem(list, func(o runtime.Object) error {
				versions = append(versions, o.(client.Object).GetResourceVersion())
				return nil
			}); err != nil {
				return err
			}
		}
		if now := strings.Join(versions, " "); now != last {
			last, since = now, time.Now()
		}
		if time.Since(since) < moment {
			return errors.New("something was written")
		}
		return nil
	}
}
