package check

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/audit/clusterread"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/config"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/crds"
)

// Operator is the operator's mode and settings, as the cluster shows them.
type Operator struct {
	clusterread.Found
	// Settings are the operator's, or the default ones: then NoSettings says why.
	Settings config.Settings
	// OtherCRDs are a line for each CRD that the operator was not built with.
	OtherCRDs []string
}

// FindOperator reads the operator's Lease. The flag --mode, if set, overrides the
// mode.
func FindOperator(ctx context.Context, c client.Reader, mode string, where clusterread.Where) (Operator, error) {
	o := Operator{Settings: config.DefaultSettings()}
	var err error
	if mode == "" {
		o.Found, err = clusterread.Find(ctx, c, where)
	} else if parsed, parseErr := ciliumnode.ParseMode(mode); parseErr != nil {
		return o, fmt.Errorf("--mode is %s: %w", mode, parseErr)
	} else {
		o.Found, err = clusterread.FindIn(ctx, c, where, parsed, "--mode")
	}
	if err != nil {
		return o, err
	}
	if o.NoSettings == "" {
		if o.Settings, err = config.ReadPublished(o.Found.Settings); err != nil {
			o.NoSettings = err.Error()
		}
	}
	o.Settings.Mode = o.Mode
	o.findSchemas(ctx, c)
	return o, nil
}

// findSchemas looks for CRDs that the operator was not built with. It skips this for
// users who may not read CRDs.
func (o *Operator) findSchemas(ctx context.Context, c client.Reader) {
	for _, name := range slices.Sorted(maps.Keys(o.Settings.CRDSchemas)) {
		served, err := crds.Served(ctx, c, name)
		if words := crds.Mismatch(name, served, o.Settings.CRDSchemas[name]); err == nil && words != "" {
			o.OtherCRDs = append(o.OtherCRDs, words)
		}
	}
}

// ModeUnknown explains why the mode may differ from the one found; "": it is known.
func (o Operator) ModeUnknown() string {
	if o.Denied == "" {
		return ""
	}
	return fmt.Sprintf("%s may not be read: the operator is assumed to run in mode %s; --mode sets another", o.Denied, o.Mode)
}

// SettingsUnknown explains why the settings may differ from the defaults; "": they
// are known.
func (o Operator) SettingsUnknown() string {
	if o.NoSettings == "" {
		return ""
	}
	return fmt.Sprintf("the operator's settings are not known, as %s: its defaults are assumed", o.NoSettings)
}
