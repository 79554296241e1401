package live

import (
	"context"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
)

// ciliumConfig is the ConfigMap of Cilium's settings, and ipam the key of its mode
// (pkg/option/config.go, v1.20.1).
const ciliumConfig, ipam = "cilium-config", "ipam"

// Where says who tells the mode of a cluster.
type Where struct {
	// LeaseNamespace and LeaseName are those of the operator's Lease.
	LeaseNamespace, LeaseName string
	// CiliumNamespace has Cilium's settings.
	CiliumNamespace string
}

// Found is the mode of a cluster.
type Found struct {
	Mode ciliumnode.Mode
	// By is who says so; "": nobody does, and it is crd.
	By string
	// Denied is what could have said so and may not be read; "": nothing.
	Denied string
}

// FindMode is the mode that the operator runs in, by a label of its Lease. Where
// there is none it is what Cilium's settings name, if that is a mode, else crd.
// Cilium's settings come second as they are ahead of a cluster that is on the move
// to another mode.
func FindMode(ctx context.Context, c client.Reader, w Where) (Found, error) {
	found := Found{Mode: ciliumnode.CRD}
	lease, says := &coordinationv1.Lease{}, "Lease "+w.LeaseNamespace+"/"+w.LeaseName
	there, err := found.get(ctx, c, says, client.ObjectKey{Namespace: w.LeaseNamespace, Name: w.LeaseName}, lease)
	if err != nil {
		return found, err
	}
	if name := lease.Labels[v1alpha1.ModeLabel]; there && name != "" {
		if found.Mode, err = ciliumnode.ParseMode(name); err != nil {
			return found, fmt.Errorf("%s says that the operator runs in mode %q, which this version does not know: use the operator's version, or give --mode", says, name)
		}
		found.By, found.Denied = says, ""
		return found, nil
	}
	config, says := &corev1.ConfigMap{}, "ConfigMap "+w.CiliumNamespace+"/"+ciliumConfig
	there, err = found.get(ctx, c, says, client.ObjectKey{Namespace: w.CiliumNamespace, Name: ciliumConfig}, config)
	if err != nil {
		return found, err
	}
	if mode, err := ciliumnode.ParseMode(config.Data[ipam]); there && err == nil {
		found.Mode, found.By, found.Denied = mode, says, ""
	}
	return found, nil
}

// get reports whether an object is there and may be read.
func (f *Found) get(ctx context.Context, c client.Reader, says string, key client.ObjectKey, o client.Object) (bool, error) {
	err := c.Get(ctx, key, o)
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case apierrors.IsForbidden(err):
		if f.Denied == "" {
			f.Denied = says
		}
		return false, nil
	case err != nil:
		return false, fmt.Errorf("reading %s: %w", says, err)
	}
	return true, nil
}
