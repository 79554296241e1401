package clusterread

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumconfig"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/config"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/crds"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// Where the chart puts the operator's Lease.
const (
	LeaseNamespace = "kube-system"
	LeaseName      = "cilium-pool-operator"
)

// Where says where to find the operator's mode and settings.
type Where struct {
	// LeaseNamespace and LeaseName name the operator's Lease. If one is empty, the chart's default
	// counts, or else the only Lease of an operator.
	LeaseNamespace, LeaseName string
	// CiliumNamespace has Cilium's settings; "": the one that the operator publishes, or the default.
	CiliumNamespace string
	// Mode is the flag --mode, also ObserveMode; "": find it.
	Mode string
}

// Operator is the operator's mode and settings, as the cluster shows them.
type Operator struct {
	Mode ciliumnode.Mode
	// Observe: the operator observes another IPAM, which runs in Mode.
	Observe bool
	// ModeSource is the source of the mode; "": there is none, and the mode is crd.
	ModeSource string
	// UnreadModeSource is a source of the mode that may not be read; "": none.
	UnreadModeSource string
	// Lease is the operator's, whether it exists or not.
	Lease client.ObjectKey
	// Recovery holds back changes, as the Lease says that etcd was restored; nil: it does not.
	Recovery *state.Recovery
	// Published are the settings that the operator has published.
	Published string
	// Settings are the published ones, or else the defaults: then NoSettings says why.
	Settings      config.Settings
	WhyNoSettings string
	// OtherCRDs are a line for each CRD that the operator was not built with.
	OtherCRDs []string
}

// Declares reports whether the operator itself, or --mode, says that it runs in a mode: Cilium's
// settings tell that of the agents.
func (o Operator) Declares(m ciliumnode.Mode) bool {
	return o.Mode == m && !o.Observe && (o.ModeSource == byFlag || strings.HasPrefix(o.ModeSource, byLease))
}

// ModeGiven reports whether --mode says that an operator runs: with --leader-elect=false it has no Lease.
func (o Operator) ModeGiven() bool { return o.ModeSource == byFlag }

// Sources of the mode, as By names them.
const (
	byFlag  = "--mode"
	byLease = "Lease "
)

// CheckModeFlag fails for a flag --mode that Find does not know.
func CheckModeFlag(mode string) error {
	if mode == "" || mode == ObserveMode {
		return nil
	}
	if _, err := ciliumnode.ParseMode(mode); err != nil {
		return fmt.Errorf("%w, or %s, for any Cilium", err, ObserveMode)
	}
	return nil
}

// Find reads the operator's mode and settings at a time.
func Find(ctx context.Context, c client.Reader, w Where, now time.Time) (Operator, error) {
	o := Operator{Settings: config.DefaultSettings()}
	if err := o.find(ctx, c, w, now); err != nil {
		return o, err
	}
	o.Settings.Mode = o.Mode
	// It looks for no CRDs of users who may not read them.
	for _, name := range slices.Sorted(maps.Keys(o.Settings.CRDSchemas)) {
		served, err := crds.Served(ctx, c, name)
		if words := crds.Mismatch(name, served, o.Settings.CRDSchemas[name]); err == nil && words != "" {
			o.OtherCRDs = append(o.OtherCRDs, words)
		}
	}
	return o, nil
}

// ModeUnknown explains why the mode may differ from the one found; "": it is known.
func (o Operator) ModeUnknown() string {
	if o.UnreadModeSource == "" {
		return ""
	}
	return fmt.Sprintf("%s may not be read: the operator is assumed to run in mode %s; --mode sets another", o.UnreadModeSource, o.Mode)
}

// SettingsUnknown explains why the settings may differ from the defaults; "": they
// are known.
func (o Operator) SettingsUnknown() string {
	if o.WhyNoSettings == "" || o.Observe {
		return ""
	}
	return fmt.Sprintf("the operator's settings are not known, as %s: its defaults are assumed", o.WhyNoSettings)
}

// find finds the mode of the operator, by a label of its Lease, and its settings.
// Without a label the mode is that of Cilium's settings, if supported, else crd.
// Cilium's settings come second because they change before the agents restart in a
// migration.
func (o *Operator) find(ctx context.Context, c client.Reader, w Where, now time.Time) error {
	label, err := o.readLease(ctx, c, w, now)
	w.CiliumNamespace = cmp.Or(w.CiliumNamespace, o.Settings.AgentNamespace)
	if err != nil {
		return err
	}
	if cmp.Or(w.Mode, label) == ObserveMode {
		return o.observe(ctx, c, w)
	}
	if w.Mode != "" {
		if o.Mode, err = ciliumnode.ParseMode(w.Mode); err != nil {
			return fmt.Errorf("--mode is %s: %w", w.Mode, err)
		}
		o.ModeSource = byFlag
		o.UnreadModeSource = ""
		return nil
	}
	if label != "" {
		if o.Mode, err = ciliumnode.ParseMode(label); err != nil {
			return fmt.Errorf("the Lease %s says that the operator runs in mode %q, which this version does not know: use the operator's version, or give --mode", o.Lease, label)
		}
		o.ModeSource = byLease + o.Lease.String()
		return nil
	}
	cilium, err := ciliumconfig.Read(ctx, c, w.CiliumNamespace, nil)
	if err != nil {
		return err
	}
	if mode, err := ciliumnode.ParseMode(cilium.Mode(nil)); err == nil {
		o.Mode = mode
		o.ModeSource = "ConfigMap " + w.CiliumNamespace + "/" + ciliumconfig.Name
		o.UnreadModeSource = ""
	} else if !cilium.Known && o.UnreadModeSource == "" {
		o.UnreadModeSource = cilium.Denied[0]
	}
	return nil
}

