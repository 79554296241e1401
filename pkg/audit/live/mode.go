package live

import (
	"context"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumconfig"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
)

// Where says where to find the mode of a cluster.
type Where struct {
	// LeaseNamespace and LeaseName are those of the operator's Lease.
	LeaseNamespace, LeaseName string
	// CiliumNamespace has Cilium's settings.
	CiliumNamespace string
}

// Found is the mode of a cluster.
type Found struct {
	Mode ciliumnode.Mode
	// By is where the mode was found; "": nowhere, and it is crd.
	By string
	// Denied is a source of the mode that may not be read; "": none.
	Denied string
	// Settings are the settings that the operator has published; "": none, and
	// NoSettings says why.
	Settings   string
	NoSettings string
}

// Find returns the mode of the operator, by a label of its Lease, and its settings.
// Without a label the mode is that of Cilium's settings, if supported, else crd.
// Cilium's settings come second because they change before the agents restart in a
// migration.
func Find(ctx context.Context, c client.Reader, w Where) (Found, error) {
	found, label, err := readLease(ctx, c, w)
	if err != nil {
		return found, err
	}
	if label != "" {
		if found.Mode, err = ciliumnode.ParseMode(label); err != nil {
			return found, fmt.Errorf("%s says that the operator runs in mode %q, which this version does not know: use the operator's version, or give --mode", w.lease(), label)
		}
		found.By = w.lease()
		return found, nil
	}
	config, err := ciliumconfig.Read(ctx, c, w.CiliumNamespace)
	if err != nil {
		return found, err
	}
	if mode, err := ciliumnode.ParseMode(config.Mode(nil)); err == nil {
		found.Mode, found.By, found.Denied = mode, "ConfigMap "+w.CiliumNamespace+"/"+ciliumconfig.Name, ""
	} else if config.Data == nil && len(config.Denied) > 0 && found.Denied == "" {
		found.Denied = config.Denied[0]
	}
	return found, nil
}

// FindIn is Find where the mode is known already, by a flag.
func FindIn(ctx context.Context, c client.Reader, w Where, mode ciliumnode.Mode, by string) (Found, error) {
	found, _, err := readLease(ctx, c, w)
	found.Mode, found.By, found.Denied = mode, by, ""
	return found, err
}

func (w Where) lease() string { return "Lease " + w.LeaseNamespace + "/" + w.LeaseName }

// readLease reads what the operator publishes: its mode, and its settings.
func readLease(ctx context.Context, c client.Reader, w Where) (found Found, mode string, err error) {
	found, lease := Found{Mode: ciliumnode.CRD}, &coordinationv1.Lease{}
	there, err := found.get(ctx, c, w.lease(), client.ObjectKey{Namespace: w.LeaseNamespace, Name: w.LeaseName}, lease)
	found.Settings = lease.Annotations[v1alpha1.SettingsAnnotation]
	switch {
	case found.Denied != "":
		found.NoSettings = w.lease() + " may not be read"
	case !there:
		found.NoSettings = "there is no " + w.lease()
	case found.Settings == "":
		found.NoSettings = w.lease() + " has no annotation " + v1alpha1.SettingsAnnotation
	}
	return found, lease.Labels[v1alpha1.ModeLabel], err
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
