package clusterread

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumconfig"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
)

// Where the chart puts the operator's Lease.
const (
	LeaseNamespace = "kube-system"
	LeaseName      = "cilium-pool-operator"
)

// Where says where to find the mode of a cluster.
type Where struct {
	// LeaseNamespace and LeaseName name the operator's Lease. If one is empty, the chart's default
	// counts, or else the only Lease of an operator.
	LeaseNamespace, LeaseName string
	// CiliumNamespace has Cilium's settings.
	CiliumNamespace string
	// Mode is the flag --mode; "": find it.
	Mode string
}

// Found is the mode of a cluster.
type Found struct {
	Mode ciliumnode.Mode
	// By is the source of the mode; "": there is none, and the mode is crd.
	By string
	// Denied is a source of the mode that may not be read; "": none.
	Denied string
	// Published are the settings that the operator has published; "": none, and
	// NoSettings says why.
	Published  string
	NoSettings string
	// Lease is the operator's, whether it exists or not.
	Lease client.ObjectKey
}

// find returns the mode of the operator, by a label of its Lease, and its settings.
// Without a label the mode is that of Cilium's settings, if supported, else crd.
// Cilium's settings come second because they change before the agents restart in a
// migration.
func find(ctx context.Context, c client.Reader, w Where) (Found, error) {
	found, label, err := readLease(ctx, c, w)
	switch {
	case err != nil:
		return found, err
	case w.Mode != "":
		if found.Mode, err = ciliumnode.ParseMode(w.Mode); err != nil {
			return found, fmt.Errorf("--mode is %s: %w", w.Mode, err)
		}
		found.By, found.Denied = "--mode", ""
		return found, nil
	case label != "":
		if found.Mode, err = ciliumnode.ParseMode(label); err != nil {
			return found, fmt.Errorf("the Lease %s says that the operator runs in mode %q, which this version does not know: use the operator's version, or give --mode", found.Lease, label)
		}
		found.By = "Lease " + found.Lease.String()
		return found, nil
	}
	config, err := ciliumconfig.Read(ctx, c, w.CiliumNamespace, nil)
	if err != nil {
		return found, err
	}
	if mode, err := ciliumnode.ParseMode(config.Mode(nil)); err == nil {
		found.Mode, found.By, found.Denied = mode, "ConfigMap "+w.CiliumNamespace+"/"+ciliumconfig.Name, ""
	} else if !config.Known && found.Denied == "" {
		found.Denied = config.Denied[0]
	}
	return found, nil
}

// readLease reads the mode and the settings that the operator publishes.
func readLease(ctx context.Context, c client.Reader, w Where) (found Found, mode string, err error) {
	found = Found{Mode: ciliumnode.CRD, Lease: client.ObjectKey{
		Namespace: cmp.Or(w.LeaseNamespace, LeaseNamespace), Name: cmp.Or(w.LeaseName, LeaseName),
	}}
	lease := &coordinationv1.Lease{}
	there, err := found.get(ctx, c, "Lease "+found.Lease.String(), found.Lease, lease)
	if err == nil && (w.LeaseNamespace == "" || w.LeaseName == "") && !held(lease) {
		var other *coordinationv1.Lease
		if other, err = otherLease(ctx, c, w); other != nil && (!there || held(other)) {
			lease, there, found.Denied, found.Lease = other, true, "", client.ObjectKeyFromObject(other)
		}
	}
	found.Published = lease.Annotations[v1alpha1.SettingsAnnotation]
	switch {
	case found.Denied != "":
		found.NoSettings = "Lease " + found.Lease.String() + " may not be read"
	case !there:
		found.NoSettings = "there is no Lease " + found.Lease.String()
	case found.Published == "":
		found.NoSettings = "Lease " + found.Lease.String() + " has no annotation " + v1alpha1.SettingsAnnotation
	}
	return found, lease.Labels[v1alpha1.ModeLabel], err
}

// held reports whether an operator holds the Lease.
func held(lease *coordinationv1.Lease) bool {
	s := lease.Spec
	if s.HolderIdentity == nil || *s.HolderIdentity == "" || s.RenewTime == nil || s.LeaseDurationSeconds == nil {
		return false
	}
	return time.Since(s.RenewTime.Time) < 2*time.Duration(*s.LeaseDurationSeconds)*time.Second
}

// otherLease finds by its label the Lease of an operator that the chart's default does not name;
// nil: there is none, or the list is forbidden. A held one is preferred.
func otherLease(ctx context.Context, c client.Reader, w Where) (*coordinationv1.Lease, error) {
	list := &coordinationv1.LeaseList{}
	switch err := c.List(ctx, list, client.InNamespace(w.LeaseNamespace), client.HasLabels{v1alpha1.ModeLabel}); {
	case apierrors.IsForbidden(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("listing Leases: %w", err)
	}
	var all, live []*coordinationv1.Lease
	var names []string
	for i := range list.Items {
		lease := &list.Items[i]
		if w.LeaseName != "" && lease.Name != w.LeaseName {
			continue
		}
		all = append(all, lease)
		if held(lease) {
			live, names = append(live, lease), append(names, lease.Namespace+"/"+lease.Name)
		}
	}
	switch {
	case len(live) > 1:
		return nil, fmt.Errorf("cannot tell which operator is meant: Leases %s are held. Name the namespace (-n) or the Lease of one", strings.Join(names, ", "))
	case len(live) == 1:
		return live[0], nil
	case len(all) == 1:
		return all[0], nil
	}
	return nil, nil
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