// observe finds the mode of the IPAM that is observed.
func (o *Operator) observe(ctx context.Context, c client.Reader, w Where) error {
	config, err := ciliumconfig.Read(ctx, c, w.CiliumNamespace, nil)
	if err == nil {
		o.Mode, err = ModeOf(config, w.CiliumNamespace)
	}
	o.Observe = true
	o.ModeSource = "ConfigMap " + w.CiliumNamespace + "/" + ciliumconfig.Name
	o.UnreadModeSource = ""
	return err
}

// readLease reads the mode and the settings that the operator publishes. Until find knows better,
// the mode is crd.
func (o *Operator) readLease(ctx context.Context, c client.Reader, w Where, now time.Time) (mode string, err error) {
	o.Mode = ciliumnode.CRD
	o.Lease = client.ObjectKey{Namespace: cmp.Or(w.LeaseNamespace, LeaseNamespace), Name: cmp.Or(w.LeaseName, LeaseName)}
	lease := &coordinationv1.Lease{}
	found, err := o.get(ctx, c, "Lease "+o.Lease.String(), o.Lease, lease)
	if err == nil && (w.LeaseNamespace == "" || w.LeaseName == "") && !leaseIsHeld(lease, now) {
		var another *coordinationv1.Lease
		if another, err = otherLease(ctx, c, w, now); another != nil && (!found || leaseIsHeld(another, now)) {
			lease = another
			found = true
			o.UnreadModeSource = ""
			o.Lease = client.ObjectKeyFromObject(another)
		}
	}
	o.Published = lease.Annotations[v1alpha1.SettingsAnnotation]
	switch {
	case o.UnreadModeSource != "":
		o.WhyNoSettings = "Lease " + o.Lease.String() + " may not be read"
	case !found:
		o.WhyNoSettings = "there is no Lease " + o.Lease.String()
	case o.Published == "":
		o.WhyNoSettings = "Lease " + o.Lease.String() + " has no annotation " + v1alpha1.SettingsAnnotation
	default:
		var unreadable error
		if o.Settings, unreadable = config.ReadPublished(o.Published); unreadable != nil {
			o.WhyNoSettings = unreadable.Error()
		}
	}
	if value, ok := lease.Annotations[v1alpha1.RestoredAnnotation]; ok {
		o.Recovery = &state.Recovery{}
		o.Recovery.Begin(value != v1alpha1.RestoredPerhaps, now)
	}
	return lease.Labels[v1alpha1.ModeLabel], err
}

// leaseIsHeld reports whether an operator holds the Lease.
func leaseIsHeld(lease *coordinationv1.Lease, now time.Time) bool {
	s := lease.Spec
	if s.HolderIdentity == nil || *s.HolderIdentity == "" || s.RenewTime == nil || s.LeaseDurationSeconds == nil {
		return false
	}
	return now.Sub(s.RenewTime.Time).Abs() < 2*time.Duration(*s.LeaseDurationSeconds)*time.Second
}

// otherLease finds by its label the Lease of an operator that the chart's default does not name;
// nil: there is none, or the list is forbidden. A held one is preferred.
func otherLease(ctx context.Context, c client.Reader, w Where, now time.Time) (*coordinationv1.Lease, error) {
	list := &coordinationv1.LeaseList{}
	err := c.List(ctx, list, client.InNamespace(w.LeaseNamespace), client.HasLabels{v1alpha1.ModeLabel})
	if apierrors.IsForbidden(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing Leases: %w", err)
	}
	var leases, live []*coordinationv1.Lease
	var names []string
	for i := range list.Items {
		lease := &list.Items[i]
		if w.LeaseName != "" && lease.Name != w.LeaseName {
			continue
		}
		leases = append(leases, lease)
		if leaseIsHeld(lease, now) {
			live = append(live, lease)
			names = append(names, lease.Namespace+"/"+lease.Name)
		}
	}
	if len(live) > 1 {
		return nil, fmt.Errorf("cannot tell which operator is meant: Leases %s are held. Name the namespace (-n) or the Lease of one", strings.Join(names, ", "))
	}
	if len(live) == 1 {
		return live[0], nil
	}
	if len(leases) == 1 {
		return leases[0], nil
	}
	return nil, nil
}

// get reports whether an object is there and may be read.
func (o *Operator) get(ctx context.Context, c client.Reader, subject string, key client.ObjectKey, into client.Object) (bool, error) {
	err := c.Get(ctx, key, into)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if apierrors.IsForbidden(err) {
		if o.UnreadModeSource == "" {
			o.UnreadModeSource = subject
		}
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading %s: %w", subject, err)
	}
	return true, nil
}
